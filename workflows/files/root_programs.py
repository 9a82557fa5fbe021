# SPDX-License-Identifier: Apache-2.0
"""Which programs root may run: those that nobody else can change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from forebay.errors import StorageError

__all__ = ["check_root_runs"]


def check_root_runs(program: Path) -> None:
    """Up to the root every folder is root's or ours, and nobody else may write there but where names are protected.

    Raises
    ------
    StorageError
        Another user may change it.
    """
    for path in (program, *program.parents):
        status = path.stat()
        others = stat.S_IMODE(status.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        # In a folder with the sticky bit others cannot take a name's place, but a program may be theirs to write.
        is_protected = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or (others and not is_protected):
            raise StorageError("another user may change this program, or its folder; root does not run it", str(path))
