# SPDX-License-Identifier: Apache-2.0
"""What looks at a stream may find: the steps that are kept, the watermarks, and what a stage-out left."""

from __future__ import annotations

from collections.abc import Iterator

from tests.soak.reading_rules import unlikely
from tests.soak.timeline import Breach, Line, StreamTimeline

__all__ = ["record_breaches"]


def record_breaches(stream: StreamTimeline) -> list[Breach]:
    """Everything that is wrong with what was found of one stream."""
    breaches: list[Breach] = []
    before: Line | None = None
    for look in stream.looks:
        if look["event"] == "kept":
            breaches += _kept_breaches(stream, look)
        elif look["event"] == "sampled":
            breaches += _watermark_breaches(stream, before, look)
            before = look
        elif look["event"] == "staged":
            breaches += _staged_breaches(stream, look)
    for reader in stream.readers:
        checked = reader.named("checked")
        if reader.role == "checker" and checked:
            steps = [[line["step"], line["epoch"], line["incarnation"]] for line in reader.steps]
            breaches += _kept_breaches(
                stream,
                {
                    "steps": steps,
                    "unavailable": [line["step"] for line in reader.named("unavailable")],
                    "since_ns": reader.opening_ns,
                    "told_ns": checked[0]["told_ns"],
                    "who": reader.name,
                },
            )
    return breaches


def _kept_breaches(stream: StreamTimeline, look: Line) -> Iterator[Breach]:
    """``since_ns`` is when the look began, ``told_ns`` when it ended."""
    where = f"{stream.address}, seen by {look['who']}"
    kept = [(epoch, number) for number, epoch, *_ in look["steps"]]
    numbers = [number for _, number in kept]
    if len(set(numbers)) != len(numbers):
        yield Breach("duplicated", where, f"a number is kept twice: {numbers}")
    elif numbers != sorted(numbers) or kept != sorted(kept):
        yield Breach("reordered", where, f"kept steps are not in order of number and epoch: {kept}")
    for number, epoch, incarnation, *_ in look["steps"]:
        if why := unlikely(stream, (epoch, number), incarnation):
            yield Breach("phantom", where, f"step {number} of epoch {epoch} is kept: {why}")
        if stream.withdrawn((epoch, number), known_before_ns=look["since_ns"]):
            yield Breach("withdrawn", where, f"step {number} of epoch {epoch} is kept, but was withdrawn")
    found = set(kept)
    # Kept by a server that is away.
    away = set(look.get("unavailable", ()))
    for step, (_, told_ns) in stream.commits.items():
        if step in found or step[1] in away or told_ns >= look["since_ns"] or not stream.due(step, look["told_ns"]):
            continue
        if not stream.withdrawn(step, begun_before_ns=look["told_ns"]):
            yield Breach("lost", where, f"step {step[1]} of epoch {step[0]} had committed and is not kept")


def _watermark_breaches(stream: StreamTimeline, before: Line | None, look: Line) -> Iterator[Breach]:
    where = f"{stream.address}, watermarks"
    durable = -1 if look["durable"] is None else look["durable"]
    committed = -1 if look["committed"] is None else look["committed"]
    if durable > committed:
        yield Breach("durable", where, f"step {durable} is durable, but {committed} is the newest committed")
    if before is not None:
        if look["epoch"] < before["epoch"]:
            yield Breach("epoch", where, f"epoch {before['epoch']} was followed by {look['epoch']}")
        cuts = [cut.first - 1 for cut in stream.withdrawals if before["epoch"] < cut.epoch <= look["epoch"]]
        for name, now in (("durable", durable), ("committed", committed)):
            earlier = -1 if before[name] is None else before[name]
            # What is lost counts no more; what of it was durable is looked for among the kept steps.
            is_lost = any(
                loss.begun_ns < look["told_ns"] and loss.over_ns > before["since_ns"] for loss in stream.losses
            )
            if now < min([earlier, *cuts]) and not is_lost:
                yield Breach("durable", where, f"the {name} watermark went back from {earlier} to {now}")
    for (epoch, step), (_, told_ns) in stream.commits.items():
        if step <= (durable if stream.durable else committed) or told_ns >= look["since_ns"] or epoch > look["epoch"]:
            continue
        if stream.withdrawn((epoch, step), begun_before_ns=look["told_ns"]):
            continue
        if stream.may_be_lost((epoch, step), look["told_ns"]):
            continue
        if step > committed:
            yield Breach("lost", where, f"step {step} had committed, but the newest is {committed}")
        if stream.durable and step > durable and _told_to_writer(stream, epoch, step, look["since_ns"]):
            yield Breach("durable", where, f"step {step} was told as durable, but the watermark is {durable}")


def _told_to_writer(stream: StreamTimeline, epoch: int, step: int, before_ns: int) -> bool:
    return any(
        line["step"] == step and line["epoch"] == epoch and line["told_ns"] < before_ns
        for writer in stream.writers
        for line in writer.named("committed")
    )


def _staged_breaches(stream: StreamTimeline, look: Line) -> Iterator[Breach]:
    """``entries`` are the receipt's [step, epoch, what is wrong with the output]; it began after ``since_ns``."""
    where = f"{stream.address}, staged to {look['destination']}"
    entries = {(epoch, number) for number, epoch, _ in look["entries"]}
    for number, epoch, wrong in look["entries"]:
        if wrong:
            yield Breach("staged", where, f"step {number} of epoch {epoch}: {wrong}")
        group = stream.group_of((epoch, number))
        why = "no group ended it" if group is None else unlikely(stream, (epoch, number), group.incarnation)
        if why:
            yield Breach("staged", where, f"step {number} of epoch {epoch} never committed: {why}")
    if look["state"] != "succeeded":
        return
    for step, (_, told_ns) in stream.commits.items():
        if told_ns >= look["since_ns"] or step[1] % look["every"] or stream.withdrawn(step):
            continue
        if step not in entries and stream.keeping.everything:
            yield Breach(
                "staged", where, f"step {step[1]} of epoch {step[0]} is not there, although the stage succeeded"
            )
