# SPDX-License-Identifier: Apache-2.0
"""Readers that hold steps: stopped, killed, forked, or cut off by a restart of the server."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.fault.instance import Instance
from tests.support.load import LoadProcess, until
from tests.support.processes import PythonProcess
from tests.support.randomness import TEST_SEED

ADDRESS = "r/flow"
RECYCLING: dict[str, Any] = {
    "retention": "last:3",
    "elements": 60_000,
    "steps": 0,
}  # a few MiB go round in a small reservation


#: At least, of one of its steps.
STEP_BYTES = 60_000 * 8


def holding_reader(instance: Instance, steps: int = 3) -> LoadProcess:
    """A reader that has got so many steps and keeps their views."""
    reader = instance.follow(ADDRESS, start="oldest", hold=10, commands=True)
    reader.wait_for("opened")
    for _ in range(steps):
        reader.ask("next", "step")
    return reader


def write_on(writer: LoadProcess, steps: int) -> None:
    """Returns when the writer has committed so many more steps: the space of old ones has been written again."""
    done = max((event["step"] for event in writer.named("committed")), default=-1)
    writer.wait_for("committed", lambda event: event["step"] >= done + steps)


def expect_views_unchanged(reader: LoadProcess, steps: int) -> None:
    """Everything that it holds is still as it was read."""
    compared = reader.ask("compare", "compared")
    assert compared["steps"] == steps
    assert compared["views"] >= steps
    assert not reader.named("violation"), f"{reader}"


def pinned(instance: Instance) -> int:
    """Number of pins on the stream's kept steps."""
    return sum(step.pins for step in instance.steps(ADDRESS))


def used_bytes(instance: Instance) -> int:
    """Space that steps hold, withdrawn ones that somebody has pinned included."""
    with instance.admin() as admin:
        return admin.reservation("r").used_bytes


# crash-matrix: holding steps | a reader, stopped with views while hundreds of steps go by | its views as they were; the writer goes on
def test_a_stopped_reader_neither_slows_the_writer_nor_reads_newer_bytes(instance: Instance) -> None:
    """SIGSTOP with pins held, hundreds of steps go by, SIGCONT: the views show what they showed."""
    (writer,) = instance.group(ADDRESS, 1, **RECYCLING)
    reader = holding_reader(instance)
    reader.send(signal.SIGSTOP)
    write_on(writer, 300)
    reader.send(signal.SIGCONT)
    expect_views_unchanged(reader, 3)
    # It comes to what is kept now, and is told what it missed.
    step = reader.ask("next", "step")
    assert step["skipped"] > 0
    reader.ask("release", "released")
    writer.kill()
    assert pinned(instance) == 0
    assert instance.problems() == []


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("options", [{}, {"consumer": "archive", "ack": True}], ids=["unnamed", "named"])
# crash-matrix: holding steps | readers, without a name or consumers that retention does not wait for, stopped or killed amid the steps that they follow | the writer goes on, and is never without space
def test_a_writer_does_not_wait_for_readers_that_stand_still(
    instances: Callable[..., Instance], options: dict[str, Any], sent: signal.Signals
) -> None:
    """It writes several times what the reservation holds, and a wait for space would be an error to it."""
    instance = instances(flush_interval_ms=-1)  # nothing is durable, so that no drop has to be
    instance.create("r", "64MiB")
    (writer,) = instance.group(ADDRESS, 1, when_full="error", **RECYCLING)
    reader = instance.follow(ADDRESS, start="oldest", hold=8, **options)
    reader.wait_for("step", lambda event: event["step"] >= 10)
    reader.send(sent)
    write_on(writer, 300)
    if sent == signal.SIGSTOP:
        # It may have come further than the writer was heard of when it was stopped.
        assert not options or instance.stream(ADDRESS).consumers[0].lag_steps >= 250
        before = reader.count()
        reader.send(signal.SIGCONT)
        reader.wait_for("step", lambda event: event["skipped"] >= 250, after=before)
        write_on(writer, 10)
        reader.kill()
    assert not reader.named("violation"), f"{reader}"
    writer.kill()
    assert instance.problems() == []


@pytest.mark.parametrize(("elements", "first"), [(2_000, 2), (600_000, 1)], ids=["small", "large"])
# crash-matrix: committing a step | server, before a reader is given a large step, or a second one a small step, at `server.deliver.before_answer` | the step, which its writer has been told of
def test_a_writer_does_not_wait_for_readers_to_be_told(instance: Instance, elements: int, first: int) -> None:
    """At most one reader is told before the writer, of a small step; the others wait, however many there are."""
    instance.restart(f"server.deliver.before_answer:{first}=kill")
    writer = instance.write(ADDRESS, steps=1, readers=3, elements=elements)
    readers = [instance.follow(ADDRESS) for _ in range(3)]
    assert instance.wait() == -signal.SIGKILL
    writer.wait_for("committed")  # there is no server that could tell it now
    instance.start()
    writer.succeed()
    for reader in readers:
        reader.succeed()
        assert [event["step"] for event in reader.named("step")] == [0]


