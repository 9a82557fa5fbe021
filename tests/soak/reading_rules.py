# SPDX-License-Identifier: Apache-2.0
"""What readers may see: whole steps that exist, in order, without a gap that nobody told; cursors that go forward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.soak.timeline import Breach, Line, Process, StepKey, StreamTimeline
from tests.soak.writing_rules import error_breaches

__all__ = ["reading_breaches", "unlikely"]


#: A program that has not been greeted by a server yet does not wait for one to come back.
_AWAY = (
    "no Forebay server is running",
    "the connection to the Forebay server was lost",
    "no Forebay server listens there",
    "the server's node does not answer",
    "Network is unreachable",
)
#: What is said of a stream that was removed; the last two by a server that was started afterwards.
_REMOVED = (
    "the stream was removed",
    "the reservation is being destroyed",
    "no such stream",
    "no such reservation",
)


def reading_breaches(stream: StreamTimeline) -> list[Breach]:
    """Everything that is wrong with what the readers of one stream were given."""
    breaches: list[Breach] = []
    consumers: dict[str, list[Process]] = defaultdict(list)
    for reader in stream.readers:
        breaches += error_breaches(reader)
        breaches += [Breach("torn", reader.name, what) for what in _wrong(stream, reader)]
        breaches += _hold_breaches(stream, reader)
        breaches += _existence_breaches(stream, reader)
        breaches += _refusal_breaches(stream, reader)
        if reader.role != "checker":
            breaches += _order_breaches(stream, reader)
            breaches += _end_breaches(stream, reader)
        if reader.consumer:
            consumers[reader.consumer].append(reader)
    for holders in consumers.values():
        breaches += _cursor_breaches(stream, sorted(holders, key=lambda reader: reader.opening_ns))
    return breaches


def _wrong(stream: StreamTimeline, reader: Process) -> Iterator[str]:
    """What the reader found wrong; that a removed stream cannot be read any more is an answer, not wrong content."""
    for line in reader.named("violation"):
        if stream.end_ns is None or not any(text in line["what"] for text in _REMOVED):
            yield line["what"]


def _hold_breaches(stream: StreamTimeline, reader: Process) -> Iterator[Breach]:
    for line in reader.named("gone"):
        steps = [step for step in stream.commits if step[1] == line["step"]]
        if line.get("pinned") and not any(stream.may_be_lost(step, line["told_ns"]) for step in steps):
            yield Breach("torn", reader.name, f"step {line['step']} went while the reader held it")


def unlikely(stream: StreamTimeline, step: StepKey, incarnation: int) -> str:
    """Why this step cannot have committed as told; empty: it can."""
    group = stream.groups.get(incarnation)
    if group is None or group.epoch != step[0]:
        return f"no group of incarnation {incarnation} wrote in epoch {step[0]}"
    if not group.ended(step[1]):
        return f"not every rank of incarnation {incarnation} had ended it"
    if stream.refuted(step, incarnation):
        return "the next group began at it, so it had not committed"
    return ""


def _existence_breaches(stream: StreamTimeline, reader: Process) -> Iterator[Breach]:
    for line in (*reader.steps, *reader.named("got")):
        key = (line["epoch"], line["step"])
        incarnation = line.get("incarnation", stream.commits.get(key, (0, 0))[0])
        if why := unlikely(stream, key, incarnation):
            yield Breach("phantom", reader.name, f"saw step {key[1]} of epoch {key[0]}: {why}")
        if stream.withdrawn(key, known_before_ns=reader.opening_ns):
            yield Breach("withdrawn", reader.name, f"saw step {key[1]} of epoch {key[0]}, withdrawn before it came")


def _refusal_breaches(stream: StreamTimeline, reader: Process) -> Iterator[Breach]:
    """Of readers by ADIOS2, whose errors have no code: a step or a stream that was kept from them without a reason."""
    refused = reader.named("refused")
    for exited in reader.named("exited"):
        if reader.role == "adios2" and exited["status"] > 0 and not refused:
            yield Breach("error", reader.name, f"ended with status {exited['status']} and told nothing")
    if stream.end_ns is not None:
        return
    for line in reader.named("gone"):
        if stream.keeping.everything and not _may_have_been_withdrawn(stream, reader, line):
            yield Breach(
                "lost", reader.name, f"step {line['step']} was gone, although all are kept: {line.get('what')}"
            )
    for line in refused:
        if any(text in line["what"] for text in _AWAY) and _server_was_away(stream, reader, line):
            continue
        # Ranks that die while they open their stream leave the others waiting in vain, and readers are told.
        if "the writer of this stream was refused: rank" in line["what"]:
            continue
        # Whoever asked before the first group formed may have waited in vain.
        formed = any(group.opened_ns < reader.opening_ns for group in stream.groups.values())
        if formed or reader.named("opened"):
            yield Breach("error", reader.name, f"was refused a stream that was there: {line['what']}")


def _server_was_away(stream: StreamTimeline, reader: Process, refused: Line) -> bool:
    """While it asked for the stream the first time."""
    if reader.named("opened"):
        return False
    return any(since <= refused["told_ns"] and back >= reader.opening_ns for since, back in stream.outages)


def _may_have_been_withdrawn(stream: StreamTimeline, reader: Process, gone: Line) -> bool:
    """While it was read; its epoch was not told."""
    return any(
        gone["step"] >= withdrawal.first
        and withdrawal.known_ns >= reader.opening_ns
        and withdrawal.begun_ns < gone["told_ns"]
        for withdrawal in stream.withdrawals
    )


def _order_breaches(stream: StreamTimeline, reader: Process) -> Iterator[Breach]:
    before: StepKey | None = None
    gone = 0  # steps that the reader was told of, but that were dropped while it read them
    for line in reader.events:
        if line["event"] == "sought":
            before = None
        if line["event"] == "error" and line["code"] == "step_gone" and line.get("call") != "view":
            gone += 1
        # forebay_load also tells so of a step that it was given, and that went while it compared or held it.
        if line["event"] == "gone" and (before is None or line["step"] > before[1]):
            gone += 1
        if line["event"] != "step":
            continue
        key = (line["epoch"], line["step"])
        skipped = line.get("skipped", 0)
        if line.get("rewound") and not any(cut.begun_ns < line["told_ns"] for cut in stream.withdrawals):
            yield Breach("rewound", reader.name, f"told of a rewind before step {key}, and there was none")
        if skipped and _all_are_due_to(stream, reader) and not _may_have_lost(stream, before, gone, line):
            yield Breach("skipped", reader.name, f"{skipped} steps before {key} were not kept for it")
        if before is not None:
            yield from _succession_breaches(stream, reader, before, gone, line)
        elif (
            _begins_at_first(stream, reader)
            and key[1] != gone
            and not stream.may_all_be_lost(range(gone, key[1]), line["told_ns"])
        ):
            yield Breach("skipped", reader.name, f"began at step {key[1]}, although all are kept")
        before = key
        gone = 0


def _may_have_lost(stream: StreamTimeline, before: StepKey | None, gone: int, line: Line) -> bool:
    """May all that the reader was told to pass over be lost with a server's power?"""
    first = 0 if before is None else before[1] + 1
    numbers = range(first, line["step"])
    lost = sum(stream.may_all_be_lost([number], line["told_ns"]) for number in numbers)
    return int(line["skipped"]) <= lost + gone


