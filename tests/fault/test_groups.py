# SPDX-License-Identifier: Apache-2.0
"""Writer groups that do not come together, or come twice."""

from __future__ import annotations

import signal

from tests.fault.instance import Instance


def test_a_missing_rank_is_named(instance: Instance) -> None:
    """Every rank that came learns which did not, and where the number of ranks came from."""
    writers = [instance.write("r/flow", rank=rank, ranks=4, open_timeout_ms=5000) for rank in (0, 3)]
    for writer in writers:
        error = writer.fail("timeout")
        assert "rank 1, 2 of 4" in error["what"]
        assert "--ranks" in error["what"]
    assert instance.stream("r/flow").status == "waiting"
    for writer in instance.group("r/flow", 4, steps=2):
        writer.succeed()


def test_two_processes_of_one_rank_fail_all(instance: Instance) -> None:
    """Duplicate ranks fail every open, with the pids."""
    first = instance.write("r/flow", rank=0, ranks=3)
    instance.follow("r/flow").wait_for("opened")  # the first rank's asking made the stream
    second = instance.write("r/flow", rank=1, ranks=3)
    third = instance.write("r/flow", rank=1, ranks=3)
    for writer in (first, second, third):
        error = writer.fail("invalid_argument")
        assert "two processes are rank 1 of 3" in error["what"]
        assert str(second.pid) in error["what"]
        assert str(third.pid) in error["what"]


def test_ranks_that_differ_in_their_number_fail_all(instance: Instance) -> None:
    """One says 2, another 3."""
    first = instance.write("r/flow", rank=0, ranks=2)
    second = instance.write("r/flow", rank=1, ranks=3)
    for writer in (first, second):
        assert "do not agree on their number" in writer.fail("invalid_argument")["what"]
    for writer in instance.group("r/flow", 2, steps=1):
        writer.succeed()


def test_a_second_group_is_turned_away(instance: Instance) -> None:
    """While one group writes, another is told who does; while one forms, another is told that too."""
    forming = instance.write("r/flow", rank=0, ranks=2, group="one", commands=True)
    instance.follow("r/flow").wait_for("opened")  # the first rank's asking made the stream
    error = instance.write("r/flow", rank=1, ranks=2, group="two").fail("busy")
    assert '"one"' in error["what"]
    assert '"two"' in error["what"]
    last = instance.write("r/flow", rank=1, ranks=2, group="one", commands=True)
    forming.wait_for("opened")
    last.wait_for("opened")
    error = instance.write("r/flow", rank=0, ranks=2, group="two").fail("busy")
    assert str(forming.pid) in error["what"]
    assert str(last.pid) in error["what"]


# crash-matrix: committing a step | a rank of an older incarnation, asleep while its group was lost and another formed | its step is refused; both groups' committed steps stay
def test_an_old_incarnation_is_fenced(instance: Instance) -> None:
    """A rank that was only asleep while its group was lost and started again can no longer write."""
    old, lost = instance.group("r/flow", 2, "one", commands=True)
    for writer in (old, lost):
        writer.command("step")
    for writer in (old, lost):
        writer.wait_for("committed")
    old.send(signal.SIGSTOP)
    lost.kill()
    new = instance.group("r/flow", 2, "two", mode="a", commands=True)
    assert new[0].named("opened")[0]["next"] == 1
    for writer in new:
        writer.command("step")
    for writer in new:
        writer.wait_for("committed")
    before = old.command("step")
    old.send(signal.SIGCONT)
    assert old.wait_for("error", after=before)["code"] in ("fenced", "group_broken")
    assert old.ask("step", "error")["code"] in ("fenced", "group_broken")
    assert instance.check("r/flow") == {0: 1, 1: 2}
    for writer in new:
        writer.ask("close", "closed")
    assert instance.problems() == []


# crash-matrix: ending a stream | server, when one of two ranks has closed | the stream ends when the other closes
def test_a_rank_that_left_before_the_server_died_is_not_waited_for(instance: Instance) -> None:
    """Ranks close one after the other, and the server is restarted in between: the stream has ended all the same."""
    first, second = instance.group("r/flow", 2, commands=True)
    for writer in (first, second):
        writer.command("step")
    for writer in (first, second):
        writer.wait_for("committed")
    first.ask("close", "closed")
    assert first.finish() == 0
    instance.restart()
    second.ask("close", "closed")
    assert instance.stream("r/flow").status == "ended"


# crash-matrix: forming a group | a rank, before the group is complete | nothing of it; the rank may come again
def test_a_forming_rank_that_dies_can_come_again(instance: Instance) -> None:
    """What it had asked for died with it."""
    first = instance.write("r/flow", rank=0, ranks=2)
    instance.follow("r/flow").wait_for("opened")  # the first rank's asking made the stream
    first.kill()
    for writer in instance.group("r/flow", 2, steps=3):
        writer.succeed()
    assert sorted(instance.check("r/flow")) == [0, 1, 2]


def test_an_aborted_step_gives_its_number_and_space_back(instance: Instance) -> None:
    """All ranks give a step up; the next one takes its place."""
    writers = instance.group("r/flow", 2, commands=True, elements=50_000)
    for command, event in [("begin", "begun"), ("put", "put"), ("abort", "aborted")] * 3:
        before = [writer.command(command) for writer in writers]
        for writer, count in zip(writers, before, strict=True):
            assert writer.wait_for(event, after=count)["step"] == 0
    for writer in writers:
        writer.command("step")
    for writer in writers:
        writer.wait_for("committed")
        writer.ask("close", "closed")
    assert sorted(instance.check("r/flow")) == [0]
    assert instance.problems() == []
