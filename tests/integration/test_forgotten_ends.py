# SPDX-License-Identifier: Apache-2.0
"""Programs that forget to close a stream or to end a step are told; those that close while something else fails are not
punished for it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import forebay
from tests.support.processes import PythonProcess
from tests.support.time_limits import seconds

ADIOS2 = """
    import sys, adios2, forebay.adios2
    io = adios2.Adios().declare_io("writer")
    forebay.adios2.configure(io, sys.argv[1], grace_secs=0)
    engine = io.open("flow", adios2.bindings.Mode.Write)
    variable = io.define_variable("x", __import__("numpy").zeros(1), [1], [0], [1])
"""
NATIVE = """
    import sys, forebay
    stream = forebay.open(sys.argv[1], "w", grace=0)
"""
STEP = {
    ADIOS2: "engine.begin_step(); engine.put(variable, __import__('numpy').ones(1), adios2.bindings.Mode.Sync)",
    NATIVE: "step = stream.step(); step['x'] = 1",
}
END = {ADIOS2: "engine.end_step()", NATIVE: "step.end()"}
CLOSE = {ADIOS2: "engine.close()", NATIVE: "stream.close()"}


def run(program: str, address: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", program, address],
        capture_output=True,
        text=True,
        timeout=seconds(60),
        check=False,
    )


@pytest.mark.parametrize("face", [ADIOS2, NATIVE], ids=["adios2", "native"])
@pytest.mark.parametrize("hold", ["", "import builtins; builtins.held = globals()"], ids=["", "held to the end"])
def test_program_that_forgets_the_end_is_told(reservation: str, face: str, hold: str) -> None:
    address = f"{reservation}/flow"
    start = textwrap.dedent(face) + hold + "\n"
    whole = run("\n".join((start, STEP[face], END[face], CLOSE[face])), address)
    assert (whole.returncode, whole.stderr) == (0, "")
    for lines, lost in (((STEP[face], END[face]), False), ((STEP[face], END[face], STEP[face]), True)):
        forgetful = run("\n".join((start, *lines)), address)
        assert forgetful.returncode == 0
        told = [line for line in forgetful.stderr.splitlines() if line.startswith("Forebay")]
        assert len(told) == 1, forgetful.stderr
        assert f"stream {address} was not closed" in told[0]
        assert ("its step 1 was begun, not ended, and is lost" in told[0]) == lost
    with forebay.Admin() as admin:
        assert [summary.number for summary in admin.steps(address)] == [0]


def test_native_writer_that_is_let_go_of_is_a_resource_warning(reservation: str) -> None:
    def forget() -> None:
        stream = forebay.open(f"{reservation}/flow", "w")
        stream.step()

    with pytest.warns(ResourceWarning, match=f"stream {reservation}/flow was not closed; its step 0 was begun"):
        forget()


def test_abandoned_writer_is_no_mistake(reservation: str) -> None:
    program = textwrap.dedent(NATIVE) + "stream.abandon()\n"
    assert run(program, f"{reservation}/flow").stderr == ""


# What each prints is the status of its stream, and the steps in it.
CLOSES = {
    "in an except block that was entered before the step began": (
        """
        try:
            {}["missing"]
        except KeyError:
            with adios2.Stream(io, "flow", "w") as stream:
                stream.begin_step()
                stream.write("x", 1)
        """,
        ("ended", 1),
    ),
    "in an except block that was entered in the step": (
        """
        stream = adios2.Stream(io, "flow", "w")
        stream.begin_step()
        stream.write("x", 1)
        try:
            {}["missing"]
        except KeyError:
            stream.close()
        """,
        ("interrupted", 0),
    ),
    "by an exception that leaves the with block inside another's handler": (
        """
        try:
            try:
                {}["missing"]
            except KeyError:
                with adios2.Stream(io, "flow", "w") as stream:
                    stream.begin_step()
                    stream.write("x", 1)
                    1 / 0
        except ZeroDivisionError:
            pass
        """,
        ("interrupted", 0),
    ),
    "in a finally block after a failed step": (
        """
        stream = adios2.Stream(io, "flow", "w")
        try:
            try:
                stream.begin_step()
                stream.write("x", 1)
                1 / 0
            finally:
                stream.close()
        except ZeroDivisionError:
            pass
        """,
        ("interrupted", 0),
    ),
    "between steps, in an except block": (
        """
        stream = adios2.Stream(io, "flow", "w")
        stream.begin_step()
        stream.write("x", 1)
        stream.end_step()
        try:
            {}["missing"]
        except KeyError:
            stream.close()
        """,
        ("ended", 1),
    ),
}


@pytest.mark.parametrize("case", CLOSES)
def test_close_tells_its_own_failures_from_others(reservation: str, case: str) -> None:
    program, expected = CLOSES[case]
    start = textwrap.dedent(
        """
        import sys, adios2, forebay.adios2
        io = adios2.Adios().declare_io("writer")
        forebay.adios2.configure(io, sys.argv[1], grace_secs=0)
        """
    )
    done = run(start + textwrap.dedent(program), f"{reservation}/flow")
    assert done.returncode == 0, done.stderr
    with forebay.Admin() as admin:
        assert (admin.stream(f"{reservation}/flow").status.value, len(admin.steps(f"{reservation}/flow"))) == expected


@pytest.mark.parametrize(
    "wait",
    [
        "engine.begin_step(adios2.bindings.StepMode.Read, 60.0)",
        "while True: engine.begin_step(adios2.bindings.StepMode.Read, 0.0)",
    ],
)
def test_python_ends_in_order_while_a_daemon_thread_waits_for_a_step(reservation: str, wait: str) -> None:
    with forebay.open(f"{reservation}/flow", "w"):
        program = """
            import sys, threading, adios2, forebay.adios2
            io = adios2.Adios().declare_io("reader")
            forebay.adios2.configure(io, sys.argv[1])
            engine = io.open("flow", adios2.bindings.Mode.Read)
            begun = threading.Event()
            def follow():
                begun.set()
                {wait}
            threading.Thread(target=follow, daemon=True).start()
            begun.wait()
            import time
            time.sleep(0.05)  # so that it most likely waits; without it the claim holds as well
        """.replace("{wait}", wait)
        with PythonProcess(program, f"{reservation}/flow") as process:
            status, _, errors = process.finish(timeout=seconds(60))
        assert status == 0, errors
