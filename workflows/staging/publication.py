# SPDX-License-Identifier: Apache-2.0
"""How outputs appear: in a folder that nobody else can enter until they are whole, synced and checked, then by one
rename.

Names in a destination: in the folder ``.OUTPUT.partial-TAG`` one is being written, under the folder's own name; an
older output on its way out lies beside it, as ``.OUTPUT.replaced-TAG``. Whoever holds the destination's lock may remove
such a folder. Somebody else who may write in the destination can move it away, but what is made in it goes by its
descriptor (docs/design/file-mover.md); or can give its name to another folder, which is known by what lies in it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import struct
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from forebay.errors import BusyError, StorageError
from forebay.new_output import remove_left
from forebay.workflows.staging.checksum import forget_cached_pages

__all__ = [
    "LOCK_NAME",
    "destination_lock",
    "discard",
    "make_directory",
    "open_own_folder",
    "partial_path",
    "publish",
    "remove",
    "remove_leftovers",
    "sync_directory",
    "sync_name",
    "sync_tree",
    "write_whole",
]

LOCK_NAME = ".forebay-stage.lock"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVAL_TRIES = 100
_REMOVAL_PAUSE_SECONDS = 0.01


#: Open folders of outputs that are being made, by the paths of these.
_folders: dict[Path, tuple[int, Path]] = {}


def _hidden_name(output: Path) -> str:
    return f".{output.name}.partial-{secrets.token_hex(4)}"


def partial_path(output: Path) -> Path:
    """A fresh path, in a folder of its own beside the output. `publish` or `remove` ends it.

    The path names the folder's descriptor, so that whatever is made there is made in this very folder.

    Raises
    ------
    StorageError
        Somebody else put another folder in its place.
    """
    name = _hidden_name(output)
    folder = output.with_name(name)
    folder.mkdir(mode=0o700)
    descriptor = os.open(folder, _FOLDER)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o777 != 0o700:
        os.close(descriptor)
        raise StorageError("another user exchanges names in this folder; choose another destination", str(folder))
    path = Path(f"/proc/self/fd/{descriptor}/{name}")
    _folders[path] = (descriptor, folder)
    return path


def _end_folder(partial: Path) -> None:
    """Removes the folder of an output that is not in it any more."""
    if partial not in _folders:
        return
    descriptor, folder = _folders.pop(partial)
    os.close(descriptor)
    try:
        folder.rmdir()
    except OSError as error:
        # Somebody may have put something else there, which is not ours to remove.
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST):
            raise


def sync_directory(directory: Path) -> None:
    """Makes the directory's entries durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_name(directory: Path) -> None:
    """Makes a directory's own name durable; not that of a mount, nor where what has it may not be read or synced."""
    own = directory.resolve()
    if own.is_mount() or not os.access(own.parent, os.R_OK):
        return
    try:
        sync_directory(own.parent)
    except OSError as error:
        # File systems that change nothing, or keep nothing, may not know such a sync.
        if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOTSUP):
            raise