# crash-matrix: holding steps | readers, running or stopped, killed with views | their steps' space is free
def test_a_killed_reader_lets_go_of_its_pins(instance: Instance) -> None:
    """Named or not, killed while it runs or while it is stopped."""
    (writer,) = instance.group(ADDRESS, 1, **RECYCLING)
    readers = [holding_reader(instance), instance.follow(ADDRESS, consumer="render", hold=5, commands=True)]
    readers[1].ask("next", "step")
    readers[0].send(signal.SIGSTOP)
    write_on(writer, 20)
    assert pinned(instance) > 0
    for reader in readers:
        reader.kill()
    until(lambda: pinned(instance) == 0, "the killed readers' pins are gone")
    write_on(writer, 10)
    assert len(instance.steps(ADDRESS)) == 3
    writer.kill()
    assert instance.problems() == []


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
# crash-matrix: holding steps | server, killed or ended, twice, while views are held | the views as they were; the reader goes on
def test_views_outlast_a_restart_of_the_server(instance: Instance, sent: signal.Signals) -> None:
    """Before the reader comes back its steps are kept for it, and afterwards it holds them again."""
    (writer,) = instance.group(ADDRESS, 1, **RECYCLING)
    reader = holding_reader(instance)
    instance.stop(sent)
    instance.start()
    write_on(writer, 200)
    expect_views_unchanged(reader, 3)
    reader.ask("next", "step")
    write_on(writer, 200)
    expect_views_unchanged(reader, 4)
    # And over a second restart, now with the steps dropped by retention long ago.
    instance.stop(sent)
    instance.start()
    write_on(writer, 200)
    reader.ask("next", "step")
    expect_views_unchanged(reader, 5)
    reader.ask("release", "released")
    reader.kill()
    writer.kill()
    until(lambda: pinned(instance) == 0, "released pins are gone")
    assert instance.problems() == []


# crash-matrix: holding steps | server, and readers that never come back to the next one | their steps' space is free when they have died
def test_pins_of_a_reader_that_does_not_come_back_end_with_its_process(instance: Instance) -> None:
    """A reader that dies while the server is away, and one that dies after it is back, without a word to it."""
    (writer,) = instance.group(ADDRESS, 1, **RECYCLING)
    early, late = holding_reader(instance), holding_reader(instance)
    instance.kill()
    early.kill()
    instance.start()
    write_on(writer, 10)
    assert pinned(instance) > 0
    late.kill()
    until(lambda: pinned(instance) == 0, "the dead readers' pins are gone")
    write_on(writer, 10)
    assert len(instance.steps(ADDRESS)) == 3
    writer.kill()
    assert instance.problems() == []


def _scribbled(table: bytes) -> bytes:
    return random.Random(TEST_SEED).randbytes(len(table))


