# SPDX-License-Identifier: Apache-2.0
"""Processes that serve a root, by what the kernel says of them: also those whose files somebody removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forebay.instance import Instance
from forebay.manager.process_identity import process_identity

__all__ = ["RunningDaemon", "running_daemons", "strangers_text"]

_SERVER = b"forebayd"
_MANAGER = b"forebay.workflows.manager"


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A server or a manager that was started for this root's path."""

    pid: int
    name: str  #: "forebayd" or "the manager"
    has_lock: bool  #: False: it serves a root that was removed from this path


def running_daemons(instance: Instance) -> list[RunningDaemon]:
    """Those that the caller may look at: its own, and root all."""
    return sorted(_daemons(instance), key=lambda daemon: daemon.pid)


def strangers_text(instance: Instance) -> str:
    """What is wrong with processes that serve another root at the same path, and what to do; "" without any."""
    left = [daemon for daemon in running_daemons(instance) if not daemon.has_lock]
    if not left:
        return ""
    named = " and ".join(f"{daemon.name} (process {daemon.pid})" for daemon in left)
    pids = " ".join(str(daemon.pid) for daemon in left)
    return f"{named} still serve a root that was removed from this path; end them with `kill {pids}`"


def _daemons(instance: Instance) -> Iterator[RunningDaemon]:
    root = os.fsencode(instance.root)
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with suppress(OSError):
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            if root not in words or process_identity(int(entry)) is None:
                continue
            if os.path.basename(words[0]) == _SERVER:
                yield RunningDaemon(int(entry), "forebayd", _has_open(entry, instance.server_lock))
            elif _MANAGER in words:
                yield RunningDaemon(int(entry), "the manager", _has_open(entry, instance.manager_lock))


def _has_open(pid: str, path: Path) -> bool:
    """PermissionError if the process is another user's."""
    try:
        wanted = path.stat()
    except FileNotFoundError:
        return False
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if os.path.samestat(descriptor.stat(), wanted):
                return True
    return False
