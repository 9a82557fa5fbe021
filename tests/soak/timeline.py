# SPDX-License-Identifier: Apache-2.0
"""What a history says of each stream: its groups, what they tried and were told, withdrawals, readers, looks at it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = [
    "Breach",
    "Group",
    "Keeping",
    "Line",
    "Loss",
    "Process",
    "StepKey",
    "StreamTimeline",
    "Withdrawal",
    "timelines",
]

Line = dict[str, Any]
#: Epoch and number: what a step is known by, and the order in which a reader gets steps.
StepKey = tuple[int, int]

#: What a process has asked for the server may handle some time after the process's end has been seen.
_HANDLED_NS = 2_000_000_000


@dataclass(frozen=True)
class Breach:
    """A promise that was not kept."""

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"[{self.rule}] {self.where}: {self.what}"


@dataclass(frozen=True)
class Keeping:
    """Which steps the stream must keep; as ``forebay.Retention``, and whether a full reservation may cost steps."""

    last: int | None = None
    consumers: tuple[str, ...] = ()
    precious_every: int = 0
    drops_oldest: bool = False

    @property
    def everything(self) -> bool:
        """Nothing ever goes but by withdrawal."""
        return self.last is None and not self.consumers and not self.drops_oldest


@dataclass
class Process:
    """One writer rank or reader, from its start."""

    name: str
    role: str
    options: Line
    started_ns: int
    events: list[Line] = field(default_factory=list)
    _by_name: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))

    def tell(self, line: Line) -> None:
        """One event more."""
        self.events.append(line)
        self._by_name[line["event"]].append(line)

    def named(self, event: str) -> list[Line]:
        """Its events of this name, in the order in which it told them."""
        return self._by_name.get(event, [])

    @cached_property
    def tried(self) -> set[int]:
        """The steps that this rank has tried to end."""
        return {line["step"] for line in self.named("ending")}

    @property
    def opening_ns(self) -> int:
        """When it had not yet asked for the stream."""
        opening = self.named("opening")
        return int(opening[0]["told_ns"]) if opening else self.started_ns

    @property
    def steps(self) -> list[Line]:
        """What it was given, in order."""
        return self.named("step")

    @property
    def consumer(self) -> str:
        """The name that it reads under, or nothing."""
        return str(self.options.get("consumer") or "")


@dataclass
class Group:
    """A writer group that has formed."""

    incarnation: int
    epoch: int
    next_step: int
    opening_ns: int  # the first of its ranks had asked
    opened_ns: int  # the first of its ranks knew
    ranks: list[Process]

    def ended(self, step: int) -> bool:
        """Has every rank tried to end this step? It cannot have committed otherwise."""
        return len(self.ranks) == int(self.ranks[0].options.get("ranks", 1)) and all(
            step in rank.tried for rank in self.ranks
        )

    def highest_tried(self, at_ns: int) -> int:
        """The newest step that may have committed by then, or -1."""
        newest = -1
        for rank in self.ranks:
            tried = rank.named("ending")
            begun = bisect_left(tried, at_ns, key=lambda line: int(line["told_ns"]))
            newest = max(newest, tried[begun - 1]["step"] if begun else -1)
        return newest


@dataclass(frozen=True)
class Withdrawal:
    """Steps of earlier epochs from ``first`` on are no more."""

    epoch: int
    first: int
    begun_ns: int  # not before
    known_ns: int  # somebody knew

    def hits(self, step: StepKey) -> bool:
        """Is this step withdrawn by it?"""
        return step[0] < self.epoch and step[1] >= self.first


@dataclass(frozen=True)
class Loss:
    """A server may have lost what it has not synced by then: its power, or all since an old copy of its root."""

    kept_ns: int  # what was durable by then is there
    begun_ns: int  # nothing was lost before
    over_ns: int  # what was committed after that is there


@dataclass
class StreamTimeline:
    """All that a history tells of one stream."""

    address: str
    keeping: Keeping = field(default_factory=Keeping)
    durable: bool = False  # a commit is told when it is durable
    writers: list[Process] = field(default_factory=list)
    readers: list[Process] = field(default_factory=list)
    looks: list[Line] = field(default_factory=list)  # "sampled", "kept", "staged", in order
    groups: dict[int, Group] = field(default_factory=dict)
    commits: dict[StepKey, tuple[int, int]] = field(default_factory=dict)  # incarnation, and when it was first told
    withdrawals: list[Withdrawal] = field(default_factory=list)
    end_ns: int | None = None  # when it was to be removed
    outages: list[tuple[int, int]] = field(default_factory=list)  # the server was killed, and was back
    losses: list[Loss] = field(default_factory=list)
    _passed: dict[str, dict[StepKey, int]] = field(default_factory=dict)
    _tried_by: tuple[int, dict[int, int]] = (-1, {})

    def group_of(self, step: StepKey) -> Group | None:
        """The newest group that may have committed the step."""
        found = [group for group in self.groups.values() if group.epoch == step[0] and group.ended(step[1])]
        return max(found, key=lambda group: group.incarnation, default=None)

    def refuted(self, step: StepKey, incarnation: int) -> bool:
        """A later group of the same epoch began at this number, so the earlier group's step had not committed."""
        return any(
            later.incarnation > incarnation and later.epoch == step[0] and later.next_step <= step[1]
            for later in self.groups.values()
        )

    def withdrawn(
        self, step: StepKey, *, known_before_ns: int | None = None, begun_before_ns: int | None = None
    ) -> bool:
        """By a withdrawal that somebody knew of by then, or that may have begun by then, or ever."""
        return any(
            withdrawal.hits(step)
            for withdrawal in self.withdrawals
            if (known_before_ns is None or withdrawal.known_ns < known_before_ns)
            and (begun_before_ns is None or withdrawal.begun_ns < begun_before_ns)
        )

    def passed_by(self, consumer: str, step: StepKey, before_ns: int) -> bool:
        """May this consumer's cursor have gone past the committed step by then?"""
        if consumer not in self._passed:
            self._passed[consumer] = self._first_passed(consumer)
        return self._passed[consumer].get(step, before_ns) < before_ns

    def _first_passed(self, consumer: str) -> dict[StepKey, int]:
        """When this consumer was first given each committed step, or a later one of its epoch or a later epoch."""
        given = sorted(
            (
                (line["step"], line["epoch"], line["told_ns"])
                for reader in self.readers
                if reader.consumer == consumer
                for line in reader.steps
            ),
            reverse=True,
        )
        passed: dict[StepKey, int] = {}
        earliest: dict[int, int] = {}  # by epoch, of the steps from the current number on
        taken = 0
        for epoch, number in sorted(self.commits, key=lambda step: step[1], reverse=True):
            while taken < len(given) and given[taken][0] >= number:
                _, of_epoch, told_ns = given[taken]
                earliest[of_epoch] = min(told_ns, earliest.get(of_epoch, told_ns))
                taken += 1
            times = [told_ns for of_epoch, told_ns in earliest.items() if of_epoch >= epoch]
            if times:
                passed[epoch, number] = min(times)
        return passed

    @cached_property
    def durable_ns(self) -> dict[StepKey, int]:
        """When it was first told of each committed step that it is durable."""
        told: dict[StepKey, list[int]] = defaultdict(list)
        if self.durable:
            for writer in self.writers:
                for line in writer.named("committed"):
                    told[line["epoch"], line["step"]].append(line["told_ns"])
        for look in self.looks:
            if look["event"] == "sampled" and look["durable"] is not None:
                for step, (_, committed_ns) in self.commits.items():
                    if step[0] <= look["epoch"] and step[1] <= look["durable"] and committed_ns < look["told_ns"]:
                        told[step].append(look["told_ns"])
        return {step: min(times) for step, times in told.items()}

    def may_be_lost(self, step: StepKey, at_ns: int) -> bool:
        """May this committed step have been lost by then with the power, or the newer copy, of a server?"""
        durable_ns = self.durable_ns.get(step)
        return any(
            loss.begun_ns < at_ns
            and self.commits[step][1] < loss.over_ns
            and (durable_ns is None or durable_ns >= loss.kept_ns)
            for loss in self.losses
        )

    def may_all_be_lost(self, numbers: Iterable[int], at_ns: int) -> bool:
        """May there have been steps of these numbers that are lost? Of those of which nobody was told, nobody knows."""
        if not any(loss.begun_ns < at_ns for loss in self.losses):
            return not list(numbers)
        known: dict[int, list[StepKey]] = defaultdict(list)
        for step in self.commits:
            known[step[1]].append(step)
        return all(
            not known[number] or any(self.may_be_lost(step, at_ns) for step in known[number]) for number in numbers
        )

    def due(self, step: StepKey, at_ns: int) -> bool:
        """Must this committed step still be kept then, by the stream's retention?"""
        if self.may_be_lost(step, at_ns):
            return False
        keeping = self.keeping
        if keeping.precious_every and step[1] % keeping.precious_every == 0:
            return not any(look["event"] == "staging" and look["told_ns"] < at_ns for look in self.looks)
        if keeping.drops_oldest and not self.needed(step, at_ns):
            return False
        if keeping.last is not None and not self.reached(step, step[1] + keeping.last, at_ns):
            return True
        if keeping.last is None and not keeping.consumers:
            return True
        return any(not self.passed_by(name, step, at_ns) for name in keeping.consumers)

    def needed(self, step: StepKey, at_ns: int) -> bool:
        """Has a named consumer, which was there before the step, still to get it? A full reservation spares it then."""
        committed_ns = self.commits[step][1]
        return any(
            not self.passed_by(reader.consumer, step, at_ns)
            for reader in self.readers
            if reader.consumer and reader.steps and reader.steps[0]["told_ns"] < committed_ns
        )

    def reached(self, step: StepKey, number: int, at_ns: int) -> bool:
        """May a step of this number or a higher one have committed by then, while the step was there?"""
        if self._tried_by[0] != at_ns:
            self._tried_by = (at_ns, self._highest_tried_from(at_ns))
        return self._tried_by[1].get(step[0], -1) >= number

    def _highest_tried_from(self, at_ns: int) -> dict[int, int]:
        """The newest step that may have committed by then, in each epoch or a later one."""
        highest = -1
        found: dict[int, int] = {}
        for group in sorted(self.groups.values(), key=lambda group: group.epoch, reverse=True):
            highest = max(highest, group.highest_tried(at_ns))
            found[group.epoch] = highest
        return found


