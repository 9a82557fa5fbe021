# SPDX-License-Identifier: Apache-2.0
"""The judge of histories, tried on small ones by hand: good ones, and for each rule one that breaks it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.soak.content import expected_block
from tests.soak.history import HistoryLog, judge, main
from tests.soak.timeline import Line

ADDRESS = "r/flow"


class Story:
    """A history of one stream, told line by line; time goes on by one with each."""

    def __init__(self, **keeping: Any) -> None:
        self.lines: list[Line] = []
        self.processes = 0
        self.tell("director", "stream", stream=ADDRESS, keeping=keeping, durable=False)

    def tell(self, who: str, event: str, **fields: Any) -> None:
        self.lines.append({"who": who, "event": event, "told_ns": len(self.lines), **fields})

    def start(self, role: str, **options: Any) -> str:
        self.processes += 1
        name = f"{role}{self.processes}"
        self.tell("director", "started", name=name, role=role, stream=ADDRESS, **options)
        self.tell(name, "opening")
        return name

    def group(
        self, *steps: int, incarnation: int = 1, epoch: int = 1, ending: int | None = None, **options: Any
    ) -> str:
        """A group of one rank that commits these steps, and may die while it ends another."""
        rank = self.start("writer", ranks=1, **{"mode": "a", **options})
        self.tell(rank, "opened", incarnation=incarnation, epoch=epoch, next=options.pop("next", steps[0]))
        for step in steps:
            self.tell(rank, "ending", step=step)
            self.tell(rank, "committed", step=step, incarnation=incarnation, epoch=epoch)
        if ending is not None:
            self.tell(rank, "ending", step=ending)
        return rank

    def reader(self, *steps: tuple[int, int] | Line, **options: Any) -> str:
        """A follower that is given these steps: (epoch, number), or with more fields."""
        reader = self.start("follower", **{"start": "oldest", **options})
        self.tell(reader, "opened")
        for step in steps:
            told = step if isinstance(step, dict) else {"epoch": step[0], "step": step[1]}
            self.tell(reader, "step", **{"incarnation": told["epoch"], "rewound": False, "skipped": 0, **told})
            if options.get("ack"):
                self.tell(reader, "acknowledged", step=told["step"])
        return reader

    def sampled(self, epoch: int, committed: int, durable: int) -> None:
        self.tell(
            "director",
            "sampled",
            stream=ADDRESS,
            since_ns=len(self.lines),
            epoch=epoch,
            committed=committed,
            durable=durable,
        )

    def kept(self, *steps: tuple[int, int]) -> None:
        """(epoch, number) each."""
        listed = [[number, epoch, epoch] for epoch, number in steps]
        self.tell("director", "kept", stream=ADDRESS, since_ns=len(self.lines), steps=listed)

    def staged(self, *entries: tuple[int, int, str], state: str = "succeeded", every: int = 1) -> None:
        since = len(self.lines)
        self.tell("director", "staging", stream=ADDRESS)
        told = [[number, epoch, wrong] for epoch, number, wrong in entries]
        self.tell(
            "director",
            "staged",
            stream=ADDRESS,
            destination="out",
            since_ns=since,
            state=state,
            every=every,
            entries=told,
        )

    def rules(self) -> set[str]:
        """Those that it breaks."""
        return {breach.rule for breach in judge(self.lines)[1]}


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


def test_end_of_the_stream_before_its_last_step_is_rejected() -> None:
    story = Story()
    rank = story.group(0, 1, 2)
    story.tell(rank, "closing")
    reader = story.reader((1, 0), (1, 1))
    story.tell(reader, "end", status="ended")
    assert story.rules() == {"lost"}


def test_watermark_below_a_committed_step_is_rejected() -> None:
    story = Story()
    story.group(0, 1, 2)
    story.sampled(1, 1, 0)
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


def test_commit_without_all_ranks_is_rejected() -> None:
    story = Story()
    story.group(0)
    story.lines[1]["ranks"] = 2
    assert "torn" in story.rules()


def test_reader_that_sees_an_older_epoch_after_a_newer_one_is_rejected() -> None:
    story = Story()
    story.group(0, 1, 2)
    reader = story.start("follower", start="oldest")
    story.group(1, incarnation=2, epoch=2, append_after=0)
    for epoch, step in ((1, 0), (2, 1), (1, 2)):
        story.tell(reader, "step", epoch=epoch, step=step, incarnation=epoch, rewound=False, skipped=0)
    assert story.rules() == {"reordered"}


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


def test_withdrawn_step_must_not_be_seen_by_a_later_reader() -> None:
    story = Story()
    story.group(0, 1, 2)
    story.group(1, incarnation=2, epoch=2, append_after=0)
    story.reader((1, 0), (1, 1))
    assert "withdrawn" in story.rules()


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


@pytest.mark.parametrize("code", ["corrupt", "io_error", "protocol", "invalid_argument"])
def test_error_that_nothing_explains_is_rejected(code: str) -> None:
    story = Story()
    story.tell(story.group(0), "error", call="put", code=code)
    assert story.rules() == {"error"}


def adios2_reader(story: Story) -> str:
    """One that has opened the stream."""
    reader = story.start("adios2", start="oldest")
    story.tell(reader, "opened")
    return reader


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
