# SPDX-License-Identifier: Apache-2.0
"""The process that a view lives for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import InvalidArgumentError, NotFoundError
from forebay.manager.process_identity import process_identity

__all__ = ["Holder", "calling_process", "holder_of"]


@dataclass(frozen=True)
class Holder:
    """A process, by a descriptor that never means another one."""

    pid: int
    identity: str
    descriptor: int  #: readable when the process has ended


def calling_process() -> Holder:
    """The process that called this command.

    A shell forks itself for ``$(…)`` and waits for nobody but the command. So copies of a process are passed over: a
    parent with the program and the arguments of its own parent.

    Raises
    ------
    NotFoundError
        It has ended already.
    """
    parent = os.getppid()
    pid = parent
    while (above := _parent_of(pid)) is not None and above > 1 and _same_program(pid, above):
        pid = above
    holder = holder_of(pid)
    if os.getppid() != parent or pid <= 1:
        raise NotFoundError("the process that called this command has ended; name another with --for PID")
    return holder


def holder_of(pid: int) -> Holder:
    """The process with this number.

    Raises
    ------
    NotFoundError
        There is none.
    """
    if pid < 1:
        raise InvalidArgumentError(f"a process has a number of 1 or more, not {pid}")
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        raise NotFoundError(f"there is no process {pid}") from None
    # Read after the descriptor was opened: if the process has ended since, the descriptor says so.
    return Holder(pid, process_identity(pid) or "", descriptor)


def _parent_of(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[1])


def _same_program(pid: int, other: int) -> bool:
    try:
        first, second = (Path(f"/proc/{number}/cmdline").read_bytes() for number in (pid, other))
        return bool(first) and first == second and os.path.samefile(f"/proc/{pid}/exe", f"/proc/{other}/exe")
    except OSError:
        return False
