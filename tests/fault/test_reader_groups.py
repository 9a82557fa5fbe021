# SPDX-License-Identifier: Apache-2.0
"""Reader groups whose server, or one of whose ranks, dies in the middle of a turn: all ranks get the same answers."""

from __future__ import annotations

import signal

import forebay
from tests.fault.instance import Instance
from tests.support.group_reader import GroupReader

ADDRESS = "r/flow"


def write(stream: forebay.WritableStream, *values: int) -> None:
    """One step for each value."""
    for value in values:
        with stream.step() as step:
            step["n"] = value


# crash-matrix: answering a reader group | server, when all ranks have asked, at `server.turn.before_answer` | all ranks get the same step after the restart
def test_ranks_that_had_asked_get_the_same_step_after_a_restart(current_instance: Instance) -> None:
    instance = current_instance
    instance.restart("server.turn.before_answer:2=kill")
    with (
        forebay.open(ADDRESS, "w", retention="last:1") as stream,
        GroupReader(ADDRESS, 0) as first,
        GroupReader(ADDRESS, 1) as second,
    ):
        assert first.line() == second.line() == "open []"
        for number in (0, 1):
            write(stream, number)
            for rank in (first, second):
                rank.ask(release=True)
            if number == 1:
                assert instance.wait() == -signal.SIGKILL
                instance.start()
            assert first.line() == second.line() == f"step {number} {number}"
    assert instance.problems() == []


# crash-matrix: answering a reader group | server, when some ranks have their answer and others not, at `server.turn.between_answers` | the others get the same step, although newer ones have come and those who had it have let it go
def test_a_rank_that_missed_the_answer_gets_the_same_step(current_instance: Instance) -> None:
    """The step stays until all ranks have had it, although retention would drop it."""
    instance = current_instance
    instance.restart("server.turn.between_answers=kill")
    with (
        forebay.open(ADDRESS, "w", retention="last:1") as stream,
        GroupReader(ADDRESS, 0) as first,
        GroupReader(ADDRESS, 1) as second,
    ):
        assert first.line() == second.line() == "open []"
        write(stream, 0)
        for rank in (second, first):
            rank.ask(release=True)
        assert instance.wait() == -signal.SIGKILL
        assert first.line() == "step 0 0"
        second.send(signal.SIGSTOP)
        instance.start()
        first.ask(release=True)
        write(stream, *range(1, 12))
        first.wait_until_asleep()
        second.send(signal.SIGCONT)
        assert second.line() == "step 0 0"
        second.ask(release=True)
        assert first.line() == second.line() == "step 11 11"
        write(stream, 12)
        assert stream.steps().numbers == [12], "nobody holds the others any more"
    assert instance.problems() == []


# crash-matrix: answering a reader group | server and one rank, between two turns | the other rank's next call fails and names the rank that is gone
def test_a_rank_that_died_with_the_server_is_told(current_instance: Instance) -> None:
    instance = current_instance
    with forebay.open(ADDRESS, "w") as stream:
        write(stream, 0, 1)
        with GroupReader(ADDRESS, 0) as first, GroupReader(ADDRESS, 1) as second:
            assert first.line().startswith("open")
            assert second.line().startswith("open")
            for rank in (first, second):
                rank.ask()
            assert first.line() == second.line() == "step 0 0"
            instance.kill()
            second.send(signal.SIGKILL)
            second.finish()
            instance.start()
            first.ask()
            told = first.line()
            assert told.startswith("GroupBrokenError: ")
            assert "rank 1 of 2" in told


# crash-matrix: answering a reader group | server, while one rank computes | nothing is decided until that rank asks, however long it takes; all ranks get the same step
def test_a_rank_that_computes_is_waited_for_over_a_restart(current_instance: Instance) -> None:
    instance = current_instance
    with forebay.open(ADDRESS, "w", retention="last:1") as stream:
        write(stream, 0)
        with GroupReader(ADDRESS, 0) as first, GroupReader(ADDRESS, 1) as second:
            assert first.line().startswith("open")
            assert second.line().startswith("open")
            for rank in (first, second):
                rank.ask(release=True)
            assert first.line() == second.line() == "step 0 0"
            instance.restart()
            first.ask()
            write(stream, 1)
            first.wait_until_asleep()
            write(stream, *range(2, 20))
            waits = [wait.waits_for for wait in instance.stream(ADDRESS).waits]
            assert waits in ([], ["rank 1 to come back after a restart of the server"])
            second.ask()
            assert first.line() == second.line() == "step 19 19"
