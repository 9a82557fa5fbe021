# SPDX-License-Identifier: Apache-2.0
"""Files and folders that appear whole under their name, in folders where others may change names, too."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["new_output"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def new_output(target: Path) -> Iterator[Path]:
    """Where to write what is to be `target`, a file or a folder; at the end of the block it has that name.

    It lies beside the target, in a new folder that only this user can enter, and its path goes by that folder's
    descriptor, in this process alone. So a link that somebody has put there leads to no other file. A block that raises
    leaves nothing.

    Raises
    ------
    OSError
        The folder cannot be made, or was exchanged; or the target is a folder with something in it.
    """
    hidden = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    hidden.mkdir(mode=0o700)
    folder = os.open(hidden, _FOLDER)
    try:
        if os.fstat(folder).st_uid != os.geteuid() or os.listdir(folder):
            raise PermissionError(f"somebody else has put a folder in the place of {hidden}")
        yield Path(f"/proc/self/fd/{folder}") / target.name
        os.rename(target.name, target, src_dir_fd=folder)
    finally:
        for left in os.listdir(folder):
            try:
                os.unlink(left, dir_fd=folder)
            except IsADirectoryError:
                shutil.rmtree(left, dir_fd=folder)
        os.close(folder)
        with suppress(OSError):  # exchanged
            hidden.rmdir()