def make_directory(directory: Path) -> None:
    """Makes it and those above it that are not there, durably."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
    # Of the first one that is there already, too: who made it may not have come to this.
    sync_name(directory)


def sync_tree(path: Path) -> None:
    """Makes a file, or all files and directories below a directory, durable, and lets the kernel forget their pages."""
    if path.is_dir():
        for child in path.iterdir():
            sync_tree(child)
        sync_directory(path)
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        forget_cached_pages(descriptor)
    finally:
        os.close(descriptor)


def write_whole(
    path: Path,
    text: str,
    *,
    mode: int | None = None,
    owner: int | None = None,
    reader: int | None = None,
    durable: bool = True,
    apart: bool = False,
) -> None:
    """Replaces a text file: written under another name, synced, renamed, the directory synced. With these permissions,
    else as the umask says; of this user, else of the process's. `reader`: this user may read it, by an access list;
    where the file system has none, it is that user's. `durable=False`: nothing is synced, for what can be made again.
    `apart=True`: it is written in a folder of its own, since others may write beside it.
    """
    partial = partial_path(path) if apart else path.with_name(_hidden_name(path))
    try:
        with partial.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if reader is not None and not _let_read(file.fileno(), reader):
                owner = reader
            if owner is not None:
                os.fchown(file.fileno(), owner, -1)
            if durable:
                os.fsync(file.fileno())
        partial.replace(path)
        if durable:
            sync_directory(path.parent)
    finally:
        remove(partial)


def _let_read(descriptor: int, uid: int) -> bool:
    """Its owner may read and write it, this user may read it, nobody else anything; False where there are no lists."""
    nobody = 0xFFFFFFFF
    # Tags of the kernel's: owner, user, group, mask, other.
    entries = ((0x01, 6, nobody), (0x02, 4, uid), (0x04, 0, nobody), (0x10, 4, nobody), (0x20, 0, nobody))
    encoded = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(descriptor, "system.posix_acl_access", encoded)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.EINVAL):
            return False
        raise
    return True


def publish(partial: Path, output: Path) -> None:
    """Renames a whole, synced output to its name; an older one of that name goes out of the way first."""
    replaced: Path | None = None
    if output.exists() or output.is_symlink():
        replaced = _replaced_path(partial)
        output.rename(replaced)
    partial.rename(output)
    sync_directory(output.parent)
    if replaced is not None:
        _remove(replaced)
    _end_folder(partial)


def _replaced_path(partial: Path) -> Path:
    """Where an older output goes, beside the one that takes its place, before it is removed."""
    return partial.with_name(_name_of_replaced(partial.name))


def _name_of_replaced(hidden: str) -> str:
    stem, _, tag = hidden.rpartition(".partial-")
    return f"{stem}.replaced-{tag}"


def remove(path: Path) -> None:
    """Removes a file or a directory with all that it holds; it may be gone already. Follows no link."""
    try:
        _remove(path)
    finally:
        _end_folder(path)


def _remove(path: Path) -> None:
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    for tries_left in reversed(range(_REMOVAL_TRIES)):
        try:
            shutil.rmtree(path)
            return
        except OSError as error:
            # ADIOS2 opens files in threads of its own, and goes on with that when a writer has failed.
            if error.errno != errno.ENOTEMPTY or tries_left == 0:
                raise
            time.sleep(_REMOVAL_PAUSE_SECONDS)


def open_own_folder(path: Path) -> int:
    """A folder of this user's below one of this path; made if it is not there. It has the same name, by which `discard`
    knows it. Returns a descriptor.

    Raises
    ------
    StorageError
        Somebody else has put something there.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    sync_directory(path.parent)  # in any case: an earlier run may have failed to
    try:
        outer = os.open(path, _FOLDER)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise _not_own(path) from None
    try:
        if os.fstat(outer).st_uid != os.geteuid() or not {path.name}.issuperset(os.listdir(outer)):
            raise _not_own(path)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path.name, dir_fd=outer)
        os.fsync(outer)
        return os.open(path.name, _FOLDER, dir_fd=outer)
    finally:
        os.close(outer)


def _not_own(path: Path) -> StorageError:
    return StorageError("something else has the name of a folder of this stage; move it away", str(path))


def discard(path: Path) -> None:
    """Removes what `open_own_folder` made, in a folder that the next run knows after a death; nothing else that has its
    name.
    """
    partial = partial_path(path)
    try:
        path.rename(partial)
        if partial.is_symlink() or not {path.name}.issuperset(os.listdir(partial)):
            partial.rename(path)
    except (PermissionError, NotADirectoryError):  # it is another's, or no folder
        pass
    finally:
        remove(partial)


def remove_leftovers(directory: Path, outputs: Collection[str] | None = None) -> None:
    """Removes what interrupted runs left unfinished, of these outputs or of all. Only under the destination's lock."""
    for name in os.listdir(directory):  # There may be very many others.
        if not name.startswith("."):
            continue
        stem, _, tag = name.rpartition("-")
        output, _, state = stem.removeprefix(".").rpartition(".")
        if state != "partial" or len(tag) != 8 or (outputs is not None and output not in outputs):
            continue
        remove_left(directory / name, _name_of_replaced(name))


@contextlib.contextmanager
def destination_lock(directory: Path) -> Iterator[None]:
    """Keeps other stages out of a destination, on this machine and, where the file system carries locks, on others.

    Raises
    ------
    BusyError
        Another stage works there.
    """
    path = directory / LOCK_NAME
    while True:
        # Not through a link: the file would be made where somebody else wants it.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before may have removed the file between our open and our lock.
            if os.path.exists(path) and os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                break
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BusyError(
                    "another stage is writing to this destination; wait for it (`forebay stages`) or choose another",
                    str(directory),
                ) from None
            raise
        os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)
