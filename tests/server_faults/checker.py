# SPDX-License-Identifier: Apache-2.0
"""What the history of a pool of servers must keep, judged from the history alone.

The rules for streams, readers and looks are the soak's (tests/soak): whole steps in order, none twice without a word,
no durable one lost, and of the others only what went with a server's power. Here are those that need several servers:

- ``turns``: the ranks of a reader group are given the same steps;
- ``unavailable``: nobody is told so when all servers are there, with sound disks, and have been for a while;
- after a disk has failed, was full or took no writes, calls may say so; nothing else excuses such an error;
- a root restored from an old copy may lack what was not durable without anybody knowing: reading that is an error.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.soak.history import judge
from tests.soak.timeline import Breach, Line, Process, StreamTimeline

__all__ = ["check_history"]

#: What calls may say of a disk.
_OF_DISKS = {"io_error", "no_space", "failed", "busy"}
#: What a writer is told whose blocks were on their way when their server went away.
_LOST_ON_THE_WAY = "went away while blocks"
#: A home learns within ten seconds that a server that had no time to say so is away, and asks each second whether it is
#: back; a reader waits for a member a minute before it gives up.
_NOTICED_NS = 75_000_000_000
_MISMATCH = re.compile(r"step (\d+), .*checksum mismatch")


def check_history(lines: Iterable[Line]) -> list[Breach]:
    """Every promise that it breaks."""
    told = list(lines)
    streams, breaches = judge([line for line in told if not _is_excused(line, told)])
    breaches = [breach for breach in breaches if not _is_known_loss(breach, streams, told)]
    for stream in streams.values():
        breaches += _turn_breaches(stream)
        breaches += _unavailable_breaches(stream, told)
    return breaches


def _is_excused(line: Line, told: list[Line]) -> bool:
    """An error that what was done to a disk, or to a connection, explains."""
    if line["event"] != "error":
        return False
    # A view of a step that is lost is compared with its checksum before the home is asked whether the step is there.
    if (line.get("call"), line["code"]) == ("view", "corrupt"):
        return any(other["event"] == "lost power" and other["since_ns"] < line["told_ns"] for other in told)
    if line["code"] == "io_error" and _LOST_ON_THE_WAY in str(line.get("what")):
        return True
    return line["code"] in _OF_DISKS and any(
        other["event"] == "disk" and other["since_ns"] < line["told_ns"] for other in told
    )


def _is_known_loss(breach: Breach, streams: dict[str, StreamTimeline], told: list[Line]) -> bool:
    """Of an old copy that nothing tells from the newest."""
    found = _MISMATCH.search(breach.what)
    copies = [line for line in told if line["event"] == "lost power" and line.get("copy")]
    if breach.rule != "torn" or found is None or not copies:
        return False
    number = int(found[1])
    return any(
        step[1] == number and stream.may_be_lost(step, max(line["until_ns"] for line in copies))
        for stream in streams.values()
        if breach.where.startswith(f"{stream.address}/")
        for step in stream.commits
    )


def _turn_breaches(stream: StreamTimeline) -> Iterator[Breach]:
    groups: dict[str, list[Process]] = defaultdict(list)
    for reader in stream.readers:
        if int(reader.options.get("ranks", 1)) > 1:
            groups[reader.options["group"]].append(reader)
    for group, ranks in groups.items():
        given = [
            [(line["epoch"], line["step"], line["skipped"], line["rewound"]) for line in rank.steps] for rank in ranks
        ]
        for turn, answers in enumerate(zip(*given, strict=False)):
            if len(set(answers)) > 1:
                yield Breach("turns", f"{stream.address}, group {group}", f"turn {turn} brought {answers}")
                break


def _unavailable_breaches(stream: StreamTimeline, told_of_all: list[Line]) -> Iterator[Breach]:
    # A member whose disk takes nothing counts as one that is away, too.
    disks = [(line["since_ns"], line["told_ns"]) for line in told_of_all if line["event"] == "disk"]
    away = [*stream.outages, *disks]
    for process in (*stream.writers, *stream.readers):
        told = [line for line in process.named("error") if line["code"] == "unavailable"]
        for line in (*told, *process.named("unavailable")):
            if not any(since < line["told_ns"] < back + _NOTICED_NS for since, back in away):
                what = f"told so when all servers were there: {line.get('what')}"
                yield Breach("unavailable", process.name, what)
