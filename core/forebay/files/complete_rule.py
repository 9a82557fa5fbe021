# SPDX-License-Identifier: Apache-2.0
"""How a program tells that it is done with a file or a folder: the rules of ``--complete``."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from forebay.errors import InvalidArgumentError

__all__ = ["CompleteRule", "RuleKind", "Version"]

_MARKER = "marker="


class RuleKind(StrEnum):
    """See docs/design/file-follow.md."""

    RENAME = "rename"  #: what appears under a name is whole
    MARKER = "marker"  #: a folder has an entry of this name; beside a file lies one with the file's name before it
    CLOSED = "closed"  #: it is a file, and no program has it open for writing


@dataclass(frozen=True, slots=True)
class Version:
    """What lies under a name. Another version has another one of these."""

    is_folder: bool
    inode: int
    size_bytes: int  #: of a folder 0
    mtime_ns: int
    marker_inode: int = 0
    marker_mtime_ns: int = 0

    @classmethod
    def of(cls, status: os.stat_result, marker: os.stat_result | None = None) -> Self | None:
        """None: it is neither a file nor a folder."""
        is_folder = stat.S_ISDIR(status.st_mode)
        if not is_folder and not stat.S_ISREG(status.st_mode):
            return None
        version = (is_folder, status.st_ino, 0 if is_folder else status.st_size, status.st_mtime_ns)
        return cls(*version) if marker is None else cls(*version, marker.st_ino, marker.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class CompleteRule:
    """One of the rules."""

    kind: RuleKind
    marker: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``rename``, ``marker=NAME`` or ``closed``; InvalidArgumentError if it is none."""
        if text in (RuleKind.RENAME, RuleKind.CLOSED):
            return cls(RuleKind(text))
        marker = text.removeprefix(_MARKER)
        if text.startswith(_MARKER) and marker not in ("", ".", "..") and "/" not in marker and "\0" not in marker:
            return cls(RuleKind.MARKER, marker)
        raise InvalidArgumentError(
            f"--complete {text[:80]!r} is no rule: write rename, closed, or marker=NAME, NAME being an entry of the "
            "folder, or what follows a file's name"
        )

    def __str__(self) -> str:
        return f"{_MARKER}{self.marker}" if self.kind is RuleKind.MARKER else self.kind.value

    def look(self, folder: int, name: str) -> tuple[Version | None, bool]:
        """What lies under a name of an open folder, and whether it is complete. No link is followed.

        ``closed`` is judged by whoever opens the file.

        Raises
        ------
        FileNotFoundError
            There is no such name (any more).
        """
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        version = Version.of(status)
        if version is None or self.kind is RuleKind.RENAME:
            return version, version is not None
        if self.kind is RuleKind.CLOSED:
            return version, not version.is_folder
        try:
            return Version.of(status, self._marker_of(folder, name, version)), True
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return version, False

    def _marker_of(self, folder: int, name: str, version: Version) -> os.stat_result:
        if not version.is_folder:
            return os.stat(name + self.marker, dir_fd=folder, follow_symlinks=False)
        inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            return os.stat(self.marker, dir_fd=inner, follow_symlinks=False)
        finally:
            os.close(inner)
