# SPDX-License-Identifier: Apache-2.0
"""Writer groups of several processes, readers with other decompositions, and what happens when one of them is lost."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

import adios2
import numpy as np
import pytest

import forebay
import forebay.adios2
from tests.support.processes import PythonProcess
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

# One rank: a slab of rows of a global array in two blocks, rows of a joined array, a local array, values.
RANK = """
    import sys, numpy as np, adios2, forebay.adios2
    address, rank, ranks, steps = sys.argv[1], *map(int, sys.argv[2:5])
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, address, Rank=rank, Ranks=ranks)
    rows, columns = 4 * ranks, 6
    with adios2.Stream(io, "flow", "w") as stream:
        for number in range(steps):
            stream.begin_step()
            slab = np.arange(4.0 * columns).reshape(4, columns) + 24 * rank + 1000 * number
            stream.write("global", slab[:1], [rows, columns], [4 * rank, 0], [1, columns])
            stream.write("global", slab[1:], [rows, columns], [4 * rank + 1, 0], [3, columns])
            joined = np.full((rank + 1, 2), rank, np.int32)
            stream.write("joined", joined, [adios2.JoinedDim, 2], [], [rank + 1, 2])
            stream.write("local", np.full(rank + 1, rank + 100 * number, np.int16), [], [], [rank + 1])
            stream.write("per rank", np.array([rank * 10 + number]), [adios2.LocalValueDim], [], [])
            if rank == 0:
                stream.write("number", number)
            stream.end_step()
"""

# One reader: its share of the columns, everything else whole.
READER = """
    import sys, numpy as np, adios2, forebay.adios2
    address, reader, readers, ranks = sys.argv[1], *map(int, sys.argv[2:5])
    io = adios2.Adios().declare_io("reader")
    forebay.adios2.configure(io, address)
    first, last = 6 * reader // readers, 6 * (reader + 1) // readers
    with adios2.Stream(io, "flow", "r") as stream:
        for step in stream:
            number = step.current_step()
            assert step.read("number") == number
            whole = np.arange(24.0 * ranks).reshape(4 * ranks, 6) + 1000 * number
            read = step.read("global", start=[0, first], count=[4 * ranks, last - first])
            np.testing.assert_array_equal(read, whole[:, first:last])
            joined = np.concatenate([np.full((rank + 1, 2), rank, np.int32) for rank in range(ranks)])
            np.testing.assert_array_equal(step.read("joined"), joined)
            np.testing.assert_array_equal(step.read("per rank"), [rank * 10 + number for rank in range(ranks)])
            blocks = step.engine.blocks_info("local", number)
            assert [int(block["WriterID"]) for block in blocks] == list(range(ranks))
            assert [int(block["Count"]) for block in blocks] == [rank + 1 for rank in range(ranks)]
            for rank in range(ranks):
                local = step.read("local", start=[0], count=[rank + 1], block_id=rank)
                np.testing.assert_array_equal(local, np.full(rank + 1, rank + 100 * number))
            print(number)
