# SPDX-License-Identifier: Apache-2.0
"""Folders that are made for an output, and go again if nothing came into them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["MadeFolders"]


class MadeFolders:
    """Makes a folder and those above it, and knows which were not there before."""

    def __init__(self, folder: Path) -> None:
        self._made: list[Path] = []  # the deepest first
        for path in (folder, *folder.parents):
            if path.is_dir():
                break
            self._made.append(path)
        folder.mkdir(parents=True, exist_ok=True)

    def remove_empty(self) -> None:
        """Removes those of them that are empty. Idempotent."""
        with suppress(OSError):
            for path in self._made:
                path.rmdir()
