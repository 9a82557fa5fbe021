# SPDX-License-Identifier: Apache-2.0
"""Turns between threads: what concerns the same name happens one after another, and what does not, does not wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["NameTurns"]


@dataclass(slots=True)
class _Turn:
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0  #: those who hold or want it


class NameTurns:
    """Locks by name, which are forgotten when nobody holds or wants them. Usable from several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()  # Guards what follows.
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def is_taken(self, name: str) -> bool:
        """True if somebody holds or wants it."""
        return name in self._turns

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Holds the turn of that name."""
        with self._guard:
            turn = self._turns.setdefault(name, _Turn())
            turn.users += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._guard:
                turn.users -= 1
                if not turn.users:
                    del self._turns[name]
