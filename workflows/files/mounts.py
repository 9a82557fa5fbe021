# SPDX-License-Identifier: Apache-2.0
"""What is mounted where, by the kernel's own table; nothing that is mounted is asked, so nothing here can hang."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from forebay.mounts import MOUNTS

__all__ = ["Mount", "mount_at", "mounts_below", "mounts_of"]

_ESCAPED = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table."""

    id: str  #: no other mount has it while this one is there
    place: str
    kind: str
    source: str
    root: str  #: which part of the file system is shown there
    device: str  #: its number, as "8:1"
    read_only: bool
    options: frozenset[str]  #: of the file system


def mount_at(place: Path, table: Path = MOUNTS) -> Mount | None:
    """The topmost mount at exactly this place, of which the folder above has no links; None if there is none."""
    wanted = os.fspath(place.parent.resolve() / place.name)
    found = [mount for mount in _mounts(table) if mount.place == wanted]
    return found[-1] if found else None


def mounts_below(folder: Path, table: Path = MOUNTS) -> list[Mount]:
    """All in the folder itself or deeper."""
    above = os.fspath(folder.resolve()) + "/"
    return [mount for mount in _mounts(table) if mount.place.startswith(above)]


def mounts_of(*kinds: str) -> list[Mount]:
    """All of file systems of these kinds."""
    return [mount for mount in _mounts(MOUNTS) if mount.kind in kinds]


def _mounts(table: Path) -> list[Mount]:
    mounts = []
    for line in table.read_bytes().splitlines():
        place, separator, system = line.partition(b" - ")
        words, rest = place.split(b" "), system.split(b" ")
        if separator and len(words) > 5 and len(rest) > 1:
            kind, source = map(_plain, rest[:2])
            read_only = b"ro" in words[5].split(b",")
            number, place_of, root, device = map(_plain, (words[0], words[4], words[3], words[2]))
            options = frozenset(map(_plain, rest[2].split(b","))) if len(rest) > 2 else frozenset()
            mounts.append(Mount(number, place_of, kind, source, root, device, read_only, options))
    return mounts


def _plain(word: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), word))
