# SPDX-License-Identifier: Apache-2.0
"""A writer whose options are wrong: readers that wait for it learn why at once, and nobody else is disturbed."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import adios2
import pytest

import forebay
import forebay.adios2
from forebay import _core
from forebay.instance import server_place
from tests.support.adios2_programs import built, run_environment
from tests.support.processes import PythonProcess
from tests.support.time_limits import seconds

# Waits for as long as the options say, and prints what comes of it.
READER = """
    import sys, time, forebay
    begun = time.monotonic()
    timeout = None if sys.argv[2] == "None" else float(sys.argv[2])
    print("ready")
    try:
        with forebay.open(sys.argv[1], timeout=timeout) as stream:
            print("opened")
            for step in stream.follow(timeout=60):
                print("step", step.number)
    except forebay.ForebayError as error:
        print(type(error).__name__, error)
    print(f"{time.monotonic() - begun:.1f}")
"""
ADIOS2_READER = """
    import sys, adios2, forebay.adios2
    io = adios2.Adios().declare_io("reader")
    forebay.adios2.configure(io, sys.argv[1])
    print("ready")
    try:
        stream = adios2.Stream(io, "flow", "r")
    except Exception as error:
        print(error)
"""


@contextmanager
def waiting_reader(program: str, *arguments: str) -> Iterator[PythonProcess]:
    """A reader that has asked, and waits."""
    with PythonProcess(program, *arguments) as process:
        assert process.line() == "ready"
        process.wait_until_asleep()
        yield process


def told_by(reader: PythonProcess, refusal: Callable[[], object]) -> str:
    """What the reader prints then. Nobody keeps a refusal: it is repeated until the reader has come to wait."""
    output = reader._process.stdout
    assert output is not None
    while True:
        refusal()
        if select.select([output], [], [], 0.5)[0]:
            return reader.line()


def writing_io(address: str, **parameters: str | int) -> adios2.IO:
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, address)
    io.set_parameters({name: str(value) for name, value in parameters.items()})
    return io


def refuse(address: str, **parameters: str | int) -> None:
    """Opens with a parameter that nobody knows."""
    with pytest.raises(ValueError, match="QueueLimt"):
        writing_io(address, QueueLimt="2", **parameters).open("flow", adios2.bindings.Mode.Write)


@pytest.mark.parametrize("program", [READER, ADIOS2_READER], ids=["python", "adios2"])
def test_reader_that_waits_for_the_stream_reads_why_there_will_be_none(reservation: str, program: str) -> None:
    address = f"{reservation}/flow"
    with waiting_reader(program, address, "60") as reader:
        told = told_by(reader, lambda: refuse(address))
    assert "the writer of this stream was refused: no engine of ADIOS2 has these parameters: QueueLimt" in told
    assert "did you mean QueueLimit?" in told
    assert f"stream {address}" in told


def test_options_of_python_that_are_wrong_are_told_too(reservation: str) -> None:
    address = f"{reservation}/flow"
    for options in ({"retantion": "last:2"}, {"retention": "last"}, {"ranks": 2}):
        with waiting_reader(READER, address, "60") as reader:
            errors: list[str] = []

            def open_wrongly(
                options: dict[str, str | int] = options,  # type: ignore[assignment]
                errors: list[str] = errors,
            ) -> None:
                with pytest.raises(forebay.InvalidArgumentError) as raised:
                    forebay.open(address, "w", **options)  # type: ignore[call-overload]
                errors.append(raised.value.what)

            told = told_by(reader, open_wrongly)
            assert told.startswith("RefusedError the writer of this stream was refused: ")
            assert errors[0] in told
            assert float(reader.line()) < 30


def test_reader_that_waits_for_ever_goes_on_waiting(reservation: str) -> None:
    address = f"{reservation}/flow"
    with waiting_reader(READER, address, "None") as reader:
        refuse(address)
        with forebay.open(address, "w") as stream:
            stream.write("x", 1)
        assert reader.line() == "opened"
        assert reader.line() == "step 0"


def test_reader_of_a_run_is_told_of_that_runs_writers_only(reservation: str) -> None:
    address = f"{reservation}/flow"
    of_night = READER.replace("timeout=timeout)", 'timeout=timeout, run="night")')
    with waiting_reader(of_night, address, "60") as reader:
        for run in ("day", None):
            with pytest.raises(forebay.InvalidArgumentError, match="retantion"):
                forebay.open(address, "w", run=run, retantion="last:2")  # type: ignore[call-overload]
        told = told_by(reader, lambda: refuse(address, Run="night"))
    assert told.startswith("RefusedError ")
    assert "QueueLimt" in told


def test_reader_of_a_stream_without_a_group_is_told_and_may_ask_again(reservation: str) -> None:
    address = f"{reservation}/flow"
    # The stream comes into being with a group that does not form.
    with pytest.raises(forebay.DeadlineExceededError, match="rank 1 of 2"):
        forebay.open(address, "w", rank=0, ranks=2, timeout=0.1)
    with forebay.open(address) as source, source.follow(timeout=seconds(30)) as follower:
        refuse(address)
        with pytest.raises(forebay.RefusedError, match="QueueLimt"):
            next(follower)
        # A refusal by the server counts as well.
        with pytest.raises(forebay.DeadlineExceededError):
            forebay.open(address, "w", rank=0, ranks=2, timeout=0.1)
        with pytest.raises(forebay.RefusedError, match="rank 1 of 2 did not open the stream"):
            next(follower)
        with forebay.open(address, "w") as stream:
            refuse(address)
            stream.write("x", 1)
            assert next(follower).number == 0
            refuse(address)
            stream.write("x", 2)
            assert next(follower).number == 1


def test_refused_restart_is_a_notice_within_the_grace_time(reservation: str) -> None:
    address = f"{reservation}/flow"
    notices: list[forebay.Notice] = []
    stream = forebay.open(address, "w", grace=60)
    stream.write("x", 1)
    with forebay.open(address) as source, source.follow(on_notice=notices.append, timeout=0.2) as follower:
        next(follower)
        stream.abandon()
        with pytest.raises(forebay.StepTimeoutError):
            next(follower)
        refuse(address)
        with pytest.raises(forebay.StepTimeoutError):
            next(follower)
        assert len(notices) == 2
        assert notices[1].text.startswith("a restart was refused: no engine of ADIOS2 has these parameters: QueueLimt")
        assert notices[1].text.endswith("readers wait up to 60 s for a restart (GraceSecs)")
        with forebay.open(address, "a") as again:
            again.write("x", 2)
            follower.timeout = 30
            assert next(follower).number == 1


def test_other_ranks_of_the_group_are_told(reservation: str) -> None:
    address = f"{reservation}/flow"
    program = """
        import sys, forebay
        print("ready")
        try:
            forebay.open(sys.argv[1], "w", rank=0, ranks=2, group=sys.argv[2])
        except forebay.ForebayError as error:
            print(type(error).__name__, error)
    """
    with waiting_reader(program, address, "job.7") as rank:
        refuse(address, Rank=1, Ranks=2, Group="job.8")
        refuse(address, Rank=1, Ranks=3, Group="job.7")
        refuse(address, Rank=0, Ranks=2, Group="job.7")
        told = told_by(rank, lambda: refuse(address, Rank=1, Ranks=2, Group="job.7"))
        assert told.startswith("RefusedError rank 1 of this group was refused: no engine of ADIOS2")


def test_stranger_cannot_refuse_for_others(reservation: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    address = f"{reservation}/flow"
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(12345)
        os.setuid(12345)
        status = 1
        try:
            _core.report_refused_writer(address, "no", run="", server=server_place(None))
        except forebay.PermissionDeniedError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


WAITS_FOR_WRITER = """
    import sys, forebay
    print("ready")
    try:
        forebay.open(sys.argv[1], wait_for_writer=True, timeout=60)
    except forebay.ForebayError as error:
        print(type(error).__name__, error)
"""


def test_reader_that_waits_for_a_new_writer_of_a_finished_stream_is_told(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        stream.write("x", 1)
    with waiting_reader(WAITS_FOR_WRITER, address) as reader:
        told = told_by(reader, lambda: refuse(address))
        assert told.startswith("RefusedError the writer of this stream was refused: no engine of ADIOS2")


def test_struct_variables_are_refused_before_the_stream_is_opened(reservation: str) -> None:
    what = "variable particles is of struct type, which ADIOS2 does not hand to plugin engines"
    address = f"{reservation}/flow"

    def write() -> None:
        done = subprocess.run(
            [built("struct_program")],
            env=run_environment(FOREBAY_STREAM=address),
            capture_output=True,
            text=True,
            timeout=seconds(60),
            check=False,
        )
        assert what in done.stdout, done.stderr
        assert done.returncode == 1

    with waiting_reader(READER, address, "60") as reader:
        assert what in told_by(reader, write)