def timelines(lines: Iterable[Line]) -> tuple[dict[str, StreamTimeline], list[Breach]]:
    """The streams of a history, and what cannot be told apart at all."""
    streams: dict[str, StreamTimeline] = {}
    processes: dict[str, Process] = {}
    breaches: list[Breach] = []
    outages: list[tuple[int, int]] = []
    losses: list[Loss] = []
    for line in lines:
        event = line["event"]
        if event == "stream":
            declared = line["keeping"]
            keeping = Keeping(**{**declared, "consumers": tuple(declared.get("consumers", ()))})
            streams[line["stream"]] = StreamTimeline(line["stream"], keeping, line.get("durable", False))
        elif event == "started":
            process = Process(line["name"], line["role"], line, line["told_ns"])
            processes[process.name] = process
            stream = streams[line["stream"]]
            (stream.writers if process.role == "writer" else stream.readers).append(process)
        elif event in ("sampled", "kept", "staging", "staged"):
            streams[line["stream"]].looks.append(line)
        elif event == "removing":
            streams[line["stream"]].end_ns = line["told_ns"]
        elif event == "away":
            outages.append((line["since_ns"], line["told_ns"]))
        elif event == "lost power":
            losses.append(Loss(line["kept_ns"], line["since_ns"], line["until_ns"]))
        elif event == "breach":
            breaches.append(Breach(line["rule"], line["who"], line["what"]))
        elif line["who"] in processes:
            processes[line["who"]].tell(line)
    for stream in streams.values():
        stream.outages = outages
        stream.losses = losses
        _form_groups(stream)
        breaches += _find_withdrawals(stream)
        _gather_commits(stream)
    return streams, breaches


