# SPDX-License-Identifier: Apache-2.0
"""Who waits for a stage learns that it has changed. Belongs to the event loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

__all__ = ["StageChanges"]


class StageChanges:
    """A version of each stage, which goes up with each change.

    Parameters
    ----------
    ended_kept : int
        Of so many stages that have ended, the versions are kept: somebody may be about to look at them.
    """

    def __init__(self, ended_kept: int) -> None:
        self._versions: dict[int, int] = {}
        self._ended: deque[int] = deque()
        self._ended_kept = ended_kept
        self._changed = asyncio.Condition()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._versions)

    def version(self, stage_id: int) -> int:
        """0: nothing has changed yet."""
        return self._versions.get(stage_id, 0)

    async def announce(self, stage_id: int, *, ended: bool = False) -> None:
        """The stage has changed, perhaps for the last time."""
        async with self._changed:
            self._versions[stage_id] = self.version(stage_id) + 1
            if ended and stage_id not in self._ended:
                self._ended.append(stage_id)
            while len(self._ended) > self._ended_kept:
                self._versions.pop(self._ended.popleft(), None)
            self._changed.notify_all()

    async def wait(self, stage_id: int, seen: int, timeout_seconds: float) -> None:
        """Returns when the version is not `seen`, or the time is up, or nothing changes any more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds), self._changed:
                await self._changed.wait_for(lambda: self._is_closed or self.version(stage_id) != seen)

    async def close(self) -> None:
        """Nothing changes any more: who waits returns."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()
