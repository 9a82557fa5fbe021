# SPDX-License-Identifier: Apache-2.0
"""The table `[files.commands]`: the argument list of each operation, and how long it may take."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.errors import ForebayError, InvalidArgumentError, StorageError, UnsupportedError
from forebay.workflows.files.root_programs import check_root_runs

__all__ = ["OPERATIONS", "SiteCommands"]

OPERATIONS = (
    "prepare",
    "start",
    "ready",
    "mount",
    "admit",
    "unmount",
    "release",
    "fence",
    "stop",
    "destroy",
)
#: Without these nobody could say that what is copied is all there is, or that nothing is left.
_REQUIRED = ("mount", "unmount", "fence", "destroy")
_DEADLINES = "seconds_max"
_ARGUMENTS_MAX = 64


@dataclass(frozen=True, slots=True)
class SiteCommands:
    """What the site has filled in."""

    lists: Mapping[str, tuple[str, ...]]  #: arguments, by operation; the first is the program's path
    seconds: Mapping[str, float] = field(default_factory=dict)  #: deadlines that differ from `default_seconds`
    default_seconds: float = 30.0
    cgroup: str = ""  #: parent of those in which they run, as `DaemonCgroup` has it

    def seconds_max(self, operation: str) -> float:
        """How long one run of the command may take before it is killed."""
        return self.seconds.get(operation, self.default_seconds)

    @classmethod
    def from_table(cls, table: Any, default_seconds: float, path: Path) -> SiteCommands:
        """Reads it.

        Raises
        ------
        InvalidArgumentError
            A command is missing, unknown, or no list of texts that begins with an absolute path; or a deadline is none.
        """

        def wrong(what: str) -> InvalidArgumentError:
            return InvalidArgumentError(f"[files.commands] {what}", str(path))

        if not isinstance(table, dict):
            raise wrong("is no table")
        lists = {}
        for operation, arguments in table.items():
            if operation == _DEADLINES:
                continue
            if operation not in OPERATIONS:
                raise wrong(f"has no command {operation}; there are {', '.join(OPERATIONS)}, and {_DEADLINES}")
            is_list = isinstance(arguments, list) and 0 < len(arguments) <= _ARGUMENTS_MAX
            if not is_list or not all(isinstance(word, str) and "\0" not in word for word in arguments):
                raise wrong(f'{operation} must be a list of texts, as ["/opt/site/bin/{operation}"]')
            if not os.path.isabs(arguments[0]):
                raise wrong(f"{operation} must begin with the program's whole path, not with {arguments[0][:80]}")
            lists[operation] = tuple(arguments)
        if missing := [operation for operation in _REQUIRED if operation not in lists]:
            raise wrong(f"lacks {', '.join(missing)}; docs/operations/files-commands.md says what each must do")
        seconds = table.get(_DEADLINES, {})
        if not isinstance(seconds, dict) or not set(seconds) <= set(OPERATIONS):
            raise wrong(f"{_DEADLINES} must be a table of seconds by operation, as {{ start = 120 }}")
        if not all(type(value) in (int, float) and value > 0 for value in seconds.values()):
            raise wrong(f"{_DEADLINES} must be above 0")
        return cls(lists, {operation: float(value) for operation, value in seconds.items()}, default_seconds)

    def as_json(self) -> str:
        """For the process that carries an operation out."""
        return json.dumps(
            {"lists": self.lists, "seconds": self.seconds, "default": self.default_seconds, "cgroup": self.cgroup}
        )

    @classmethod
    def from_json(cls, text: str) -> SiteCommands:
        """What `as_json` made."""
        document = json.loads(text)
        lists = {operation: tuple(words) for operation, words in document["lists"].items()}
        return cls(lists, document["seconds"], document["default"], document["cgroup"])

    def check(self, operation: str) -> None:
        """Raises what is wrong with an operation's program.

        Raises
        ------
        UnsupportedError
            It is missing, or not executable.
        StorageError
            Another user may change it, or a file that is among its arguments, as a script of an interpreter is.
        """
        words = self.lists[operation]
        for word in words:
            if not os.path.isabs(word):
                continue
            try:
                real = Path(word).resolve(strict=True)
                is_file = stat.S_ISREG(real.stat().st_mode)
            except OSError:
                is_file = False
            if is_file:
                try:
                    check_root_runs(Path(os.path.abspath(word)).parent.resolve() / os.path.basename(word))
                    check_root_runs(real)
                except StorageError as error:
                    raise StorageError(f"[files.commands] {operation}: {error.what}", error.where) from None
            elif word is words[0]:
                raise UnsupportedError(f"[files.commands] {operation}: there is no program {word[:120]}")
        if not os.access(words[0], os.X_OK):
            raise UnsupportedError(f"[files.commands] {operation}: {words[0][:120]} is not executable")

    def problems(self) -> dict[str, ForebayError]:
        """What `check` says, by operation."""
        found: dict[str, ForebayError] = {}
        for operation in self.lists:
            try:
                self.check(operation)
            except ForebayError as error:
                found[operation] = error
        return found
