# SPDX-License-Identifier: Apache-2.0
"""The rules of a pool's history, tried on small ones by hand: good ones, and for each rule one that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server_faults.checker import check_history
from tests.soak.story import ADDRESS, Story

_SECOND = 1_000_000_000


class PoolStory(Story):
    """A history in which servers go away and lose their power."""

    def away(self, since_ns: int) -> None:
        self.tell("director", "away", since_ns=since_ns, nodes=[2])

    def power(self, kept_ns: int | None = None, *, copy: bool = False) -> None:
        """A server loses what was not synced by now, or by then."""
        now = self.now_ns
        kept = now if kept_ns is None else kept_ns
        self.tell("director", "lost power", kept_ns=kept, since_ns=now, until_ns=now + 1, copy=copy)

    def rank(self, group: str, rank: int, *steps: tuple[int, int]) -> str:
        return self.reader(*steps, group=group, rank=rank, ranks=2)

    def error(self, who: str, code: str, what: str = "it is so", **fields: Any) -> None:
        self.tell(who, "error", call="put", code=code, what=what, **fields)

    def rules(self) -> set[str]:
        return {breach.rule for breach in check_history(self.lines)}


def test_what_was_not_durable_may_go_with_a_servers_power() -> None:
    story = PoolStory()
    story.group(0, 1, 2)
    story.sampled(1, 2, 0)
    story.power()
    story.kept((1, 0))
    story.sampled(1, 2, 0)
    first = {"epoch": 1, "incarnation": 1}
    story.group(3, incarnation=2)
    story.reader((1, 0), {**first, "step": 3, "incarnation": 2, "skipped": 2})
    assert story.rules() == set()


def test_a_durable_step_must_not_go_with_a_servers_power() -> None:
    story = PoolStory()
    story.group(0, 1, 2)
    story.sampled(1, 2, 1)
    story.power()
    story.kept((1, 0))
    assert story.rules() == {"lost"}


def test_what_was_told_to_a_writer_as_durable_must_not_go() -> None:
    story = PoolStory()
    story.lines[0]["durable"] = True
    story.group(0, 1)
    story.power()
    story.kept((1, 0))
    assert story.rules() == {"lost"}


def test_nothing_may_go_without_a_loss() -> None:
    story = PoolStory()
    story.power()
    story.rest(1)
    story.group(0, 1)
    story.kept((1, 0))
    assert story.rules() == {"lost"}


def test_an_old_copy_keeps_what_was_durable_when_it_was_made() -> None:
    story = PoolStory()
    story.group(0)
    story.sampled(1, 0, 0)
    copied = story.now_ns
    story.group(1, incarnation=2)
    story.sampled(1, 1, 1)
    story.power(copied, copy=True)
    story.kept((1, 0))
    assert story.rules() == set()
    story.kept()
    assert story.rules() == {"lost"}


def test_a_reader_that_passes_over_more_than_may_be_lost_is_told_apart() -> None:
    story = PoolStory()
    story.group(0, 1, 2)
    story.sampled(1, 2, 1)
    story.power()
    story.reader((1, 0), {"epoch": 1, "step": 2, "incarnation": 1, "skipped": 1})
    assert story.rules() == {"skipped"}


def test_a_reader_that_misses_what_is_lost_without_a_word_is_told_apart() -> None:
    story = PoolStory()
    story.group(0, 1, 2)
    story.power()
    story.reader((1, 0), (1, 2))
    assert story.rules() == {"skipped"}


@pytest.mark.parametrize("second", [((1, 0), (1, 2)), ((1, 1),)])
def test_ranks_of_a_group_get_the_same_steps(second: tuple[tuple[int, int], ...]) -> None:
    story = PoolStory(last=1)
    story.group(0, 1, 2)
    story.rank("r1", 0, (1, 0), (1, 1))
    story.rank("r1", 1, *second)
    assert "turns" in story.rules()


def test_a_rank_that_died_got_less() -> None:
    story = PoolStory()
    story.group(0, 1)
    story.rank("r1", 0, (1, 0), (1, 1))
    story.rank("r1", 1, (1, 0))
    story.rank("r2", 1, (1, 0), (1, 1))
    assert story.rules() == set()


def test_unavailable_is_told_while_a_server_is_away_and_soon_after() -> None:
    story = PoolStory()
    since = story.now_ns
    rank = story.group(0)
    story.error(rank, "unavailable")
    story.away(since)
    reader = story.reader((1, 0))
    story.tell(reader, "unavailable", step=0, what="it is away")
    assert story.rules() == set()


def test_unavailable_is_told_when_all_servers_are_there() -> None:
    story = PoolStory()
    story.away(story.now_ns)
    story.rest(600)
    rank = story.group(0)
    story.error(rank, "unavailable")
    assert story.rules() == {"unavailable"}


def test_errors_of_a_disk_need_a_disk_that_fails() -> None:
    story = PoolStory()
    rank = story.group(0)
    story.error(rank, "io_error")
    assert story.rules() == {"error"}
    story = PoolStory()
    since = story.now_ns
    rank = story.group(0)
    story.tell("director", "disk", node=2, mode="FULL", since_ns=since)
    story.error(rank, "io_error")
    assert story.rules() == set()


@pytest.mark.parametrize(
    ("copy", "what", "rules"),
    [
        (True, "step 1, rank 0, variable 0: checksum mismatch (segment 9 @ 0)", set()),
        (True, "step 1, rank 0, variable 0: element 3 of 100 is wrong", {"torn"}),
        (True, "step 0, rank 0, variable 0: checksum mismatch (segment 9 @ 0)", {"torn"}),
        (False, "step 1, rank 0, variable 0: checksum mismatch (segment 9 @ 0)", {"torn"}),
    ],
)
def test_only_what_an_old_copy_lacks_unknown_may_fail_to_be_read(copy: bool, what: str, rules: set[str]) -> None:
    story = PoolStory()
    story.group(0, 1)
    story.sampled(1, 1, 0)
    story.power(copy=copy)
    reader = story.reader((1, 0), (1, 1))
    # As pool_run.py names them.
    for line in story.lines:
        for key in ("who", "name"):
            if line.get(key) == reader:
                line[key] = f"{ADDRESS}/{reader}"
    story.tell(f"{ADDRESS}/{reader}", "violation", what=what)
    assert story.rules() == rules
