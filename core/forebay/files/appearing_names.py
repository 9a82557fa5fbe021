# SPDX-License-Identifier: Apache-2.0
"""The names of a folder that match: what lies under them, whether it is complete, and when to look again."""

from __future__ import annotations

import contextlib
import os
import select
import time
from dataclasses import dataclass, field, replace

from forebay.errors import RefusedError
from forebay.files.complete_rule import CompleteRule, RuleKind, Version
from forebay.files.folder_watch import FolderWatch
from forebay.files.name_choice import NameChoice
from forebay.files.open_folder import open_below_files
from forebay.files.open_writers import is_being_written

__all__ = ["AppearingNames", "Scan", "SeenName"]

_NAMES_MAX = 1_000_000
#: Changes of other nodes come without events.
_LOOK_AGAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SeenName:
    """A name that matches, as a scan saw it."""

    name: str
    version: Version
    is_complete: bool


@dataclass(slots=True)
class Scan:
    """What one look at the folder saw."""

    names: list[SeenName] = field(default_factory=list)  #: the oldest modification first, then by name
    ended_by: str = ""  #: a name that ends the following
    refused: str = ""  #: a name that matches, and is neither file nor folder


class AppearingNames:
    """Those of one folder of a reservation. Used by one thread.

    Parameters
    ----------
    files_path : str
        The reservation's ``files/``.
    path : str
        The folder below them; it may come later.
    """

    def __init__(self, files_path: str, path: str, choice: NameChoice, rule: CompleteRule) -> None:
        self._files_path = files_path
        self._path = path
        self._choice = choice
        self._rule = rule
        self._watch = FolderWatch()
        self._folder = -1
        self._is_there = False

    @property
    def is_there(self) -> bool:
        """The last scan has found the folder."""
        return self._is_there

    def scan(self) -> Scan:
        """Looks at the whole folder.

        Raises
        ------
        NotFoundError
            The reservation's files are gone.
        RefusedError
            There are too many names.
        InvalidArgumentError, PermissionDeniedError
            The folder cannot be opened, see `open_below_files`.
        """
        self._reopen()
        scan = Scan()
        if not self._is_there:
            return scan
        with os.scandir(self._folder) as entries:
            listed = [entry.name for entry in entries]
        for name in listed:
            if self._choice.ends(name):
                scan.ended_by = name
            if not self._choice.is_followed(name):
                continue
            with contextlib.suppress(FileNotFoundError):
                version, is_complete = self._rule.look(self._folder, name)
                if version is None:
                    scan.refused = name
                    continue
                scan.names.append(SeenName(name, version, is_complete))
                if not is_complete and version.is_folder:
                    self._watch_inner(name)
            if len(scan.names) > _NAMES_MAX:
                raise RefusedError(
                    f"more than {_NAMES_MAX} names match; give a --match that fewer do, or folders instead of files",
                    self._path,
                )
        scan.names.sort(key=lambda seen: (seen.version.mtime_ns, seen.name))
        return scan

    def is_still(self, seen: SeenName) -> bool:
        """The same version lies there, complete."""
        try:
            return self._rule.look(self._folder, seen.name) == (seen.version, True)
        except OSError:
            return False

    def after_use(self, name: str, version: Version) -> Version:
        """Which version counts as used. What its user himself changed in a folder makes no other one of it."""
        if version.is_folder:
            with contextlib.suppress(OSError):
                now, _ = self._rule.look(self._folder, name)
                if now is not None and now == replace(version, mtime_ns=now.mtime_ns):
                    return now
        return version

    def is_being_written(self, name: str) -> bool | None:
        """Whether a program has the file open for writing; None: nobody can tell. OSError: it cannot be opened."""
        return is_being_written(self._folder, name)

    def wait(self, wake: int | None = None, timeout_seconds: float | None = None) -> None:
        """Returns when it is worth while to look again; also when the descriptor ``wake`` is readable."""
        pause_seconds = _LOOK_AGAIN_SECONDS if timeout_seconds is None else min(timeout_seconds, _LOOK_AGAIN_SECONDS)
        deadline = time.monotonic() + pause_seconds
        poll = select.poll()
        for descriptor in (self._watch.fileno(), wake):
            if descriptor is not None and descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        while (left_seconds := deadline - time.monotonic()) > 0:
            ready = poll.poll(left_seconds * 1000)
            if any(descriptor == wake for descriptor, _ in ready):
                return
            # All of them, so that the next wait does not hear of them again.
            names = list(self._watch.read())
            if any(self._is_of_interest(name) for name in names):
                return

    def close(self) -> None:
        """Lets go of the folder."""
        self._watch.close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _is_of_interest(self, name: str | None) -> bool:
        if name is None or not self._is_there or self._rule.kind is RuleKind.MARKER:
            return True
        return self._choice.is_followed(name) or self._choice.ends(name)

    def _reopen(self) -> None:
        """Finds the folder by its path: another one may have its name since."""
        found = open_below_files(self._files_path, self._path)
        if self._folder >= 0:
            os.close(self._folder)
        self._folder, self._is_there = found.descriptor, found.is_whole_way
        # Before the names are read, so that nothing comes in between.
        self._watch.add(self._folder)

    def _watch_inner(self, name: str) -> None:
        """Its marker may come at any time."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            inner = os.open(name, flags, dir_fd=self._folder)
            try:
                self._watch.add(inner)
            finally:
                os.close(inner)
