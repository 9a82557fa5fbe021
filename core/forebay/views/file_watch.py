# SPDX-License-Identifier: Apache-2.0
"""Who opens and closes a file: inotify, and the kernel's leases."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct

__all__ = ["FileWatch", "is_open_elsewhere"]

_IN_OPEN = 0x20
_IN_CLOSE = 0x08 | 0x10
_IN_IGNORED = 0x8000
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 16


class FileWatch:
    """Tells which files were opened, closed or removed since this was last asked for."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor: int = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def add(self, path: str) -> int:
        """Watches a file; its number in `changes`."""
        number: int = self._libc.inotify_add_watch(self.descriptor, os.fsencode(path), _IN_OPEN | _IN_CLOSE)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", path)
        return number

    def remove(self, number: int) -> None:
        """Of a file that is gone, too."""
        self._libc.inotify_rm_watch(self.descriptor, number)

    def changes(self) -> tuple[set[int], set[int]]:
        """Those that were opened or closed (-1: events were lost), and those that are no longer watched."""
        used: set[int] = set()
        gone: set[int] = set()
        while True:
            try:
                data = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                return used, gone
            place = 0
            while place < len(data):
                number, mask, _, length = _EVENT.unpack_from(data, place)
                place += _EVENT.size + length
                (gone if mask & _IN_IGNORED else used).add(number)


def is_open_elsewhere(descriptor: int) -> bool:
    """Whether anybody beside this descriptor has the file open or mapped. SIGIO must be ignored.

    False where the file system has no leases.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EACCES)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False