"""


@pytest.mark.parametrize(("ranks", "readers"), [(1, 2), (3, 1), (2, 3)])
def test_readers_cut_across_what_ranks_wrote(reservation: str, ranks: int, readers: int) -> None:
    address = f"{reservation}/flow"
    with ExitStack() as stack:
        writing = [
            stack.enter_context(PythonProcess(RANK, address, str(rank), str(ranks), "4")) for rank in range(ranks)
        ]
        reading = [
            stack.enter_context(PythonProcess(READER, address, str(reader), str(readers), str(ranks)))
            for reader in range(readers)
        ]
        for process in writing:
            process.succeed()
        for process in reading:
            assert process.succeed().split() == ["0", "1", "2", "3"]


def test_rank_that_never_comes_is_named_at_the_deadline(reservation: str) -> None:
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, f"{reservation}/flow", Rank=0, Ranks=3, OpenTimeoutSecs=0.3)
    with pytest.raises(RuntimeError, match=r"1.*2") as raised:
        io.open("flow", adios2.bindings.Mode.Write)
    assert "engine parameter" in str(raised.value)


def test_rank_and_ranks_come_from_the_environment(reservation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_RANK", "1")
    monkeypatch.setenv("FOREBAY_RANKS", "2")
    monkeypatch.setenv("FOREBAY_OPEN_TIMEOUT_SECS", "0.3")
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, f"{reservation}/flow")
    with pytest.raises(RuntimeError, match="FOREBAY_RANK"):
        io.open("flow", adios2.bindings.Mode.Write)


def test_ranks_of_two_opinions_all_fail(reservation: str) -> None:
    program = """
        import sys, adios2, forebay.adios2
        io = adios2.Adios().declare_io("writer")
        forebay.adios2.configure(io, sys.argv[1], Rank=int(sys.argv[2]), Ranks=int(sys.argv[3]), OpenTimeoutSecs=20)
        try:
            io.open("flow", adios2.bindings.Mode.Write)
        except (RuntimeError, ValueError) as error:
            print(error)
    """
    for first, second in ((("0", "2"), ("1", "3")), (("0", "2"), ("0", "2"))):
        with (
            PythonProcess(program, f"{reservation}/flow", *first) as one,
            PythonProcess(program, f"{reservation}/flow", *second) as other,
        ):
            assert "rank" in one.succeed()
            assert "rank" in other.succeed()


# A rank that is told what to do, line by line: "step", "begin" (and write, but do not end), "close".
OBEDIENT = """
    import sys, adios2, forebay.adios2
    address, rank, ranks, mode = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4]
    parameters = dict(argument.split("=") for argument in sys.argv[5:])
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, address, Rank=rank, Ranks=ranks, **parameters)
    engine = io.open("flow", getattr(adios2.bindings.Mode, mode))
    variable = io.define_variable("rank", __import__("numpy").array([0]), [ranks], [rank], [1])
    print("open")
    for line in sys.stdin:
        try:
            if line.strip() in ("step", "begin"):
                engine.begin_step()
                engine.put(variable, rank + 100 * engine.current_step())
            if line.strip() in ("step", "end"):
                engine.end_step()
            if line.strip() == "close":
                engine.close()
        except RuntimeError as error:
            print("RuntimeError", error)
        else:
            print("done")
