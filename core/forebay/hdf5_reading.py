# SPDX-License-Identifier: Apache-2.0
"""Opens HDF5 files to read. A file of another user may name files that its reader may read and they may not: with
external storage, virtual datasets and external links. Of such a file nothing of the kind is followed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.errors import PermissionDeniedError
from forebay.files.open_folder import open_file
from forebay.hdf5 import import_h5py

if TYPE_CHECKING:
    import h5py

__all__ = ["open_hdf5", "readable_path"]


@contextlib.contextmanager
def open_hdf5(path: str | os.PathLike[str]) -> Iterator[h5py.File]:
    """The file, to read.

    Raises
    ------
    PermissionDeniedError
        It is of another user and refers to other files, or a link of another user leads to it.
    OSError
        What the system or HDF5 says.
    """
    with readable_path(path) as place:
        opened = import_h5py().File(place, "r")
    with opened as file:
        yield file


@contextlib.contextmanager
def readable_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """A path for libraries that open HDF5 files by themselves, inside this context: they must have it open at its end.

    Of a file of another user it is that of the very file that was looked at, whatever becomes of its name.

    Raises
    ------
    PermissionDeniedError, OSError
        As `open_hdf5`; or another file got the name before it was opened.
    """
    descriptor = open_file(path)
    try:
        if os.fstat(descriptor).st_uid in (0, os.geteuid()):
            before = _times_open(descriptor)
            yield os.fspath(path)  # from which relative names of other files go
            if _times_open(descriptor) <= before:
                raise PermissionDeniedError("another file got its name while it was opened", os.fspath(path))
            return
        place = f"/proc/self/fd/{descriptor}"
        if _is_hdf5(descriptor):
            with import_h5py().File(place, "r") as file:
                if found := _reference(file):
                    raise PermissionDeniedError(
                        f"{found}, and the file belongs to another user, who may not read those: copy it if "
                        "you trust it",
                        os.fspath(path),
                    )
        yield place
    finally:
        os.close(descriptor)


def _times_open(descriptor: int) -> int:
    """How many descriptors of this process lead to that file: libraries do not tell theirs."""
    wanted, found = os.fstat(descriptor), 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found += os.path.samestat(wanted, os.stat(f"/proc/self/fd/{number}"))
    return found


def _is_hdf5(descriptor: int) -> bool:
    """Its signature is at 0, 512, 1024, 2048 and so on."""
    size, place = os.fstat(descriptor).st_size, 0
    while place < size:
        if os.pread(descriptor, 8, place) == b"\x89HDF\r\n\x1a\n":
            return True
        place = max(512, 2 * place)
    return False


def _reference(file: h5py.File) -> str:
    """The first thing in it that leads to another file; "" without any."""
    h5py = import_h5py()
    found = ""

    def link(name: bytes, info: Any) -> bool | None:
        nonlocal found
        if info.type not in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT):
            found = f"{Path('/', os.fsdecode(name))} is a link to another file"
        return True if found else None

    def item(name: str, thing: Any) -> bool | None:
        nonlocal found
        if isinstance(thing, h5py.Dataset):
            if thing.external:
                found = f"/{name} lies in external files"
            elif thing.is_virtual and any(source.file_name != "." for source in thing.virtual_sources()):
                found = f"/{name} is put together from other files"
        return True if found else None

    file.id.links.visit(link, info=True)
    if not found:
        file.visititems(item)
    return found
