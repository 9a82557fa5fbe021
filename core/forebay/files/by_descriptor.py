# SPDX-License-Identifier: Apache-2.0
"""Files of a reservation by descriptors, for programs that go by paths: others who may write in a reservation can put
links of their own anywhere in it, at any time, and these lead nowhere.

The paths that are given out, ``/proc/self/fd/…``, are of this process, inside the block alone.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay.files.open_folder import open_entry, open_outside

__all__ = ["copy_out", "found_entry", "found_inner", "found_place"]

_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def found_entry(path: Path | str) -> Iterator[Path]:
    """The file or folder of this absolute path, whatever becomes of its name; raises as `open_entry`."""
    with _shown(open_entry(str(path))) as entry:
        yield entry


@contextmanager
def found_place(path: Path | str, *, makes: bool = False) -> Iterator[Path]:
    """The last name of this absolute path in the folder above it; raises as `open_entry`, for the folder. With `makes`,
    folders that are not there are made. What has the name, a link of somebody else perhaps, is not looked at.
    """
    above, name = os.path.split(path)
    with _shown(open_outside(above) if makes else open_entry(above)) as folder:
        yield folder / name


@contextmanager
def found_inner(folder: Path, *, makes: bool = False) -> Iterator[Path]:
    """A folder that an output has in one that the user named; raises as `open_entry`. With `makes`, it is made.

    The way to the one above it may go by any links. A link of another user in its own place leads nowhere.
    """
    path = os.path.join(os.path.realpath(folder.parent), folder.name)
    with _shown(open_outside(path) if makes else open_entry(path)) as inner:
        yield inner


def copy_out(source: Path, target: Path) -> None:
    """Copies what `found_entry` gave, a file or a tree, over what is there. Links in a tree stay links."""
    if not source.is_dir():
        shutil.copy2(source, target)
        return
    target.mkdir(parents=True, exist_ok=True)
    with _shown(os.open(source, _LISTED)) as folder:
        for name in os.listdir(folder):
            descriptor = os.open(folder / name, _ENTRY)
            with _shown(descriptor) as entry:
                if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                    (target / name).unlink(missing_ok=True)
                    (target / name).symlink_to(os.readlink("", dir_fd=descriptor))
                else:
                    copy_out(entry, target / name)
    shutil.copystat(source, target)


@contextmanager
def _shown(descriptor: int) -> Iterator[Path]:
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
