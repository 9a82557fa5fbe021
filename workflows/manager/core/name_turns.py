# SPDX-License-Identifier: Apache-2.0
"""Turns: what concerns the same name happens one after another, and what does not, does not wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

from forebay.workflows.manager.core.used_by_key import UsedByKey

__all__ = ["NameTurns", "TaskTurns"]


class NameTurns:
    """Turns between threads."""

    def __init__(self) -> None:
        self._locks: UsedByKey[str, threading.Lock] = UsedByKey(threading.Lock)

    def __len__(self) -> int:
        return len(self._locks)

    def is_taken(self, name: str) -> bool:
        """True if somebody holds or wants it."""
        return name in self._locks

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Holds the turn of that name."""
        with self._locks.use(name) as lock, lock:
            yield


class TaskTurns:
    """Turns between tasks of the event loop."""

    def __init__(self) -> None:
        self._locks: UsedByKey[str, asyncio.Lock] = UsedByKey(asyncio.Lock)

    def is_taken(self, name: str) -> bool:
        """True if somebody holds or wants it."""
        return name in self._locks

    @contextlib.asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        """Holds the turn of that name."""
        with self._locks.use(name) as lock:
            async with lock:
                yield
