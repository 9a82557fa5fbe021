# SPDX-License-Identifier: Apache-2.0
"""Turns: what concerns the same thing happens one after another, and what does not, does not wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

__all__ = ["Turns"]


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Turns:
    """Locks by name, which are forgotten when nobody holds or wants them. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def is_taken(self, name: str) -> bool:
        """True if somebody holds or wants it."""
        return name in self._turns

    @contextlib.asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Holds the turn of that name."""
        turn = self._turns.setdefault(name, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[name]
