# SPDX-License-Identifier: Apache-2.0
"""The folders of a job's scratch, side by side in the files of its reservation.

    files/JOB/            what the nodes share; $DW_JOB_STRIPED
    files/private/NODE/   each node's own, with a prolog, which makes it; where nodes mount files, pre_run does
    files/private/JOB/    that of the only node, without a prolog; $DW_JOB_PRIVATE

The job's user owns these folders and not the one above them. So `rm -rf $DW_JOB_STRIPED` empties the scratch and leaves
the folder, as with DataWarp, where it was a mount.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from forebay.errors import InvalidArgumentError, StorageError

__all__ = ["make_namespaces", "make_private_folders", "private_folder", "striped_folder"]

_PRIVATE = "private"
#: Numbers of jobs and names of nodes, which come from another server where the reservation's home is not the manager's.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def striped_folder(files: Path, token: str) -> Path:
    """The job's striped scratch. Its last name is the job's number, which old scripts take from it."""
    return files / token


def private_folder(files: Path, name: str) -> Path:
    """The private scratch of a node, or of the job."""
    return files / _PRIVATE / name


def make_namespaces(
    files: Path, token: str, uid: int, gid: int, *, private: bool, prolog: bool, shown: bool = False
) -> None:
    """Makes them; idempotent. `private`: also private scratch. `prolog`: each node makes its own. `shown`: those of
    nodes are made when the nodes are known.

    Raises
    ------
    StorageError
        One cannot be made, or something else has its name.
    InvalidArgumentError
        A name is none of a job or node.
    """
    owner = (uid, gid)
    try:
        with _opened(str(files)) as top:
            # First: from now on the user changes no name here.
            _give(top, (0, gid), 0o750)
            _make(top, token, owner, 0o770)
            if private:
                _make(top, _PRIVATE, owner if prolog else (0, gid), 0o700 if prolog else 0o711)
    except OSError as error:
        raise _failure(error, files) from None
    if private and not prolog and not shown:
        make_private_folders(files, (token,), uid, gid)


def make_private_folders(files: Path, names: Iterable[str], uid: int, gid: int) -> None:
    """Private scratch of the job's user by these names; idempotent. Raises as `make_namespaces`."""
    try:
        with _opened(str(files)) as top, _opened(_PRIVATE, top) as folder:
            for name in names:
                _make(folder, name, (uid, gid), 0o700)
    except OSError as error:
        raise _failure(error, files) from None


def _failure(error: OSError, files: Path) -> StorageError:
    return StorageError(f"the job's scratch cannot be made: {error.strerror}", str(files))


def _make(parent: int, name: str, owner: tuple[int, int], mode: int) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidArgumentError(f"{name[:80]!r} is no name of a job or node")
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    with _opened(name, parent) as folder:
        _give(folder, owner, mode)


def _give(folder: int, owner: tuple[int, int], mode: int) -> None:
    if os.geteuid() == 0:
        os.fchown(folder, *owner)
    os.fchmod(folder, mode)


@contextlib.contextmanager
def _opened(path: str, parent: int | None = None) -> Iterator[int]:
    """The folder itself, never what a link leads to."""
    descriptor = os.open(path, _FOLDER, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
