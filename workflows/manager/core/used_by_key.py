# SPDX-License-Identifier: Apache-2.0
"""Things by key, such as locks, of which each exists only while somebody uses it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["UsedByKey"]

_Key = TypeVar("_Key")
_Thing = TypeVar("_Thing")


@dataclass(slots=True)
class _Used(Generic[_Thing]):
    thing: _Thing
    users: int = 0


class UsedByKey(Generic[_Key, _Thing]):
    """Makes a thing for whoever is the first to use its key. Usable from several threads."""

    def __init__(self, make: Callable[[], _Thing]) -> None:
        self._make = make
        self._guard = threading.Lock()  # Guards what follows.
        self._used: dict[_Key, _Used[_Thing]] = {}

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, key: _Key) -> bool:
        return key in self._used

    @contextlib.contextmanager
    def use(self, key: _Key) -> Iterator[_Thing]:
        """The key's thing, which all who use it at a time have in common."""
        with self._guard:
            used = self._used.get(key) or self._used.setdefault(key, _Used(self._make()))
            used.users += 1
        try:
            yield used.thing
        finally:
            with self._guard:
                used.users -= 1
                if not used.users:
                    del self._used[key]