"""


def open_reader(address: str, **parameters: str | float | bool) -> adios2.Stream:
    io = adios2.Adios().declare_io("reader")
    forebay.adios2.configure(io, address, **parameters)
    return adios2.Stream(io, "flow", "r")


# crash-matrix: losing a rank | a rank of an ADIOS2 program | the committed steps; a restarted program continues after them
def test_killed_rank_takes_its_step_along_and_a_restart_goes_on(reservation: str) -> None:
    address = f"{reservation}/flow"

    def group(mode: str) -> list[PythonProcess]:
        return [PythonProcess(OBEDIENT, address, str(rank), "2", mode, "grace_secs=60") for rank in range(2)]

    first = group("Write")
    try:
        for rank in first:
            assert rank.line() == "open"
        for rank in first:
            rank.tell("step")
        for rank in first:
            assert rank.line() == "done"
        reader = open_reader(address)
        reader.begin_step()
        np.testing.assert_array_equal(reader.read("rank"), [0, 1])
        reader.end_step()
        first[1].tell("begin")
        assert first[1].line() == "done"
        first[1].send(signal.SIGKILL)
        first[0].tell("step")
        assert "rank 1" in first[0].line()
        # Within the grace time the reader waits for a restart.
        assert reader.begin_step(timeout=0.2) == adios2.bindings.StepStatus.NotReady
    finally:
        for rank in first:
            rank.__exit__(None, None, None)
    second = group("Append")
    try:
        for rank in second:
            assert rank.line() == "open"
            rank.tell("step")
        for rank in second:
            assert rank.line() == "done"
        assert reader.begin_step(timeout=seconds(30)) == adios2.bindings.StepStatus.OK
        assert reader.current_step() == 1
        np.testing.assert_array_equal(reader.read("rank"), [100, 101])
        reader.end_step()
        for rank in second:
            rank.tell("close")
        for rank in second:
            assert rank.line() == "done"
        assert reader.begin_step() == adios2.bindings.StepStatus.EndOfStream
        reader.close()
    finally:
        for rank in second:
            rank.__exit__(None, None, None)


def test_lost_group_ends_the_stream_with_other_error_after_its_grace_time(
    reservation: str, capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"{reservation}/flow"
    with PythonProcess(OBEDIENT, address, "0", "1", "Write", "grace_secs=0.2") as rank:
        assert rank.line() == "open"
        rank.tell("step")
        assert rank.line() == "done"
        reader = open_reader(address)
        assert reader.begin_step() == adios2.bindings.StepStatus.OK
        reader.end_step()
        rank.send(signal.SIGKILL)
        assert reader.begin_step(timeout=seconds(30)) == adios2.bindings.StepStatus.OtherError
    reader.close()
    told, ended = (line for line in capfd.readouterr().err.splitlines() if "is interrupted" in line)
    assert "GraceSecs" in told
    assert "GraceSecs" not in ended


def test_steps_after_a_restart_point_are_withdrawn_and_written_again(reservation: str) -> None:
    address = f"{reservation}/flow"
    reader = None
    for mode, restart, steps in (("Write", [], 4), ("Write", ["append_after=1"], 2)):
        with PythonProcess(OBEDIENT, address, "0", "1", mode, *restart) as rank:
            assert rank.line() == "open"
            for _ in range(steps):
                rank.tell("step")
                assert rank.line() == "done"
            rank.tell("close")
            assert rank.line() == "done"
        if reader is None:
            reader = open_reader(address, consumer="render")
            for number in range(3):
                assert reader.begin_step() == adios2.bindings.StepStatus.OK
                assert reader.current_step() == number
                reader.end_step()
    assert reader is not None
    numbers = []
    while reader.begin_step(timeout=seconds(30)) == adios2.bindings.StepStatus.OK:
        numbers.append(reader.current_step())
        reader.end_step()
    assert numbers == [2, 3]
    reader.close()


def test_puts_without_steps_are_one_step_of_the_whole_group(reservation: str) -> None:
    program = """
        import sys, numpy as np, adios2, forebay.adios2
        rank = int(sys.argv[2])
        io = adios2.Adios().declare_io("writer")
        forebay.adios2.configure(io, sys.argv[1], Rank=rank, Ranks=2)
        with adios2.Stream(io, "flow", "w") as stream:
            if rank == 0:
                stream.write("x", np.arange(3), [3], [0], [3])
    """
    with (
        PythonProcess(program, f"{reservation}/flow", "0") as one,
        PythonProcess(program, f"{reservation}/flow", "1") as other,
    ):
        one.succeed()
        other.succeed()
    with forebay.open(f"{reservation}/flow") as stream:
        assert len(stream.steps()) == 1
        np.testing.assert_array_equal(stream[0]["x"][...], np.arange(3))


def test_steps_are_shared_out_among_readers(reservation: str) -> None:
    address = f"{reservation}/flow"
    with PythonProcess(OBEDIENT, address, "0", "1", "Write") as rank:
        assert rank.line() == "open"
        readers = [open_reader(address, step_distribution_mode="RoundRobin") for _ in range(2)]
        for _ in range(6):
            rank.tell("step")
            assert rank.line() == "done"
        rank.tell("close")
        seen: list[list[int]] = [[], []]
        for number in range(6):
            reader = readers[number % 2]
            assert reader.begin_step(timeout=seconds(30)) == adios2.bindings.StepStatus.OK
            seen[number % 2].append(reader.current_step())
            reader.end_step()
        for reader in readers:
            assert reader.begin_step(timeout=seconds(30)) == adios2.bindings.StepStatus.EndOfStream
            reader.close()
    assert sorted(seen[0] + seen[1]) == list(range(6))
    assert len(seen[0]) == len(seen[1]) == 3


def test_rendezvous_waits_for_the_readers(reservation: str) -> None:
    address = f"{reservation}/flow"
    with PythonProcess(
        OBEDIENT, address, "0", "1", "Write", "rendezvous_reader_count=1", "open_timeout_secs=60"
    ) as rank:
        reader = open_reader(address)
        assert rank.line() == "open"
        rank.tell("close")
        assert rank.line() == "done"
        reader.close()


# crash-matrix: recovering | server, under ADIOS2 programs | they go on, each step once
def test_writer_and_reader_ride_out_a_restart_of_the_server(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StagingServer(tmp_path_factory.mktemp("restarted") / "root") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("res", "64MiB", persistent=True)
        with PythonProcess(OBEDIENT, "res/flow", "0", "1", "Write") as rank:
            assert rank.line() == "open"
            reader = open_reader("res/flow")
            for number in range(4):
                rank.tell("step")
                if number % 2:
                    server.kill()
                    server.start()
                assert rank.line() == "done"
                assert reader.begin_step(timeout=seconds(30)) == adios2.bindings.StepStatus.OK
                assert reader.current_step() == number
                np.testing.assert_array_equal(reader.read("rank"), [100 * number])
                reader.end_step()
            rank.tell("close")
            assert rank.line() == "done"
            assert reader.begin_step(timeout=seconds(30)) == adios2.bindings.StepStatus.EndOfStream
            reader.close()


def test_engine_is_used_by_children_of_the_process_that_configured_it(reservation: str) -> None:
    # The environment is all that a child needs.
    environment = {**forebay.adios2.environment(), "FOREBAY_STREAM": f"{reservation}/flow"}
    program = f"""
        import os
        os.environ.update({environment!r})
        import adios2
        io = adios2.Adios().declare_io("writer")
        io.set_engine("Plugin")
        io.set_parameters({{"PluginName": "forebay", "PluginLibrary": "forebay_adios2"}})
        with adios2.Stream(io, "flow", "w") as stream:
            stream.write("x", 1)
    """
    with PythonProcess(program) as process:
        process.succeed()
    assert "FOREBAY_STREAM" not in os.environ
    with forebay.open(f"{reservation}/flow") as stream:
        assert stream[0]["x"][...] == 1


# Reads a stream that may just be ending, by the steps that it sees; a line starts each round.
RACING_READER = """
    import sys, adios2, forebay.adios2
    print("ready")
    for name in sys.stdin:
        io = adios2.Adios().declare_io("reader")
        forebay.adios2.configure(io, name.strip())
        with adios2.Stream(io, "flow", "r") as stream:
            print(*(int(step.read("number")) for step in stream))