def _form_groups(stream: StreamTimeline) -> None:
    ranks: dict[int, list[Process]] = defaultdict(list)
    for writer in stream.writers:
        for opened in writer.named("opened"):
            ranks[opened["incarnation"]].append(writer)
    for incarnation, members in sorted(ranks.items()):
        openings = [rank.named("opened")[0] for rank in members]
        first = min(openings, key=lambda line: int(line["told_ns"]))
        stream.groups[incarnation] = Group(
            incarnation,
            first["epoch"],
            first["next"],
            min(rank.opening_ns for rank in members),
            first["told_ns"],
            members,
        )


def _find_withdrawals(stream: StreamTimeline) -> list[Breach]:
    """Those that groups told of; and those of groups that died before they could."""
    told: dict[int, Withdrawal] = {}
    for group in stream.groups.values():
        if group.epoch > 1 and group.epoch not in told:
            asked = group.ranks[0].options
            if asked.get("mode") == "w" or asked.get("append_after") is not None:
                told[group.epoch] = Withdrawal(group.epoch, group.next_step, group.opening_ns, group.opened_ns)
    silent = [
        writer
        for writer in stream.writers
        if not writer.named("opened")
        and (writer.options.get("mode") == "w" or writer.options.get("append_after") is not None)
    ]
    epochs = {group.epoch: group.opened_ns for group in reversed(stream.groups.values())}
    for look in stream.looks:
        if look["event"] == "sampled":
            epochs.setdefault(look["epoch"], look["told_ns"])
    latest_epochs = [(group.opening_ns, group.epoch) for group in stream.groups.values()]
    latest_epochs += [(look["since_ns"], look["epoch"]) for look in stream.looks if look["event"] == "sampled"]
    breaches = []
    for epoch in range(2, max(epochs, default=1) + 1):
        known_ns = min(at for found, at in epochs.items() if found >= epoch)
        # A writer whose end was seen before an older epoch was still the latest has not caused this one.
        older_ns = max((at for at, latest in latest_epochs if latest < epoch), default=0)
        causes = [
            writer
            for writer in silent
            if writer.started_ns < known_ns
            and all(line["told_ns"] + _HANDLED_NS > older_ns for line in writer.named("exited"))
        ]
        firsts = [
            0 if writer.options.get("mode") == "w" else int(writer.options["append_after"]) + 1 for writer in causes
        ]
        begun = [writer.started_ns for writer in causes]
        if epoch in told:
            firsts.append(told[epoch].first)
            begun.append(told[epoch].begun_ns)
        if not firsts:
            breaches.append(Breach("epoch", stream.address, f"epoch {epoch} began, and nobody had asked for it"))
            continue
        told[epoch] = Withdrawal(epoch, min(firsts), min(begun), known_ns)
    stream.withdrawals = [told[epoch] for epoch in sorted(told)]
    return breaches


def _gather_commits(stream: StreamTimeline) -> None:
    """A step counts as committed when a rank, or a reader, was told of it."""
    for process in (*stream.writers, *stream.readers):
        for line in (*process.named("committed"), *process.named("step")):
            key = (line["epoch"], line["step"])
            known = stream.commits.get(key)
            if known is None or line["told_ns"] < known[1]:
                stream.commits[key] = (known[0] if known else line["incarnation"], line["told_ns"])
