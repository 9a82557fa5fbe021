# SPDX-License-Identifier: Apache-2.0
"""Why a writer was lost - it left without closing, an exception ended it, it was killed - and who reads it."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import adios2
import numpy as np
import pytest

import forebay
import forebay.adios2
from tests.support.processes import PythonProcess
from tests.support.staging_server import StagingServer

LEFT = "it left without closing the stream"
KILLED = "its process was killed, crashed or ran out of memory"

# Each writes a step, says so, and ends when it is told to.
PYTHON = """
    import os, sys, forebay
    stream = forebay.open(sys.argv[1], "w", rank=0, ranks=int(sys.argv[2]), grace=60)
    stream.write("x", 1)
    print("written")
    sys.stdin.readline()
"""
PYTHON_ENDS = {
    "exit": ("sys.exit(0)", LEFT),
    "end of the program": ("pass", LEFT),
    "abandoned": ("stream.abandon(); sys.stdin.readline()", LEFT),
    "exception in a step": (
        """
    with stream:
        with stream.step() as step:
            step["x"] = 2
            raise ValueError("no such\\nfield \\x1b[31m")
    """,
        "an exception ended it in step 1: ValueError: no such field  [31m",
    ),
    "exception in a step, and nothing closes": (
        """
    with stream.step() as step:
        step.write("x", 2)
        1 / 0
    """,
        "an exception ended it in step 1: ZeroDivisionError: division by zero",
    ),
    "exception between steps": (
        """
    with stream:
        raise KeyError("T")
    """,
        "an exception ended it: KeyError: 'T'",
    ),
    "exception that the program survives": (
        """
    try:
        with stream.step() as step:
            raise ValueError("once")
    except ValueError:
        stream.write("x", 2)
    """,
        LEFT,
    ),
    "killed": ("os.kill(os.getpid(), 9)", KILLED),
    "crashed": ("os.abort()", KILLED),
}


def interruption_of(address: str, follower: forebay.Follower, notices: list[forebay.Notice]) -> str:
    """What a waiting reader is told; the same text stands in what is known of the stream, without the grace."""
    with pytest.raises(forebay.StepTimeoutError):
        list(follower)
    (told,) = notices
    assert told.status == forebay.StreamStatus.INTERRUPTED
    text, _, grace = told.text.partition("; ")
    assert grace == "readers wait up to 60 s for a restart (GraceSecs)"
    with forebay.Admin() as admin:
        info = admin.stream(address)
    assert info.status == forebay.StreamStatus.INTERRUPTED
    assert info.status_text == text
    return text


# crash-matrix: losing a rank | a writer that exits without closing, ends by an exception, or is killed | readers, the other ranks and the next writer read which of the three it was
@pytest.mark.parametrize("end", PYTHON_ENDS)
def test_reason_is_told_to_all_who_are_concerned(server: StagingServer, reservation: str, end: str) -> None:
    address = f"{reservation}/flow"
    statements, reason = PYTHON_ENDS[end]
    notices: list[forebay.Notice] = []
    with PythonProcess(PYTHON + "    " + statements.strip() + "\n", address, "1") as process:
        assert process.line() == "written"
        with forebay.open(address) as stream, stream.follow(on_notice=notices.append, timeout=5) as follower:
            next(follower)
            process.tell()
            text = interruption_of(address, follower, notices)
            assert text == f"rank 0 of 1 (pid {process.pid}) was lost: {reason}"
    assert f"stream {address}: interrupted: {text}; readers wait up to 60 s for a restart (GraceSecs)" in server.log()
    shown = subprocess.run(
        [sys.executable, "-m", "forebay", "watch", "--once", address], capture_output=True, text=True, check=True
    ).stdout
    assert f"({text})" in shown
    with forebay.open(address, "a") as again:
        assert again.interruption == text
        again.write("x", 3)
    with forebay.open(address, "a") as after:
        assert after.interruption == ""


def test_other_ranks_read_what_ended_one_of_them(reservation: str) -> None:
    address = f"{reservation}/flow"
    program = (
        PYTHON.replace('print("written")', "").replace('stream.write("x", 1)', 'print("open")')
        + """
    with stream, stream.step() as step:
        raise RuntimeError("the mesh is tangled")
    """
    )
    with (
        PythonProcess(program, address, "2") as process,
        forebay.open(address, "w", rank=1, ranks=2) as stream,
    ):
        assert process.line() == "open"
        process.tell()
        with pytest.raises(forebay.GroupBrokenError, match=r"in step 0: RuntimeError: the mesh is tangled"):
            stream.write("x", np.zeros(2), shape=(4,), start=(2,))
        stream.abandon()


ADIOS2 = """
    import os, sys, adios2, forebay.adios2
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, sys.argv[1], grace_secs=60)
    stream = adios2.Stream(io, "flow", "w")
    stream.begin_step()
    stream.write("x", 1)
    stream.end_step()
    print("written")
    sys.stdin.readline()