"""


def test_readers_that_race_the_writers_close_see_the_same_steps(reservation: str) -> None:
    # Some find the stream running and follow it, some find it ended and are offered its variables at Open.
    with ExitStack() as stack:
        readers = [stack.enter_context(PythonProcess(RACING_READER)) for _ in range(4)]
        for reader in readers:
            assert reader.line() == "ready"
        for number in range(10):
            address = f"{reservation}/flow{number}"
            io = adios2.Adios().declare_io("writer")
            forebay.adios2.configure(io, address)
            with adios2.Stream(io, "flow", "w") as stream:
                for step in range(4):
                    stream.begin_step()
                    stream.write("number", step)
                    stream.end_step()
                for reader in readers:
                    reader.tell(address)
            for reader in readers:
                assert reader.line() == "0 1 2 3"


def test_stream_of_forebay_adios2_is_adios2s(reservation: str) -> None:
    with forebay.adios2.open(f"{reservation}/flow", "w", retention="last:2") as stream:
        assert isinstance(stream, adios2.Stream)
        for number in range(3):
            stream.begin_step()
            stream.write("number", number)
            stream.end_step()
    with forebay.adios2.open(f"{reservation}/flow") as stream:
        assert [int(step.read("number")) for step in stream] == [1, 2]
    with forebay.adios2.open(f"{reservation}/flow", "rra") as stream:
        assert stream.num_steps() == 2
    with forebay.adios2.open(f"{reservation}/flow", "a") as stream:
        stream.begin_step()
        stream.write("number", 9)
        stream.end_step()
    with pytest.raises(forebay.InvalidArgumentError, match="mode"):
        forebay.adios2.open(f"{reservation}/flow", "x")
