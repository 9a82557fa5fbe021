# SPDX-License-Identifier: Apache-2.0
"""Which rows of the manager's database have changed, for whoever keeps something that is made of them."""

from __future__ import annotations

import threading

__all__ = ["TouchedRows"]


class TouchedRows:
    """Keys of rows that have changed since they were last taken, by table. Usable from several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()  # Guards what follows.
        self._keys: dict[str, set[int | str]] = {}

    def note(self, table: str, key: int | str) -> None:
        """The row has changed: to be called when the change can be read."""
        with self._guard:
            self._keys.setdefault(table, set()).add(key)

    def take(self) -> dict[str, set[int | str]]:
        """All of them; from now on only later ones are noted."""
        with self._guard:
            keys, self._keys = self._keys, {}
        return keys