def _doubled(table: bytes) -> bytes:
    """Each slot twice."""
    return b"".join(table[at : at + 72] * 2 for at in range(0, len(table) // 2, 72))


@pytest.mark.parametrize(
    "damage", [_scribbled, _doubled, lambda table: table[:100]], ids=["scribbled", "doubled", "cut"]
)
# crash-matrix: the table of pins is damaged | found when the server starts | all steps; writing goes on, and no step is held for longer than its reader lives
def test_a_damaged_table_of_pins_is_no_obstacle(instance: Instance, damage: Callable[[bytes], bytes]) -> None:
    (writer,) = instance.group(ADDRESS, 1, **RECYCLING)
    reader = holding_reader(instance)
    instance.kill()
    path = instance.root / "pins"
    path.write_bytes(damage(path.read_bytes()))
    instance.start()
    write_on(writer, 50)
    reader.kill()
    until(lambda: pinned(instance) == 0, "nothing is held any more")
    write_on(writer, 10)
    assert len(instance.steps(ADDRESS)) == 3
    writer.kill()
    instance.restart()
    assert instance.problems() == []


READER_THAT_GOES_ON = """
    import sys, forebay
    stream = forebay.open(sys.argv[1])
    follower = stream.follow(start="oldest")
    step = next(follower)
    view = step["v0"][...]
    print("holds")
    sys.stdin.readline()
    del step, view
    follower.close()
    stream.close()
    print("closed")
    sys.stdin.readline()
"""


@pytest.mark.parametrize("when", ["before the server dies", "while it is away", "after it is back"])
# crash-matrix: holding steps | server, before it hears that a reader has closed, in a process that lives on | the steps' space is free soon after the restart
def test_a_reader_that_is_closed_in_a_process_that_goes_on_lets_go(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Whatever of its words is lost with the server: closed is closed, and the process need not end for it."""
    (writer,) = instance.group(ADDRESS, 1, **RECYCLING)
    for name, value in instance.environment.items():
        monkeypatch.setenv(name, value)
    with PythonProcess(READER_THAT_GOES_ON, ADDRESS) as reader:
        assert reader.line() == "holds"
        assert pinned(instance) == 1
        if when == "after it is back":
            instance.restart()
            assert pinned(instance) == 1
        else:
            # Stopped, the server reads nothing: what it is told now it will never know.
            instance.send(signal.SIGSTOP)
            if when == "while it is away":
                instance.kill()
        reader.tell()
        assert reader.line() == "closed"
        if when != "after it is back":
            instance.restart()
        until(lambda: pinned(instance) == 0, "the closed reader's pin is gone")
        write_on(writer, 10)
        assert len(instance.steps(ADDRESS)) == 3
    writer.kill()
    assert instance.problems() == []


# crash-matrix: holding steps | server, while a reader holds withdrawn steps | the views as they were, until they are let go
def test_withdrawn_steps_stay_as_they_were_for_who_holds_them(instance: Instance) -> None:
    """A new group appends after an earlier step and writes the numbers again; the server is restarted, too."""
    (writer,) = instance.group(ADDRESS, 1, steps=3, elements=200_000)
    writer.succeed()
    reader = holding_reader(instance)
    (again,) = instance.group(ADDRESS, 1, mode="a", append_after=0, retention="last:2", elements=200_000, steps=0)
    write_on(again, 50)
    expect_views_unchanged(reader, 3)
    instance.restart()
    write_on(again, 50)
    expect_views_unchanged(reader, 3)
    again.kill()
    until(lambda: instance.stream(ADDRESS).status == "interrupted", "the writer is gone")
    held_bytes = used_bytes(instance)
    # A reader that has not called since the restart is heard when it lets go, also of what was withdrawn.
    reader.ask("release", "released")
    until(lambda: pinned(instance) == 0, "released pins are gone")
    until(lambda: used_bytes(instance) < held_bytes - 2 * STEP_BYTES, "withdrawn steps are gone")
    assert instance.problems() == []


FORKING_READER = """
    import os, sys, forebay, numpy
    stream = forebay.open(sys.argv[1])
    step = next(iter(stream.follow(start="oldest")))
    view = step["v0"][...]
    assert not view.flags.owndata
    before = view.copy()
    child = os.fork()
    if child:
        print(child, step.number)
        os.kill(os.getpid(), 9)
    for line in sys.stdin:
        print("same" if numpy.array_equal(view, before) else "changed")
"""


def check_what_a_forked_child_holds(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, program: str, rounds: int, resumes: bool
) -> None:
    """Steps come and go and the server restarts, while the killed reader's child still looks at a step."""
    (writer,) = instance.group(ADDRESS, 1, **RECYCLING)
    for name, value in instance.environment.items():
        monkeypatch.setenv(name, value)
    with PythonProcess(program, ADDRESS) as reader:
        child, step = map(int, reader.line().split())
        try:
            if resumes:
                instance.restart()
                reader.send(signal.SIGUSR1)
                assert reader.line() == "resumed"
            for _ in range(rounds):
                write_on(writer, 200)
                reader.tell()
                assert reader.line() == "same"
                assert step in [kept.number for kept in instance.steps(ADDRESS)]
                instance.restart()
        finally:
            os.kill(child, signal.SIGKILL)
    until(lambda: pinned(instance) == 0, "the child's end frees the step")
    writer.kill()
    assert instance.problems() == []


# crash-matrix: holding steps | a reader that has forked, and the server | the child's views as they were, until it ends
def test_a_forked_child_keeps_what_its_parent_held(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader is killed, but a child that it forked still looks at the step, also over restarts of the server."""
    check_what_a_forked_child_holds(instance, monkeypatch, FORKING_READER, rounds=3, resumes=False)


FORKING_READER_THAT_RESUMES = """
    import os, signal, sys, forebay, numpy
    steps = forebay.open(sys.argv[1]).follow(start="oldest")
    step = next(steps)
    view = step["v0"][...]
    before = view.copy()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    child = os.fork()
    if child:
        print(child, step.number)
        signal.sigwait([signal.SIGUSR1])
        next(steps)
        print("resumed")
        os.kill(os.getpid(), 9)
    for line in sys.stdin:
        print("same" if numpy.array_equal(view, before) else "changed")
"""


# crash-matrix: holding steps | server, then a reader that has come back to it on a connection which its forked child does not have | the child's views as they were, until it ends
def test_a_forked_child_keeps_what_its_parent_held_on_another_connection(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader goes on after a restart of the server, and is killed: its new connection is not the child's."""
    check_what_a_forked_child_holds(instance, monkeypatch, FORKING_READER_THAT_RESUMES, rounds=2, resumes=True)
