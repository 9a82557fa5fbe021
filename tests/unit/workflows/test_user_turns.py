# SPDX-License-Identifier: Apache-2.0
"""Turns of stages go round by user."""

from __future__ import annotations

from forebay.workflows.manager.core.user_turns import UserTurns

ADA, BOB, EVE = 1, 2, 3


def begun(turns: UserTurns) -> list[int]:
    found = []
    while (stage := turns.begin()) is not None:
        found.append(stage)
    return found


def test_stages_of_others_do_not_wait_behind_hundreds_of_one_user() -> None:
    turns = UserTurns(places=4, reserve=2)
    for stage in range(776):
        turns.add(ADA, stage)
    assert begun(turns) == [0, 1, 2, 3]  # one alone has all places
    turns.add(BOB, 1001)
    turns.add(BOB, 1002)
    turns.add(EVE, 2001)
    assert begun(turns) == [1001, 2001]  # the reserve is for who has none
    for stage in (0, 1, 2):
        turns.end(stage)
    # Three run: of each user one. The next place goes to who was served longest ago.
    assert begun(turns) == [4]
    turns.end(3)
    assert begun(turns) == [1002]
    assert turns.waiting(ADA) == 776 - 5


def test_a_process_that_does_not_end_counts_for_its_user_alone() -> None:
    turns = UserTurns(places=2, reserve=1)
    for stage in range(10):
        turns.add(ADA, stage)
    assert begun(turns) == [0, 1]
    for stage in (0, 1):
        turns.end(stage)
        turns.hold(ADA)
    assert begun(turns) == []
    turns.add(BOB, 100)
    turns.add(BOB, 101)
    assert begun(turns) == [100, 101]
    turns.end(100)
    assert begun(turns) == []
    turns.release(ADA)
    assert begun(turns) == [2]


def test_what_is_removed_does_not_begin_and_an_end_counts_once() -> None:
    turns = UserTurns(places=1, reserve=0)
    for stage in range(3):
        turns.add(ADA, stage)
    turns.remove(ADA, 0)
    assert begun(turns) == [1]
    for _ in range(2):
        turns.end(1)
        turns.remove(ADA, 1)
    assert begun(turns) == [2]
    assert begun(turns) == []
