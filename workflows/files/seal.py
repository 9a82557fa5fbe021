# SPDX-License-Identifier: Apache-2.0
"""``python -m forebay.workflows.files.seal PLACE``: makes the NFS file system that is mounted there read-only, as a
whole: for each place where it is mounted, also in namespaces of users.

The kernel refuses that while a file is open for writing or mapped so. Once it is done, nobody but root of this machine
can undo it. So a program that keeps the mount alive, as with its current folder, changes nothing any more.
"""

from __future__ import annotations

import ctypes
import os
import sys

_MS_RDONLY = 1
_MS_NOSUID = 2
_MS_NODEV = 4
_MS_REMOUNT = 32


def main() -> int:
    """0, or 1 with the reason on standard output."""
    # By the system call: mount(8) would tell the kernel all of the mount's options anew.
    flags = _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV
    if ctypes.CDLL(None, use_errno=True).mount(b"none", os.fsencode(sys.argv[1]), None, flags, None) != 0:
        print(os.strerror(ctypes.get_errno()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
