# SPDX-License-Identifier: Apache-2.0
"""The judge of histories, tried on small ones by hand: good ones, and for each rule one that breaks it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak.content import expected_block
from tests.soak.history import HistoryLog, main
from tests.soak.story import ADDRESS, Story


def test_good_history_passes() -> None:
    story = Story()
    story.group(0, 1, 2, ending=3)
    story.reader((1, 0), (1, 1), (1, 2))
    story.sampled(1, 2, 1)
    story.group(3, 4, incarnation=2, epoch=1)
    story.sampled(1, 4, 4)
    story.group(2, 3, incarnation=3, epoch=2, append_after=1)
    first = {"epoch": 1, "incarnation": 1}
    story.reader({**first, "step": 0}, {**first, "step": 1}, {"epoch": 2, "step": 2, "incarnation": 3})
    story.sampled(2, 3, 1)
    listed = [[0, 1, 1], [1, 1, 1], [2, 2, 3], [3, 2, 3]]
    story.tell("director", "kept", stream=ADDRESS, since_ns=len(story.lines), steps=listed)
    story.staged((1, 0, ""), (1, 1, ""), (2, 2, ""), (2, 3, ""))
    assert story.rules() == set()


def test_retention_rewind_and_unannounced_commit_are_no_breach() -> None:
    story = Story(last=2)
    story.group(0, 1, 2, 3, ending=4)
    story.reader((1, 0), {"epoch": 1, "step": 3, "skipped": 2}, consumer="render", ack=True)
    story.kept((1, 3), (1, 4))
    story.reader((1, 4), consumer="render", ack=True)
    assert story.rules() == set()


def test_replacement_by_a_group_that_died_before_it_could_tell_is_no_breach() -> None:
    story = Story()
    story.group(0, 1)
    story.start("writer", ranks=1, mode="w")
    story.sampled(2, -1, -1)
    story.kept()
    assert story.rules() == set()


def test_kept_steps_without_a_committed_one_are_rejected() -> None:
    story = Story()
    story.group(0, 1, 2)
    story.kept((1, 0), (1, 1))
    assert story.rules() == {"lost"}


def test_last_steps_that_retention_keeps_must_be_there() -> None:
    story = Story(last=2)
    story.group(0, 1, 2, 3)
    story.kept((1, 3))
    assert story.rules() == {"lost"}


def test_look_in_between_misses_a_step_that_retention_let_go_later() -> None:
    story = Story(last=2)
    rank = story.group(0, 1, 2)
    story.kept((1, 2))
    for step in (3, 4):
        story.tell(rank, "ending", step=step)
        story.tell(rank, "committed", step=step, incarnation=1, epoch=1)
    assert story.rules() == {"lost"}


def test_steps_that_a_named_consumer_has_not_passed_must_be_there() -> None:
    story = Story(consumers=["render"])
    story.group(0, 1, 2)
    story.reader((1, 0), consumer="render", ack=True)
    story.kept((1, 2))
    assert story.rules() == {"lost"}


def test_full_reservation_must_spare_what_a_named_consumer_needs() -> None:
    story = Story(drops_oldest=True)
    rank = story.group(0)
    story.reader((1, 0), consumer="render", ack=True)
    for step in (1, 2):
        story.tell(rank, "ending", step=step)
        story.tell(rank, "committed", step=step, incarnation=1, epoch=1)
    story.kept((1, 2))
    assert story.rules() == {"lost"}


def test_precious_step_must_be_there_until_it_is_staged() -> None:
    story = Story(last=1, precious_every=2)
    story.group(0, 1, 2, 3)
    story.kept((1, 2), (1, 3))
    assert story.rules() == {"lost"}


def test_group_that_begins_before_a_committed_step_is_rejected() -> None:
    story = Story()
    story.group(0, 1, 2)
    story.group(2, incarnation=2, epoch=1)
    assert "lost" in story.rules()


def test_watermark_below_a_committed_step_is_rejected() -> None:
    story = Story()
    story.group(0, 1, 2)
    story.sampled(1, 1, 0)
    assert story.rules() == {"lost"}


def test_commit_without_all_ranks_is_rejected() -> None:
    story = Story()
    story.group(0)
    story.lines[1]["ranks"] = 2
    assert "torn" in story.rules()


def test_kept_steps_out_of_order_are_rejected() -> None:
    story = Story()
    story.group(0, 1)
    story.kept((1, 1), (1, 0))
    assert story.rules() == {"reordered"}


def test_step_that_nobody_ended_is_rejected() -> None:
    story = Story()
    story.group(0)
    story.reader((1, 0), (1, 1))
    assert story.rules() == {"phantom"}


def test_step_that_the_next_group_wrote_again_had_not_committed() -> None:
    story = Story()
    story.group(0, ending=1)
    story.group(1, incarnation=2, epoch=1)
    story.reader((1, 0), {"epoch": 1, "step": 1, "incarnation": 1})
    assert "phantom" in story.rules()


def test_durable_watermark_that_goes_back_is_rejected() -> None:
    story = Story()
    story.group(0, 1, 2)
    story.sampled(1, 2, 2)
    story.sampled(1, 2, 1)
    assert story.rules() == {"durable"}


def test_step_that_was_told_as_durable_must_be() -> None:
    story = Story()
    story.lines[0]["durable"] = True
    story.group(0, 1)
    story.sampled(1, 1, 0)
    assert story.rules() == {"durable"}


def test_epoch_that_nobody_asked_for_is_rejected() -> None:
    story = Story()
    story.group(0, 1)
    story.sampled(2, 1, 1)
    assert story.rules() == {"epoch"}


@pytest.mark.parametrize(
    ("entry", "rule"), [((1, 0, "v0 of rank 0 differs"), "staged"), ((1, 1, ""), "staged"), ((2, 0, ""), "staged")]
)
def test_staged_output_that_differs_or_never_committed_is_rejected(entry: tuple[int, int, str], rule: str) -> None:
    story = Story()
    story.group(0, ending=1)
    story.group(1, 2, incarnation=2, epoch=1)
    story.lines = [line for line in story.lines if line.get("step") != 1]
    story.staged(entry, state="failed")
    assert story.rules() - {"reordered"} == {rule}


def test_stage_that_succeeded_without_a_step_is_rejected() -> None:
    story = Story()
    story.group(0, 1)
    story.staged((1, 0, ""))
    assert story.rules() == {"staged"}


def test_process_that_crashed_is_rejected() -> None:
    story = Story()
    story.tell(story.group(0), "exited", status=-11)
    assert story.rules() == {"error"}


def test_log_is_judged_from_its_file_alone_and_a_cut_last_line_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    story = Story()
    story.group(0, 1)
    story.kept((1, 0))
    log = HistoryLog(tmp_path / "log")
    for line in story.lines:
        log.hear(line["who"], {key: value for key, value in line.items() if key != "who"})
    log.close()
    with (tmp_path / "log").open("a") as end:
        end.write(json.dumps({"who": "x", "event": "kept"})[:10])
    assert main([str(tmp_path / "log")]) == 1
    assert "[lost]" in capsys.readouterr().out


def test_formula_is_the_load_generators() -> None:
    """The same in both languages: the first elements as forebay_load writes them (checked by every soak as well)."""
    first = expected_block("flow", 1, 1, 0, 0, 0, 3)
    assert (first[1:] - first[:-1]).tolist() == [0xD1342543DE82EF95] * 2
    assert not (first == expected_block("flow", 2, 1, 0, 0, 0, 3)).any()
