# SPDX-License-Identifier: Apache-2.0
"""Files and folders that appear whole under their name, in folders where others may change names, too."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["new_output", "remove_left"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def new_output(target: Path) -> Iterator[Path]:
    """Where to write what is to be `target`, a file or a folder; at the end of the block it has that name.

    It lies beside the target, in a new folder that only this user can enter, and its path goes by a folder's
    descriptor, in this process alone. So a link that somebody has put there leads to no other file. A block that raises
    leaves nothing; what a process leaves that is killed, `remove_left` knows.

    Raises
    ------
    OSError
        The folder cannot be made, or was exchanged; or the target is a folder with something in it.
    """
    hidden = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    hidden.mkdir(mode=0o700)
    outer = os.open(hidden, _FOLDER)
    try:
        if os.fstat(outer).st_uid != os.geteuid() or os.listdir(outer):
            raise PermissionError(f"somebody else has put a folder in the place of {hidden}")
        os.mkdir(hidden.name, 0o700, dir_fd=outer)
        inner = os.open(hidden.name, _FOLDER, dir_fd=outer)
        try:
            yield Path(f"/proc/self/fd/{inner}") / target.name
            os.rename(target.name, target, src_dir_fd=inner)
        finally:
            os.close(inner)
            shutil.rmtree(hidden.name, dir_fd=outer)
    finally:
        os.close(outer)
        with suppress(OSError):  # exchanged
            hidden.rmdir()


def remove_left(hidden: Path, *others: str) -> None:
    """Removes a file or link, or a folder that a killed process has left. The folder is known by what lies in it:
    nothing but an entry of the folder's own name, or of these. Another one is left alone, for others may have given it
    that name.
    """
    try:
        outer = os.open(hidden, _FOLDER)
    except NotADirectoryError:
        hidden.unlink(missing_ok=True)
        return
    except OSError:
        return
    try:
        if os.fstat(outer).st_uid != os.geteuid() or not {hidden.name, *others}.issuperset(names := os.listdir(outer)):
            return
        for name in names:
            try:
                os.unlink(name, dir_fd=outer)
            except IsADirectoryError:
                shutil.rmtree(name, dir_fd=outer)
    finally:
        os.close(outer)
    with suppress(OSError):  # exchanged
        hidden.rmdir()
