# SPDX-License-Identifier: Apache-2.0
"""How much of what users' programs say is read in a second, shared out between the users. Belongs to the event loop's
thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["ReadingBudget", "ReadingBudgets"]

#: Of all users together. Rows of 100 bytes: 160 000 files in a second, of which a core of the manager is busy.
_BYTES_PER_SECOND = 16 << 20
#: A message costs this much at least, however short it is.
_MESSAGE_BYTES_MIN = 4096
_BURST_SECONDS = 0.5


class ReadingBudget:
    """One user's, for all of the user's programs.

    Parameters
    ----------
    rate : callable
        Bytes in a second, at this moment.
    """

    def __init__(self, rate: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._paid_until = 0.0

    async def take(self, size_bytes: int) -> None:
        """Returns when so much was read lately that this much more may be."""
        now = self._clock()
        self._paid_until = max(self._paid_until, now - _BURST_SECONDS) + (
            max(size_bytes, _MESSAGE_BYTES_MIN) / self._rate()
        )
        if self._paid_until > now:
            await asyncio.sleep(self._paid_until - now)


class ReadingBudgets:
    """Those of all users who have programs. One user alone gets half of the whole, so that a second finds the other."""

    def __init__(self) -> None:
        self._users: dict[int, tuple[ReadingBudget, int]] = {}

    def begin(self, uid: int) -> ReadingBudget:
        """A program of this user begins."""
        budget, programs = self._users.get(uid) or (ReadingBudget(self._rate), 0)
        self._users[uid] = budget, programs + 1
        return budget

    def end(self, uid: int) -> None:
        """It is over."""
        budget, programs = self._users[uid]
        if programs == 1:
            del self._users[uid]
        else:
            self._users[uid] = budget, programs - 1

    def _rate(self) -> float:
        return _BYTES_PER_SECOND / max(2, len(self._users))
