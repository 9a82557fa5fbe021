# SPDX-License-Identifier: Apache-2.0
"""What Forebay itself saw of a stream, as far as advice depends on it: its steps, its space, who lags and who waits."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import forebay
from forebay.errors import StepGoneError
from forebay.instance import Instance
from forebay.records import Address, ConsumerInfo, Retention, StreamInfo, StreamStatus, StreamWait, WaitKind

__all__ = ["SMALL_BLOCK", "StreamFacts", "WriterWait", "look_at"]

#: Below this a block is packed with others, and costs more than its bytes.
SMALL_BLOCK = 4096

_LOOK_SECONDS = 0.05
#: What a writer waits for that it could do without; others of its group it cannot.
_WRITER_WAITS = (WaitKind.SPACE, WaitKind.READERS, WaitKind.DURABLE)


@dataclass(frozen=True)
class WriterWait:
    """The longest wait of one kind that was seen of a rank."""

    kind: WaitKind
    who: str
    waits_for: str
    seconds: float


@dataclass(frozen=True)
class StreamFacts:
    """One stream. Bytes and seconds."""

    path: str
    status: StreamStatus
    capacity_bytes: int
    #: Of the whole reservation.
    used_bytes: int
    retention: Retention
    #: Committed since the stream began, and those that are kept.
    steps_written: int = 0
    kept_steps: int = 0
    #: Of the kept steps.
    step_bytes_median: int = 0
    step_bytes_max: int = 0
    #: Between two commits; None: fewer than two steps are kept.
    step_seconds_median: float | None = None
    #: Of the newest step.
    blocks: int = 0
    small_blocks: int = 0
    blocks_without_checksum: int = 0
    #: Kept until they are staged out.
    precious_steps: int = 0
    precious_bytes: int = 0
    consumers: tuple[ConsumerInfo, ...] = ()
    waits: tuple[WriterWait, ...] = ()
    #: Share of the looks in which a rank waited: 0 to 1. None: nobody writes.
    waiting_share: float | None = None

    def as_json(self) -> dict[str, Any]:
        """A document of JSON."""
        return asdict(self) | {
            "status": self.status.value,
            "retention": str(self.retention),
            "consumers": [consumer.as_dict() for consumer in self.consumers],
            "waits": [asdict(wait) | {"kind": wait.kind.value} for wait in self.waits],
        }


def look_at(instance: Instance | None, path: str, seconds: float) -> StreamFacts:
    """The facts of a stream. If it is being written, waits are looked for during ``seconds``.

    Raises
    ------
    NotFoundError, PermissionDeniedError
        There is none, or the caller may not see it.
    """
    address = Address.parse(path)
    with forebay.Admin(instance) as admin:
        looks = [admin.stream(address.path)]
        end = time.monotonic() + seconds
        while looks[-1].status is StreamStatus.LIVE and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
            looks.append(admin.stream(address.path))
        reservation = admin.reservation(address.reservation, count_files=False)
        steps = admin.steps(address.path)
    info = looks[-1]
    blocks = _newest_blocks(instance, address.path, info)
    sizes = [step.size_bytes for step in steps]
    times = [step.time for step in steps]
    precious = [step.size_bytes for step in steps if step.precious]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return StreamFacts(
        path=address.path,
        status=info.status,
        capacity_bytes=reservation.capacity_bytes,
        used_bytes=reservation.used_bytes,
        retention=info.retention,
        steps_written=0 if info.committed is None else info.committed + 1,
        kept_steps=len(steps),
        step_bytes_median=int(statistics.median(sizes)) if sizes else 0,
        step_bytes_max=max(sizes, default=0),
        step_seconds_median=statistics.median(gaps) if gaps else None,
        blocks=len(blocks),
        small_blocks=sum(size < SMALL_BLOCK for size, _ in blocks),
        blocks_without_checksum=sum(checksum is None for _, checksum in blocks),
        precious_steps=len(precious),
        precious_bytes=sum(precious),
        consumers=info.consumers,
        waits=_longest_waits([wait for look in looks for wait in look.waits]),
        waiting_share=_waiting_share(looks),
    )


def _newest_blocks(instance: Instance | None, path: str, info: StreamInfo) -> list[tuple[int, int | None]]:
    """Bytes and checksum of each."""
    if info.committed is None or info.oldest is None:
        return []
    with forebay.open(path, instance=instance) as stream:
        try:
            (step,) = stream.steps_at([info.committed])
        except StepGoneError:  # Retention was quicker.
            return []
    return [(block.size_bytes, block.checksum) for variable in step.values() for block in variable.blocks]


def _longest_waits(waits: list[StreamWait]) -> tuple[WriterWait, ...]:
    now = time.time_ns()
    longest: dict[WaitKind, StreamWait] = {}
    for wait in waits:
        if wait.kind in _WRITER_WAITS:
            known = longest.setdefault(wait.kind, wait)
            if wait.since_ns < known.since_ns:
                longest[wait.kind] = wait
    return tuple(
        WriterWait(kind, wait.who, wait.waits_for, max(0.0, (now - wait.since_ns) / 1e9))
        for kind, wait in longest.items()
    )


def _waiting_share(looks: list[StreamInfo]) -> float | None:
    live = [look for look in looks if look.status is StreamStatus.LIVE]
    if not live:
        return None
    return sum(any(wait.kind in _WRITER_WAITS for wait in look.waits) for look in live) / len(live)
