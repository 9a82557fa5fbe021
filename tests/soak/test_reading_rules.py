# SPDX-License-Identifier: Apache-2.0
"""The rules about what readers were given, tried on small histories by hand."""

from __future__ import annotations

import pytest

from tests.soak.history import judge
from tests.soak.story import ADDRESS, Story, adios2_reader


def test_end_of_the_stream_before_its_last_step_is_rejected() -> None:
    story = Story()
    rank = story.group(0, 1, 2)
    story.tell(rank, "closing")
    reader = story.reader((1, 0), (1, 1))
    story.tell(reader, "end", status="ended")
    assert story.rules() == {"lost"}


def test_step_that_a_reader_gets_twice_is_rejected() -> None:
    story = Story()
    story.group(0, 1)
    story.reader((1, 0), (1, 1), {"epoch": 1, "step": 1, "rewound": True})
    assert "duplicated" in story.rules()


def test_step_of_two_incarnations_is_rejected() -> None:
    story = Story()
    story.group(0, 1)
    story.group(1, incarnation=2, epoch=1)
    assert "duplicated" in story.rules()


def test_violation_that_a_reader_found_is_rejected() -> None:
    story = Story()
    story.group(0)
    story.tell(story.reader((1, 0)), "violation", what="element 3 is wrong")
    assert story.rules() == {"torn"}


@pytest.mark.parametrize(
    "refusal",
    [
        "the stream was removed, or not opened by this connection",
        "the reservation is being destroyed",
        "no such reservation; `forebay ls` lists them",
        "no such stream, and no writer made it within the time given",
    ],
)
def test_step_of_a_removed_stream_may_be_refused_but_not_be_wrong(refusal: str) -> None:
    story = Story()
    story.group(0)
    reader = story.reader((1, 0))
    story.tell(reader, "violation", what=f"step 0: {refusal}")
    assert story.rules() == {"torn"}
    story.tell("director", "removing", stream=ADDRESS)
    assert story.rules() == set()
    story.tell(reader, "violation", what="element 3 is wrong")
    assert story.rules() == {"torn"}


def test_reader_that_sees_an_older_epoch_after_a_newer_one_is_rejected() -> None:
    story = Story()
    story.group(0, 1, 2)
    reader = story.start("follower", start="oldest")
    story.group(1, incarnation=2, epoch=2, append_after=0)
    for epoch, step in ((1, 0), (2, 1), (1, 2)):
        story.tell(reader, "step", epoch=epoch, step=step, incarnation=epoch, rewound=False, skipped=0)
    assert story.rules() == {"reordered"}


def test_withdrawn_step_must_not_be_seen_by_a_later_reader() -> None:
    story = Story()
    story.group(0, 1, 2)
    story.group(1, incarnation=2, epoch=2, append_after=0)
    story.reader((1, 0), (1, 1))
    assert "withdrawn" in story.rules()


def test_writer_that_died_before_an_older_epoch_was_the_latest_has_withdrawn_nothing() -> None:
    def story(dies_last: bool) -> Story:
        story = Story()
        for part in ("dies", "writes") if not dies_last else ("writes", "dies"):
            if part == "dies":
                silent = story.start("writer", ranks=1, mode="w")
                story.tell(silent, "exited", status=-9)
                story.rest(10)
            else:
                story.group(0, 1, 2)
        story.group(2, incarnation=2, epoch=2, append_after=1)
        story.reader((1, 0), (1, 1), (2, 2))
        return story

    assert story(dies_last=False).rules() == set()
    assert "withdrawn" in story(dies_last=True).rules()


def test_gap_that_was_not_told_is_rejected() -> None:
    story = Story(last=1)
    story.group(0, 1, 2)
    story.reader((1, 0), (1, 2))
    assert story.rules() == {"skipped"}


def test_step_that_was_given_and_went_later_is_no_gap() -> None:
    story = Story(last=1)
    story.group(0, 1, 2, 3)
    reader = story.reader((1, 0), (1, 1))
    story.tell(reader, "gone", step=1)
    story.tell(reader, "step", epoch=1, step=2, incarnation=1, rewound=False, skipped=0)
    story.tell(reader, "gone", step=1)
    story.tell(reader, "step", epoch=1, step=3, incarnation=1, rewound=False, skipped=0)
    assert story.rules() == set()


def test_gap_in_a_stream_that_keeps_all_is_rejected_though_it_was_told() -> None:
    story = Story()
    story.group(0, 1, 2)
    story.reader((1, 0), {"epoch": 1, "step": 2, "skipped": 1})
    assert story.rules() == {"skipped"}


def test_first_reader_of_a_stream_that_keeps_all_begins_at_the_first_step() -> None:
    story = Story()
    story.group(0, 1)
    story.reader((1, 1))
    assert story.rules() == {"skipped"}


def test_rewind_that_nobody_asked_for_is_rejected() -> None:
    story = Story()
    story.group(0, 1)
    story.reader((1, 0), {"epoch": 1, "step": 1, "rewound": True})
    assert story.rules() == {"rewound"}


