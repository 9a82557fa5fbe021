# SPDX-License-Identifier: Apache-2.0
"""ADIOS2 readers of one program: each BeginStep has one answer for all ranks. Processes with a launcher's variables."""

from __future__ import annotations

import signal

import pytest

import forebay
from tests.support.processes import PythonProcess

# Begins a step, with the timeout that a line says, and prints its number and the value in it.
READER = """
    import os, sys
    os.environ |= {"PMI_RANK": sys.argv[2], "PMI_SIZE": "2", "PMI_JOBID": "job"}
    import adios2, forebay.adios2
    io = adios2.Adios().declare_io("reader")
    forebay.adios2.configure(io, sys.argv[1], **dict(argument.split("=") for argument in sys.argv[3:]))
    try:
        stream = adios2.Stream(io, "flow", "r")
    except RuntimeError as error:
        sys.exit(str(error))
    print("open", list(stream.available_variables()), flush=True)
    for line in sys.stdin:
        try:
            status = stream.begin_step(timeout=float(line.split()[0]))
        except RuntimeError as error:
            print(error, flush=True)
            continue
        if status != adios2.bindings.StepStatus.OK:
            print(str(status).rpartition(".")[2], flush=True)
            continue
        facts = [stream.num_steps(), *map(int, stream.minmax("n"))] if line == "-1 facts\\n" else []
        print(stream.current_step(), int(stream.read("n")), *facts, flush=True)
        stream.end_step()
    stream.close()
"""


def reader(address: str, rank: int, *parameters: str) -> PythonProcess:
    """One of two ranks."""
    return PythonProcess(READER, address, str(rank), *parameters)


def write(stream: forebay.WritableStream, *values: int) -> None:
    """One step for each value."""
    for value in values:
        with stream.step() as step:
            step["n"] = value


def test_a_hundred_steps_dropped_between_two_ranks_begin_step_mix_nothing(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w", retention="last:1") as stream:
        write(stream, 0)
        with reader(address, 0) as first, reader(address, 1) as second:
            assert first.line() == second.line() == "open []"
            for turn in range(1, 3):
                first.tell("-1")
                first.wait_until_asleep()
                write(stream, *range(100 * turn - 99, 100 * turn + 1))
                second.tell("-1")
                assert first.line() == second.line() == f"{100 * turn} {100 * turn}"
                first, second = second, first


def test_ranks_that_poll_get_the_same_answer(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        write(stream, 0)
        with reader(address, 0) as first, reader(address, 1) as second:
            assert first.line() == second.line()
            for expected in ("0 0", "NotReady", "1 1"):
                first.tell("0")
                first.wait_until_asleep()
                if expected == "1 1":
                    write(stream, 1)
                second.tell("0")
                assert first.line() == second.line() == expected


def test_a_rank_that_is_killed_is_named_to_the_other(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        write(stream, 0)
        with reader(address, 0) as first, reader(address, 1) as second:
            assert first.line() == second.line()
            first.tell("-1")
            first.wait_until_asleep()
            second.send(signal.SIGKILL)
            assert "rank 1 of 2" in first.line()
        with (
            reader(address, 0, "OnReaderLost=continue") as first,
            reader(address, 1, "OnReaderLost=continue") as second,
        ):
            assert first.line() == second.line()
            second.send(signal.SIGKILL)
            first.tell("-1")
            assert first.line() == "0 0"


def test_a_stream_that_has_ended_is_offered_to_all_or_to_none(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        write(stream, 0, 1)
    with reader(address, 0) as first, reader(address, 1) as second:
        assert first.line() == second.line() == "open ['n']"
        for expected in ("0 0", "1 1", "EndOfStream"):
            for rank in (first, second):
                rank.tell("-1")
            assert first.line() == second.line() == expected


@pytest.mark.parametrize("parameter", ["Run=coupled", "WaitForWriter=true", "Start=oldest"])
def test_ranks_that_wait_for_a_writer_learn_how_many_steps_there_are(reservation: str, parameter: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w", run="before") as stream:
        write(stream, 7)
    with forebay.open(address, "w", run="coupled") as stream:
        write(stream, 3, 4)
        with reader(address, 0, parameter) as first, reader(address, 1, parameter) as second:
            assert first.line() == second.line() == "open []"
            for expected in ("0 3 2 3 3", "1 4 2 4 4"):
                for rank in (first, second):
                    rank.tell("-1 facts")
                assert first.line() == second.line() == expected


@pytest.mark.parametrize("parameter", ["Ranks=1", "StepDistributionMode=RoundRobin"])
def test_a_reader_that_says_so_reads_alone(reservation: str, parameter: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        write(stream, 0)
        with reader(address, 0, parameter) as alone:
            assert alone.line() == "open []"
            alone.tell("-1")
            assert alone.line() == "0 0"


def test_a_rank_that_does_not_open_is_named(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w"), reader(address, 0, "OpenTimeoutSecs=0.05") as alone:
        status, _, errors = alone.finish()
        assert status == 1
        assert "rank 1 of 2" in errors
        assert "Ranks=1" in errors
