# SPDX-License-Identifier: Apache-2.0
"""Space of a lost group that somebody can still write to: a child of its process, or a rank that was only asleep.

The new group keeps as much as the reservation holds, so that it asks for that space before each step. When the last
who could write there has gone it gets it, which shows that it was wanted all the time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import forebay
from tests.fault.instance import Instance
from tests.support.load import LoadProcess, until, write
from tests.support.processes import PythonProcess

ADDRESS = "r/flow"
#: Four segments and more of the small reservation's fifteen.
LOST_ELEMENTS = 500_000
KEEPING_ALL_IT_CAN: dict[str, Any] = {"mode": "a", "when_full": "drop-oldest", "variables": 1, "elements": 100_000}
#: Of those; more than the reservation holds.
ROUND = 30


@pytest.fixture
def small(instances: Callable[..., Instance], monkeypatch: pytest.MonkeyPatch) -> Instance:
    """A running instance with a reservation "r" of 16 MiB, in segments of 1 MiB, which this process finds."""
    made = instances()
    made.create("r", "16MiB")
    monkeypatch.setenv("FOREBAY_ROOT", str(made.root))
    return made


def go_round(writer: LoadProcess) -> int:
    """All that is kept is written anew; returns how many steps that is."""
    for _ in range(ROUND):
        writer.ask("step", "committed")
    newest = writer.named("committed")[-1]["step"]
    with forebay.Admin() as admin:
        kept = [step.number for step in admin.steps(ADDRESS)]
    assert kept == list(range(newest - len(kept) + 1, newest + 1))
    assert len(kept) < ROUND
    return len(kept)


def check(instance: Instance, incarnation: int) -> None:
    """Each kept step is whole, and of that group."""
    assert set(instance.check(ADDRESS).values()) == {incarnation}


def writable_segments(pid: int) -> set[str]:
    """Those that a process has open for writing."""
    found = set()
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        path = os.path.realpath(f"/proc/{pid}/fd/{descriptor}")
        if "/segments/" in path:
            found.add(path)
    return found


FORKING_WRITER = """
    import os, sys, forebay, numpy
    stream = forebay.open(sys.argv[1], mode="a")
    with stream.step() as step:
        step["T"] = numpy.arange(int(sys.argv[2]), dtype="u8")
    child = os.fork()
    if child:
        print(child)
        os.kill(os.getpid(), 9)
    for line in sys.stdin:
        for descriptor in os.listdir("/proc/self/fd"):
            path = os.path.realpath(f"/proc/self/fd/{descriptor}")
            if "/segments/" in path:
                os.pwrite(int(descriptor), b"scribble" * (os.path.getsize(path) // 8), 0)
        print("scribbled")
"""


def scribble(child: PythonProcess) -> None:
    """Over all that it can."""
    child.tell()
    assert child.line() == "scribbled"


# crash-matrix: losing a rank | a writer whose forked child keeps its socket and segments | the group is lost at once; what the child spoils of its step is noticed
def test_a_forked_child_does_not_keep_its_parents_lease(small: Instance) -> None:
    """The writer is killed; its child holds the socket and the segments, but the group is lost at once."""
    with PythonProcess(FORKING_WRITER, ADDRESS, str(LOST_ELEMENTS)) as old:
        child = int(old.line())
        try:
            until(lambda: small.stream(ADDRESS).status == "interrupted", "the group is lost with its process")
            assert len(writable_segments(child)) >= 4
            (writer,) = small.group(ADDRESS, 1, mode="a", steps=3)
            writer.succeed()
            scribble(old)
        finally:
            os.kill(child, signal.SIGKILL)
    with forebay.open(ADDRESS) as stream:
        for number in range(1, 4):
            stream[number].verify()
        with pytest.raises(forebay.CorruptError):
            stream[0].verify()
    (problem,) = small.problems()
    assert problem.where == f"stream {ADDRESS}"
    assert "step 0" in problem.what


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
# crash-matrix: losing a rank | a writer whose forked child can still write to its segments, in a reservation that is full; the server may be killed meanwhile | the child spoils nothing that is written after it; with its end its space is written again
def test_a_forked_child_spoils_nothing_in_a_full_reservation(small: Instance, restarted: bool) -> None:
    """It scribbles over all that it can while steps go round."""
    with PythonProcess(FORKING_WRITER, ADDRESS, str(LOST_ELEMENTS)) as old:
        child = int(old.line())
        try:
            until(lambda: small.stream(ADDRESS).status == "interrupted", "the group is lost with its process")
            (writer,) = small.group(ADDRESS, 1, commands=True, **KEEPING_ALL_IT_CAN)
            for _ in range(2):
                kept = go_round(writer)
                scribble(old)
                check(small, 2)
                if restarted:
                    small.restart()
            kept = go_round(writer)
            scribble(old)
            check(small, 2)
        finally:
            os.kill(child, signal.SIGKILL)
    assert go_round(writer) >= kept + 4
    check(small, 2)
    assert small.problems() == []


@pytest.mark.parametrize("restarted", [False, True], ids=["", "restarted"])
# crash-matrix: writing | a rank, stopped between two writes of one block, at `client.put.before_write`, while its group is lost and another fills the reservation; the server may be killed meanwhile | when it goes on it spoils nothing and its step is refused; with its end its space is written again
def test_a_rank_that_goes_on_in_the_middle_of_a_block_spoils_nothing(small: Instance, restarted: bool) -> None:
    """What it still has to write goes where it was to go: nobody else has got that space."""
    environment = {**small.environment, "FOREBAY_FAIL_POINT": "client.put.before_write:3=stop"}
    group: dict[str, Any] = {"ranks": 2, "variables": 1, "elements": LOST_ELEMENTS, "commands": True}
    with write(environment, ADDRESS, rank=0, **group) as old:
        lost = small.write(ADDRESS, rank=1, **group)
        for writer in (old, lost):
            writer.wait_for("opened")
            writer.ask("begin", "begun")
        old.command("put")
        os.waitid(os.P_PID, old.pid, os.WSTOPPED | os.WNOWAIT)
        lost.kill()
        until(lambda: small.stream(ADDRESS).status == "interrupted", "the group is lost with one rank")
        (new,) = small.group(ADDRESS, 1, commands=True, **KEEPING_ALL_IT_CAN)
        kept = go_round(new)
        if restarted:
            small.restart()
            kept = go_round(new)
        old.send(signal.SIGCONT)
        old.wait_for("put")
        check(small, 2)
        assert old.ask("end", "error")["code"] in ("fenced", "group_broken")
        assert go_round(new) == kept
        check(small, 2)
        old.kill()
    assert go_round(new) >= kept + 4
    check(small, 2)
    assert small.problems() == []
