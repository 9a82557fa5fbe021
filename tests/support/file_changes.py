# SPDX-License-Identifier: Apache-2.0
"""The changes that a process makes to files, as the preloaded library file_changes.cpp sees them, and the accidents
that it can have at each.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import pytest

from forebay import parse_size

__all__ = ["Accident", "Change", "Moment", "deaths", "failures", "library", "logged_changes", "quick_folder"]

#: After these, a process may say something before it makes the next change. Behind any other is the same as before the
#: next one.
_FOLLOWED_BY_WORDS = frozenset({"remove", "rename"})

#: Where a disk can be found full. (Opening a file that is there needs no space; then a later change finds it so.)
_TAKING_SPACE = frozenset({"open", "write", "allocate", "mkdir", "link", "bind"})


class Moment(IntEnum):
    """When a process dies at a change, or what the system says instead; numbers as in file_changes.cpp."""

    BEFORE = 0
    HALFWAY = 1  #: half of what is to be written is
    BEHIND = 2
    FAILING = 3  #: the change does nothing but say EIO
    FULL = 4  #: half of what is to be written is, then all that takes space says ENOSPC


@dataclass(frozen=True, slots=True)
class Change:
    """One change, by what is the same in each run, whichever thread makes it and however they take turns."""

    kind: str
    path: str  #: within the folder that is watched; random digits in it are question marks
    occurrence: int  #: among those of the same kind and path: 1 is the first

    def __str__(self) -> str:
        return f"{self.kind} {self.path}" + (f" ({self.occurrence})" if self.occurrence > 1 else "")


@dataclass(frozen=True, slots=True)
class Accident:
    """What is to happen to a process, and where."""

    change: Change
    moment: Moment

    def __str__(self) -> str:
        return f"{self.moment.name.lower()} {self.change}"

    @property
    def deadly(self) -> bool:
        """Does it end the process?"""
        return self.moment <= Moment.BEHIND


def library() -> Path:
    """What is to be preloaded, from the build that ``$FOREBAY_BUILD_DIR`` names."""
    build = Path(os.environ.get("FOREBAY_BUILD_DIR") or "build/dev").resolve()
    built = build / "tests" / "support" / "libforebay_file_changes.so"
    if not built.is_file():
        pytest.fail(f"{built} is missing: build it with `./run build`, or name another with FOREBAY_BUILD_DIR")
    return built


def logged_changes(log: Path) -> list[Change]:
    """What a process made, in the order in which the changes began."""
    seen: Counter[tuple[str, str]] = Counter()
    changes = []
    for line in log.read_text().splitlines():
        kind, _, path = line.partition(" ")
        seen[kind, path] += 1
        changes.append(Change(kind, path, seen[kind, path]))
    return changes


def deaths(changes: Iterable[Change]) -> Iterator[Accident]:
    """Before each change; in the middle of writes and behind renames and removals as well."""
    for change in changes:
        yield Accident(change, Moment.BEFORE)
        if change.kind == "write":
            yield Accident(change, Moment.HALFWAY)
        elif change.kind in _FOLLOWED_BY_WORDS:
            yield Accident(change, Moment.BEHIND)


def failures(changes: Iterable[Change]) -> Iterator[Accident]:
    """Each change fails once for itself; at those that take space the disk is full from then on, too."""
    for change in changes:
        yield Accident(change, Moment.FAILING)
        if change.kind in _TAKING_SPACE:
            yield Accident(change, Moment.FULL)


@contextlib.contextmanager
def quick_folder(otherwise: Path) -> Iterator[Path]:
    """A folder in memory, where there is room for it: what dies is a process, so that no sync need take its time."""
    memory = "/dev/shm"
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > parse_size("1GiB")
    with tempfile.TemporaryDirectory(dir=memory if has_room else otherwise) as name:
        yield Path(name).resolve()
