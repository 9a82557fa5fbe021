# SPDX-License-Identifier: Apache-2.0
"""What a driver remembers of one reservation: a file that is replaced as a whole, under a lock on its folder.

It says what was *allowed*: an export stands here before it is opened, and is marked before it is taken away. So an
operation that was killed can be repeated, and daemons that are started again open nothing that was fenced.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forebay.errors import BusyError, RefusedError
from forebay.workflows.files.state_file import STATE_NAME, StateFile
from forebay.workflows.staging.publication import write_whole

__all__ = [
    "NFS_STATE",
    "DriverState",
    "Export",
    "begin_incarnation",
    "check_incarnation",
    "exports_made_before",
    "exports_made_file",
    "keep_exports_made",
    "locked_file",
    "locked_folder",
    "newest_incarnation",
    "ports_taken",
]

_LOCK_NAME = "lock"
_INCARNATION_NAME = "incarnation"
_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Export:
    """One node's way in."""

    number: int  #: not used again until all others have been
    address: str  #: of the node
    fenced: bool = False  #: it is being taken away, or is


@dataclass(slots=True)
class DriverState:
    """Of one reservation."""

    reservation: str  #: its uuid
    incarnation: int  #: the highest that an operation came with
    tree: str
    file_system: str  #: UUID of the tree's file system
    address: str
    port: int
    lease_seconds: int
    exports_made: int = 0
    exports: dict[str, Export] = field(default_factory=dict)  #: by node
    daemons: dict[str, str] = field(default_factory=dict)  #: identity of each process, by its name


@contextlib.contextmanager
def locked_folder(folder: Path, deadline: float) -> Iterator[None]:
    """The folder's only user; made if it is not there. Raises as `locked_file`."""
    with locked_file(folder / _LOCK_NAME, deadline):
        yield


@contextlib.contextmanager
def locked_file(path: Path, deadline: float, *, passing: bool = False) -> Iterator[None]:
    """The only user of what this file stands for; made, with its folder, if it is not there. The lock ends with the
    process. `passing`: the file goes when its user does.

    Raises
    ------
    BusyError
        Another operation has it until the deadline, on the monotonic clock.
    """
    descriptor = _opened_lock(path)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BusyError("another operation on these files is under way", str(path.parent)) from None
                time.sleep(_POLL_SECONDS)
                continue
            if _is_named(path, descriptor):
                break
            # Who had it has removed it.
            os.close(descriptor)
            descriptor = _opened_lock(path)
        try:
            yield
        finally:
            if passing:
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _opened_lock(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_named(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def newest_incarnation(drivers: Path) -> int:
    """The last that was begun; 0 without any."""
    try:
        return int((drivers / _INCARNATION_NAME).read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return 0


def begin_incarnation(drivers: Path) -> int:
    """The next one: operations of earlier ones do nothing any more. The caller is the only manager."""
    drivers.mkdir(mode=0o700, parents=True, exist_ok=True)
    incarnation = newest_incarnation(drivers) + 1
    write_whole(drivers / _INCARNATION_NAME, f"{incarnation}\n", mode=0o600)
    return incarnation


def check_incarnation(drivers: Path, incarnation: int) -> None:
    """RefusedError if whoever asks has been replaced."""
    if newest_incarnation(drivers) > incarnation:
        raise RefusedError("a newer manager has taken over; this operation does nothing", str(drivers))


def ports_taken(drivers: Path) -> set[int]:
    """Of all reservations with a state, whichever driver it is of."""
    taken = set()
    for path in drivers.glob(f"*/{STATE_NAME}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            taken.add(int(json.loads(path.read_text(encoding="utf-8"))["port"]))
    return taken


def exports_made_file(folder: Path) -> Path:
    """Beside a reservation's folder, and outlives it: a node that was fenced long ago may still send what it has, which
    must meet no export of its number.
    """
    return folder.with_name(f"{folder.name}.exports")


def exports_made_before(folder: Path) -> int:
    """How many exports the reservation had when its files were last shown; 0 if they never were."""
    try:
        return int(exports_made_file(folder).read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0


def keep_exports_made(folder: Path, count: int) -> None:
    """For `exports_made_before`; durable."""
    write_whole(exports_made_file(folder), f"{count}\n", mode=0o600)


def _from_fields(fields: dict[str, Any]) -> DriverState:
    fields["exports"] = {node: Export(**values) for node, values in fields["exports"].items()}
    return DriverState(**fields)


#: Of the driver `nfs`.
NFS_STATE = StateFile("forebay.files-driver", _from_fields, "a driver", "these files are not shown on other nodes")
