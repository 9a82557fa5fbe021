# SPDX-License-Identifier: Apache-2.0
"""Asks the kernel whether a program has a file open for writing."""

from __future__ import annotations

import errno
import fcntl
import os
import signal

from forebay.mounts import is_distant, mount_of

__all__ = ["is_being_written"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_being_written(folder: int, name: str) -> bool | None:
    """Whether the file ``name`` of an open folder is open for writing; None: nobody can tell.

    A read lease tells. The kernel gives it to the file's owner, and on local file systems only.

    Raises
    ------
    OSError
        The file cannot be opened.
    """
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except PermissionError:
        return None
    try:
        if is_distant(mount_of(os.fstat(file).st_dev)[0]):
            return None
        # Whoever opens the file at this instant has a signal sent to this process: one that is ignored by default.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            return True if error.errno == errno.EAGAIN else None
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return False
    finally:
        os.close(file)
