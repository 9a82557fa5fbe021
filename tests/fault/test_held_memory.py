# SPDX-License-Identifier: Apache-2.0
"""Writers that go on to look at arrays that they allocated, when the server or they themselves die."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.processes import PythonProcess

Instances = Callable[..., Instance]

ADDRESS = "r/flow"

HOLDING_WRITER = """
    import sys, forebay, numpy
    stream = forebay.open(sys.argv[1], "w", retention="last:1")
    with stream.step() as step:
        held = step.allocate("T", (500_000,))
        held[...] = 7
    print("ended")
    for number in range(1, 40):
        with stream.step() as step:
            step["T"] = numpy.full(500_000, float(number))
    print("intact" if (held == 7).all() else f"overwritten: {numpy.unique(held)}")
    sys.stdin.readline()
    del held
    print("let go")
    sys.stdin.readline()
"""


def pins(instance: Instance) -> dict[int, int]:
    """Of each kept step."""
    return {step.number: step.pins for step in instance.steps(ADDRESS)}


@pytest.mark.parametrize(
    "places",
    [
        ["server.part.received"],
        ["server.part.pinned"],
        ["server.commit.before_append"],
        ["server.commit.after_append"],
        ["server.commit.before_answer"],
        ["server.part.pinned", "server.commit.after_append"],
    ],
)
# crash-matrix: holding allocated memory | server, before the pin, at `server.part.received` | the array, which stays as it was, pinned once, until the program lets go of it
# crash-matrix: holding allocated memory | server, with the pin and no step, at `server.part.pinned` | the array, which stays as it was, pinned once, until the program lets go of it
# crash-matrix: holding allocated memory | server, before the commit record, at `server.commit.before_append` | the array, which stays as it was, pinned once, until the program lets go of it
# crash-matrix: holding allocated memory | server, after the commit record, at `server.commit.after_append` | the array, which stays as it was, pinned once, until the program lets go of it
# crash-matrix: holding allocated memory | server, before the answer, at `server.commit.before_answer` | the array, which stays as it was, pinned once, until the program lets go of it
# crash-matrix: holding allocated memory | server, with the pin and no step, and the next one after the commit record | the array, which stays as it was, pinned once, until the program lets go of it
def test_an_array_outlasts_the_server(instances: Instances, monkeypatch: pytest.MonkeyPatch, places: list[str]) -> None:
    """Servers die while they commit the array's step; dozens of steps later, the array is what was computed."""
    instance = instances()
    instance.create("r", "64MiB")
    instance.restart(f"{places[0]}=kill")
    for name, value in instance.environment.items():
        monkeypatch.setenv(name, value)
    with PythonProcess(HOLDING_WRITER, ADDRESS) as writer:
        for place in places[1:]:
            assert instance.wait() == -signal.SIGKILL
            instance.start(f"{place}=kill")
        assert instance.wait() == -signal.SIGKILL
        instance.start()
        assert writer.line() == "ended"
        assert writer.line() == "intact"
        assert pins(instance) == {0: 1, 39: 0}
        instance.restart()
        assert pins(instance)[0] == 1
        writer.tell()
        assert writer.line() == "let go"
        until(lambda: pins(instance) == {39: 0}, "the array's pin is gone")
    assert instance.problems() == []


# crash-matrix: holding allocated memory | the writer, killed | its steps' space is free
def test_a_killed_writer_lets_go_of_its_arrays(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pin ends with it, and retention drops the step."""
    for name, value in instance.environment.items():
        monkeypatch.setenv(name, value)
    with PythonProcess(HOLDING_WRITER, ADDRESS) as writer:
        assert writer.line() == "ended"
        assert writer.line() == "intact"
        assert pins(instance) == {0: 1, 39: 0}
        writer.send(signal.SIGKILL)
        until(lambda: pins(instance) == {39: 0}, "the dead writer's pin is gone")
    assert instance.problems() == []
