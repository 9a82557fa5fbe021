# SPDX-License-Identifier: Apache-2.0
"""What writers may be told: every step once, in order, and a group goes on where the one before it ended."""

from __future__ import annotations

from collections.abc import Iterator

from tests.soak.timeline import Breach, Group, Process, StreamTimeline

__all__ = ["UNEXPECTED_CODES", "error_breaches", "writing_breaches"]

#: Errors that no kill, full reservation or removal excuses.
UNEXPECTED_CODES = {
    "invalid_argument",
    "already_exists",
    "permission_denied",
    "corrupt",
    "io_error",
    "unsupported",
    "protocol",
    "failed",
}


def writing_breaches(stream: StreamTimeline) -> list[Breach]:
    """Everything that is wrong with what the ranks of one stream were told."""
    breaches: list[Breach] = []
    for writer in stream.writers:
        breaches += error_breaches(writer)
    for group in stream.groups.values():
        for rank in group.ranks:
            breaches += _rank_breaches(group, rank)
        breaches += _beginning_breaches(stream, group)
    breaches += _double_commits(stream)
    return breaches


def error_breaches(process: Process) -> Iterator[Breach]:
    """Errors and ends that nothing done to the system explains."""
    for error in process.named("error"):
        if error["code"] in UNEXPECTED_CODES:
            yield Breach("error", process.name, f"{error['call']}: {error['code']}: {error.get('what')}")
    for exited in process.named("exited"):
        if exited["status"] < 0 and exited["status"] != -9:
            yield Breach("error", process.name, f"died of signal {-exited['status']}")


def _rank_breaches(group: Group, rank: Process) -> Iterator[Breach]:
    opened = rank.named("opened")[0]
    if (opened["epoch"], opened["next"]) != (group.epoch, group.next_step):
        yield Breach("epoch", rank.name, f"goes on at {opened}, others of its group at step {group.next_step}")
    due = group.next_step
    for line in rank.named("committed"):
        if (line["epoch"], line["incarnation"]) != (group.epoch, group.incarnation):
            yield Breach("epoch", rank.name, f"step {line['step']} committed as {line}, outside of the rank's group")
        if line["step"] < due:
            yield Breach("duplicated", rank.name, f"step {line['step']} was committed to it a second time")
        elif line["step"] > due:
            yield Breach("reordered", rank.name, f"step {line['step']} committed where {due} was due")
        due = line["step"] + 1
        if not group.ended(line["step"]):
            yield Breach("torn", rank.name, f"step {line['step']} committed although not all ranks had ended it")


def _beginning_breaches(stream: StreamTimeline, group: Group) -> Iterator[Breach]:
    where = f"{stream.address}, incarnation {group.incarnation}"
    asked = group.ranks[0].options
    if asked.get("append_after") is not None:
        if group.next_step != asked["append_after"] + 1:
            yield Breach("epoch", where, f"goes on at {group.next_step}, not after step {asked['append_after']}")
        return
    if asked.get("mode") == "w":
        if group.next_step != 0:
            yield Breach("epoch", where, f"was to begin anew, and goes on at {group.next_step}")
        return
    for (epoch, step), (_, told_ns) in stream.commits.items():
        if step < group.next_step or epoch > group.epoch or told_ns >= group.opening_ns:
            continue
        if not stream.withdrawn((epoch, step), begun_before_ns=group.opened_ns):
            yield Breach("lost", where, f"goes on at {group.next_step}, but step {step} of epoch {epoch} had committed")
    last = group.next_step - 1
    if last >= 0 and not any(
        earlier.incarnation < group.incarnation and earlier.ended(last) for earlier in stream.groups.values()
    ):
        yield Breach("phantom", where, f"goes on after step {last}, which no group has ended")


def _double_commits(stream: StreamTimeline) -> Iterator[Breach]:
    for process in (*stream.writers, *stream.readers):
        for line in (*process.named("committed"), *process.named("step")):
            incarnation = stream.commits[line["epoch"], line["step"]][0]
            if incarnation != line["incarnation"]:
                what = f"step {line['step']} of epoch {line['epoch']} is of incarnations {incarnation}"
                yield Breach("duplicated", process.name, f"{what} and {line['incarnation']}")
