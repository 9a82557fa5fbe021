# SPDX-License-Identifier: Apache-2.0
"""The kernel's word (inotify) that something has changed in an open folder. Only a hint: who hears it looks himself."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator

__all__ = ["FolderWatch"]

_CREATED, _MOVED_TO, _CLOSED, _ATTRIBUTES = 0x100, 0x80, 0x8, 0x4
_OVERFLOW, _IGNORED, _ONLY_FOLDERS = 0x4000, 0x8000, 0x1000000
_SELF_DELETED, _SELF_MOVED = 0x400, 0x800
_WANTED = _CREATED | _MOVED_TO | _CLOSED | _ATTRIBUTES | _SELF_DELETED | _SELF_MOVED | _ONLY_FOLDERS
_EVENT = struct.Struct("iIII")
_READ_BYTES = 65536
_FOLDERS_MAX = 1000

_libc = ctypes.CDLL(None, use_errno=True)


class FolderWatch:
    """Watches some open folders. Where the kernel gives no watch (too many, or none on this file system) it is silent:
    who uses it looks again after a time anyway.
    """

    def __init__(self) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watched: dict[int, int] = {}  # number of the watch, by inode

    def fileno(self) -> int:
        """Readable when there is something to hear; -1 where the kernel gives nothing."""
        return int(self._descriptor)

    def add(self, folder: int) -> None:
        """Watches an open folder; idempotent."""
        inode = os.fstat(folder).st_ino
        if self._descriptor < 0 or inode in self._watched or len(self._watched) >= _FOLDERS_MAX:
            return
        # By the descriptor: whatever has its name meanwhile.
        number = _libc.inotify_add_watch(self._descriptor, f"/proc/self/fd/{folder}".encode(), _WANTED)
        if number >= 0:
            self._watched[inode] = number

    def read(self) -> Iterator[str | None]:
        """The names that something happened to; None: whatever happened, look at everything."""
        while self._descriptor >= 0:
            try:
                events = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                raise
            place = 0
            while place < len(events):
                number, mask, _, length = _EVENT.unpack_from(events, place)
                name = events[place + _EVENT.size : place + _EVENT.size + length].rstrip(b"\0")
                place += _EVENT.size + length
                if mask & _IGNORED:
                    self._watched = {inode: watch for inode, watch in self._watched.items() if watch != number}
                yield os.fsdecode(name) if name and not mask & _OVERFLOW else None

    def close(self) -> None:
        """Ends all watches."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