"""
ADIOS2_ENDS = {
    "exit": ("stream.begin_step(); sys.exit(0)", LEFT),
    "exception": (
        """
    with stream:
        stream.begin_step()
        stream.write("x", 2)
        raise ValueError("no such field")
    """,
        "an exception ended it in step 1: ValueError: no such field",
    ),
    "killed": ("stream.begin_step(); os.kill(os.getpid(), 9)", KILLED),
}


@pytest.mark.parametrize("end", ADIOS2_ENDS)
def test_adios2_programs_tell_the_three_apart(reservation: str, end: str, capfd: pytest.CaptureFixture[str]) -> None:
    address = f"{reservation}/flow"
    statements, reason = ADIOS2_ENDS[end]
    with PythonProcess(ADIOS2 + "    " + statements.strip() + "\n", address) as process:
        assert process.line() == "written"
        io = adios2.Adios().declare_io("reader")
        forebay.adios2.configure(io, address)
        with adios2.Stream(io, "flow", "r") as reader:
            assert reader.begin_step() == adios2.bindings.StepStatus.OK
            reader.end_step()
            process.tell()
            process.finish()
            assert reader.begin_step(timeout=0.2) == adios2.bindings.StepStatus.NotReady
        text = f"rank 0 of 1 (pid {process.pid}) was lost: {reason}"
    (told,) = (line for line in capfd.readouterr().err.splitlines() if "is interrupted" in line)
    assert told == (
        f"Forebay: stream {address} is interrupted: {text}; readers wait up to 60 s for a restart (GraceSecs)"
    )
    io = adios2.Adios().declare_io("again")
    forebay.adios2.configure(io, address)
    adios2.Stream(io, "flow", "a").close()
    (told,) = (line for line in capfd.readouterr().err.splitlines() if "continues" in line)
    assert told == (f"Forebay: stream {address} continues; the group that wrote it before was interrupted: {text}")


def test_a_stream_is_not_whole_where_no_step_could_begin_any_more(reservation: str) -> None:
    """Also where ADIOS2's own `with` closes it on the way out."""
    address = f"{reservation}/flow"
    fill = """
        import numpy
        with stream:
            while True:
                stream.begin_step()
                stream.write("T", numpy.zeros(1 << 20), (1 << 20,), (0,), (1 << 20,))
                stream.end_step()
    """
    with PythonProcess(ADIOS2 + textwrap.indent(textwrap.dedent(fill), "    "), address) as process:
        assert process.line() == "written"
        process.tell()
        process.finish()
    with forebay.Admin() as admin:
        info = admin.stream(address)
    assert info.status == forebay.StreamStatus.INTERRUPTED
    assert "an exception ended it" in info.status_text
    assert "Forebay, BeginStep of stream" in info.status_text


def test_forked_child_that_exits_says_nothing_for_its_parent(reservation: str, tmp_path: Path) -> None:
    address = f"{reservation}/flow"
    program = """
        import os, sys, forebay
        stream = forebay.open(sys.argv[1], "w")
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        stream.write("x", 1)
        stream.close()
    """
    with PythonProcess(program, address) as process:
        process.succeed()
    with forebay.Admin() as admin:
        assert admin.stream(address).status == forebay.StreamStatus.ENDED


def test_signal_that_ends_a_process_kills_it(reservation: str) -> None:
    address = f"{reservation}/flow"
    with PythonProcess(PYTHON, address, "1") as process:
        assert process.line() == "written"
        process.send(signal.SIGTERM)
        process.finish()
        with forebay.open(address) as stream:
            with pytest.raises(forebay.StepTimeoutError):
                list(stream.follow(timeout=0.2))
            assert stream.info.status_text.endswith(KILLED)