def _succession_breaches(
    stream: StreamTimeline, reader: Process, before: StepKey, gone: int, line: Line
) -> Iterator[Breach]:
    key = (line["epoch"], line["step"])
    due = before[1] + 1 + gone + line.get("skipped", 0)
    if key == before:
        yield Breach("duplicated", reader.name, f"step {key[1]} of epoch {key[0]} came twice")
    elif key < before:
        yield Breach("reordered", reader.name, f"step {key[1]} of epoch {key[0]} came after {before}")
    elif reader.options.get("latest"):
        return
    elif "skipped" not in line:
        # ADIOS2 tells neither of gaps nor of rewinds.
        if key[0] == before[0] and key[1] != due and _all_are_due_to(stream, reader):
            yield Breach("skipped", reader.name, f"step {key[1]} came after {before[1]}")
    elif key[1] > due or (key[1] != due and not line["rewound"]):
        told = f"{line['skipped']} told as skipped, {gone} as gone, {'a' if line['rewound'] else 'no'} rewind"
        yield Breach("skipped", reader.name, f"step {key[1]} came after {before[1]}, with {told}")


def _all_are_due_to(stream: StreamTimeline, reader: Process) -> bool:
    """Must this reader get every step?"""
    if reader.options.get("latest") or stream.keeping.drops_oldest:
        return False
    return stream.keeping.everything or reader.consumer in stream.keeping.consumers


def _begins_at_first(stream: StreamTimeline, reader: Process) -> bool:
    if reader.consumer or reader.options.get("start", "cursor") not in ("cursor", "oldest"):
        return False
    return _all_are_due_to(stream, reader)


def _end_breaches(stream: StreamTimeline, reader: Process) -> Iterator[Breach]:
    """Whoever is told that the stream has ended has seen the last step of a group that closed."""
    ends = [line for line in reader.named("end") if line["status"] == "ended"]
    if not ends or not reader.steps or stream.end_ns is not None:
        return
    last = reader.steps[-1]
    final = {
        (group.epoch, max((line["step"] for rank in group.ranks for line in rank.named("committed")), default=-1))
        for group in stream.groups.values()
        if any(rank.named("closing") for rank in group.ranks)
    }
    if any(epoch == last["epoch"] and step <= last["step"] for epoch, step in final):
        return
    # A group's last step may have been dropped, where an earlier one that somebody held was still there, or withdrawn.
    told_ns = ends[0]["told_ns"]
    seen = (last["epoch"], last["step"])
    for key in final:
        if key <= seen or key not in stream.commits or stream.commits[key][1] >= told_ns:
            continue
        if stream.withdrawn(key, begun_before_ns=told_ns) or not stream.due(key, told_ns):
            return
    # A group that closed without a step ends the stream where an earlier one left it.
    idle = any(
        group.next_step == last["step"] + 1 and group.epoch >= last["epoch"]
        for group in stream.groups.values()
        if any(rank.named("closing") for rank in group.ranks)
    )
    if not idle:
        yield Breach("lost", reader.name, f"the stream ended for it after step {last['step']}; groups ended at {final}")


def _cursor_breaches(stream: StreamTimeline, holders: list[Process]) -> Iterator[Breach]:
    acknowledged: StepKey | None = None
    seen: StepKey | None = None
    for holder in holders:
        if holder.steps:
            first = (holder.steps[0]["epoch"], holder.steps[0]["step"])
            if acknowledged is not None and first <= acknowledged:
                yield Breach("cursor", holder.name, f"got {first} although {acknowledged} had been acknowledged")
            highest = 0 if seen is None else seen[1] + 1
            passed = range(highest, first[1])
            told_ns = holder.steps[0]["told_ns"]
            if _all_are_due_to(stream, holder) and passed and not stream.may_all_be_lost(passed, told_ns):
                yield Breach("cursor", holder.name, f"got {first} first, where step {highest} at most was due")
        for line in holder.events:
            if line["event"] == "step":
                seen = (line["epoch"], line["step"])
            elif line["event"] == "acknowledged" and seen is not None:
                acknowledged = seen
