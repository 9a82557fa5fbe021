# SPDX-License-Identifier: Apache-2.0
"""Blocks of a part in its image: whole, durable before anybody is told, and never so many that Redis meets a full disk.

blocks/         as juicefs names them
blocks.partial/ what is being written; emptied at each start
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from forebay.errors import InvalidArgumentError, NoSpaceError
from forebay.fail_point import fail_point

__all__ = ["DEPTH_MAX", "BlockStore", "Names"]

DEPTH_MAX = 16
_NAME_BYTES_MAX = 255
_LOOK_SECONDS = 0.1
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: The names of folders that lead to a block, and its own: none of them is empty, "." or "..", or has a slash or zero.
Names = tuple[bytes, ...]


class BlockStore:
    """Usable from several threads.

    Parameters
    ----------
    tree : Path
        Where the image is mounted.
    reserve_bytes : int
        What stays free, whoever writes: for Redis, which ends when it cannot write.
    compaction_bytes : int
        What only the home may take beside: it writes blocks anew before it removes the old ones.
    """

    def __init__(self, tree: Path, reserve_bytes: int, compaction_bytes: int = 0) -> None:
        self._reserve_bytes = reserve_bytes
        self._compaction_bytes = compaction_bytes
        self._under_way_bytes = 0
        self._changed = threading.Condition()  # guards _under_way_bytes
        self._count = itertools.count()
        for name in ("blocks", "blocks.partial"):
            (tree / name).mkdir(mode=0o700, exist_ok=True)
        for left in (tree / "blocks.partial").iterdir():
            left.unlink()
        self._blocks = os.open(tree / "blocks", _FOLDER)
        self._partial = os.open(tree / "blocks.partial", _FOLDER)
        top = os.open(tree, _FOLDER)
        try:
            os.fsync(top)
        finally:
            os.close(top)

    def close(self) -> None:
        """Of its folders."""
        os.close(self._blocks)
        os.close(self._partial)

    def free_bytes(self, *, for_home: bool = False) -> int:
        """What blocks may still take."""
        room = os.fstatvfs(self._blocks)
        kept = self._reserve_bytes + (0 if for_home else self._compaction_bytes)
        return max(0, room.f_bavail * room.f_frsize - kept)

    @contextlib.contextmanager
    def room(self, size_bytes: int, seconds_max: float, *, for_home: bool = False) -> Iterator[None]:
        """So much is there while this lasts, whatever others write. Who overwrites faster than the keeper removes waits
        here; NoSpaceError if there is no room in time.
        """
        deadline = time.monotonic() + seconds_max
        with self._changed:
            while size_bytes + self._under_way_bytes > self.free_bytes(for_home=for_home):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise NoSpaceError("this part has no room for more blocks")
                self._changed.wait(min(left, _LOOK_SECONDS))  # others remove blocks, too, and say nothing
            self._under_way_bytes += size_bytes
        try:
            yield
        finally:
            with self._changed:
                self._under_way_bytes -= size_bytes
                self._changed.notify_all()

    @contextlib.contextmanager
    def writing(self, names: Names) -> Iterator[int]:
        """A descriptor for the block's bytes. At the end they are durable, and the block has its name; if there is an
        error, nothing has changed. FileNotFoundError if its folder is missing.
        """
        with self._folder_of(names) as folder:
            partial = b"%d" % next(self._count)
            file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._partial)
            try:
                try:
                    yield file
                    fail_point("files.block.written")
                    os.fsync(file)
                finally:
                    os.close(file)
                fail_point("files.block.synced")
                os.rename(partial, names[-1], src_dir_fd=self._partial, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(partial, dir_fd=self._partial)
                raise
            fail_point("files.block.named")
            os.fsync(folder)

    def make_folder(self, names: Names) -> None:
        """FileExistsError if something has this name; FileNotFoundError if the folder above is missing."""
        with self._folder_of(names) as folder:
            os.mkdir(names[-1], 0o700, dir_fd=folder)
            os.fsync(folder)

    @contextlib.contextmanager
    def reading(self, names: Names) -> Iterator[int]:
        """A descriptor of the block; IsADirectoryError if it is a folder."""
        with self._folder_of(names) as folder:
            file = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise IsADirectoryError(errno.EISDIR, "this is no block")
            yield file
        finally:
            os.close(file)

    def remove(self, names: Names) -> None:
        """A block, or a folder that is empty. It may come back after a crash, and is removed again then."""
        with self._folder_of(names) as folder:
            if stat.S_ISDIR(os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                os.rmdir(names[-1], dir_fd=folder)
            else:
                os.unlink(names[-1], dir_fd=folder)

    def status(self, names: Names) -> os.stat_result:
        """Of a block or a folder."""
        if not names:
            return os.fstat(self._blocks)
        with self._folder_of(names) as folder:
            return os.stat(names[-1], dir_fd=folder, follow_symlinks=False)

    def entries(self, names: Names) -> Iterator[tuple[bytes, os.stat_result]]:
        """What is in a folder, without what vanishes meanwhile."""
        with self._opened(names) as folder:
            for name in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError):
                    yield os.fsencode(name), os.stat(name, dir_fd=folder, follow_symlinks=False)

    def _folder_of(self, names: Names) -> contextlib.AbstractContextManager[int]:
        if not names or _is_bad(names[-1]):
            raise InvalidArgumentError("this is no name of a block")
        return self._opened(names[:-1])

    @contextlib.contextmanager
    def _opened(self, names: Sequence[bytes]) -> Iterator[int]:
        """Step by step, so that no name leads out of the folder; nothing here follows a link."""
        if len(names) > DEPTH_MAX or any(_is_bad(name) for name in names):
            raise InvalidArgumentError("this is no name of a block")
        folder = os.dup(self._blocks)
        try:
            for name in names:
                below = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)


def _is_bad(name: bytes) -> bool:
    return name in (b"", b".", b"..") or b"/" in name or b"\0" in name or len(name) > _NAME_BYTES_MAX