def test_cursor_that_goes_back_is_rejected() -> None:
    story = Story()
    story.group(0, 1, 2)
    story.reader((1, 0), (1, 1), consumer="render", ack=True)
    story.reader((1, 1), consumer="render", ack=True)
    assert story.rules() == {"cursor"}


def test_cursor_that_jumps_over_a_step_is_rejected() -> None:
    story = Story(consumers=["render"])
    story.group(0, 1, 2)
    story.reader((1, 0), consumer="render", ack=True)
    story.reader((1, 2), consumer="render", ack=True)
    assert story.rules() == {"cursor"}


@pytest.mark.parametrize("code", ["corrupt", "io_error", "protocol", "invalid_argument"])
def test_error_that_nothing_explains_is_rejected(code: str) -> None:
    story = Story()
    story.tell(story.group(0), "error", call="put", code=code)
    assert story.rules() == {"error"}


def test_step_that_is_gone_from_a_stream_that_keeps_all_is_rejected() -> None:
    story = Story()
    story.group(0, 1)
    # Known before the reader came, so it cannot have been in the middle of what this withdrew.
    story.group(1, incarnation=2, epoch=2, append_after=0)
    story.tell(adios2_reader(story), "gone", step=0, what="the step has been dropped")
    story.tell(adios2_reader(story), "gone", step=1, what="the step has been dropped")
    assert [breach.rule for breach in judge(story.lines)[1]] == ["lost", "lost"]


def test_step_that_is_gone_by_retention_by_withdrawal_or_with_its_stream_is_no_breach() -> None:
    dropped = Story(last=1)
    dropped.group(0, 1, 2)
    dropped.tell(adios2_reader(dropped), "gone", step=0, what="the step has been dropped")
    assert dropped.rules() == set()
    withdrawn = Story()
    withdrawn.group(0, 1)
    reader = adios2_reader(withdrawn)
    withdrawn.group(1, incarnation=2, epoch=2, append_after=0)
    withdrawn.tell(reader, "gone", step=1, what="the step has been withdrawn")
    assert withdrawn.rules() == set()
    removed = Story()
    removed.group(0, 1)
    reader = adios2_reader(removed)
    removed.tell("director", "removing", stream=ADDRESS)
    removed.tell(reader, "gone", step=1, what="the stream was removed")
    removed.tell(reader, "refused", what="the stream was removed")
    removed.tell(reader, "exited", status=1)
    assert removed.rules() == set()


@pytest.mark.parametrize("opened", [False, True])
def test_refusal_of_a_stream_that_has_a_group_is_rejected(opened: bool) -> None:
    story = Story()
    story.group(0)
    reader = adios2_reader(story) if opened else story.start("adios2", start="oldest")
    story.tell(reader, "refused", what="no such stream")
    story.tell(reader, "exited", status=1)
    assert story.rules() == {"error"}


@pytest.mark.parametrize("passed", [True, False])
def test_end_without_the_last_step_is_no_breach_where_all_consumers_had_passed_it(passed: bool) -> None:
    story = Story(consumers=["render"])
    rank = story.group(0, 1, 2)
    story.tell(rank, "closing")
    if passed:
        story.reader((1, 0), (1, 1), (1, 2), consumer="render", ack=True)
    late = story.reader((1, 0))
    story.tell(late, "end", status="ended")
    assert story.rules() == (set() if passed else {"lost"})


def test_end_without_the_last_step_is_no_breach_where_an_earlier_group_closed_behind_it() -> None:
    story = Story(consumers=["render"])
    first = story.group(0, 1, 2, 3)
    story.tell(first, "closing")
    second = story.group(1, 2, incarnation=2, epoch=2, append_after=0)
    story.tell(second, "closing")
    story.reader((1, 0), {"epoch": 2, "step": 1, "rewound": True}, (2, 2), consumer="render", ack=True)
    late = story.reader((1, 0), {"epoch": 2, "step": 1})
    story.tell(late, "end", status="ended")
    assert story.rules() == set()


@pytest.mark.parametrize("away", [True, False])
def test_refusal_by_a_server_that_was_away_is_no_breach(away: bool) -> None:
    story = Story()
    story.group(0)
    since = len(story.lines)
    reader = story.start("adios2", start="oldest")
    story.tell(reader, "refused", what="no Forebay server is running there")
    if away:
        story.tell("director", "away", since_ns=since)
    assert story.rules() == (set() if away else {"error"})


def test_refusal_of_a_stream_that_had_no_group_yet_is_no_breach() -> None:
    story = Story()
    reader = story.start("adios2", start="oldest")
    story.group(0)
    story.tell(reader, "refused", what="no such stream")
    story.tell(reader, "exited", status=1)
    assert story.rules() == set()


def test_adios2_reader_that_ends_without_a_word_is_rejected() -> None:
    story = Story()
    story.group(0)
    story.tell(adios2_reader(story), "exited", status=1)
    assert story.rules() == {"error"}
