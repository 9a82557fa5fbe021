# SPDX-License-Identifier: Apache-2.0
"""How fast streams are written: what has committed between two looks at them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from forebay.records import StreamInfo

__all__ = ["Rates", "StreamRate"]


@dataclass(frozen=True, slots=True)
class StreamRate:
    """A stream as it is now, and how fast it was written since the last look; None: not known."""

    info: StreamInfo
    steps_per_second: float | None
    bytes_per_second: float | None

    def as_dict(self) -> dict[str, Any]:
        """As JSON types: the stream's, with the rates."""
        return self.info.as_dict() | {
            "steps_per_second": self.steps_per_second,
            "bytes_per_second": self.bytes_per_second,
        }


class Rates:
    """Compares each look with the one before it."""

    def __init__(self) -> None:
        self._before: dict[str, StreamInfo] = {}
        self._seconds = 0.0

    def look(self, infos: Iterable[StreamInfo], seconds: float) -> list[StreamRate]:
        """The streams at a time, in seconds of any clock that only goes forward."""
        now = {info.name: info for info in infos}
        elapsed = seconds - self._seconds
        rates = [_rate(self._before.get(name), info, elapsed) for name, info in now.items()]
        self._before, self._seconds = now, seconds
        return rates


def _rate(before: StreamInfo | None, info: StreamInfo, elapsed: float) -> StreamRate:
    # Another epoch has other steps of these numbers; a server that was restarted counts from nothing.
    comparable = before is not None and elapsed > 0 and (before.uuid, before.epoch) == (info.uuid, info.epoch)
    if not comparable or before is None or info.committed_bytes < before.committed_bytes:
        return StreamRate(info, None, None)
    steps = _count(info) - _count(before)
    return StreamRate(info, steps / elapsed, (info.committed_bytes - before.committed_bytes) / elapsed)


def _count(info: StreamInfo) -> int:
    return 0 if info.committed is None else info.committed + 1
