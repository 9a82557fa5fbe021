# SPDX-License-Identifier: Apache-2.0
"""``python -m forebay.workflows.files.sync_as PLACE UID GID``: writes out the file system that is mounted there.

It opens the place with this user's rights, for root has none in it. Its real user stays root, so that the user cannot
stop it. The kernel also reports what failed before and nobody was told.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def main() -> int:
    """0, or 1 with the reason on standard output."""
    place, uid, gid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    try:
        if os.geteuid() == 0:
            os.setgroups(_groups_of(uid, gid))
            os.setegid(gid)
            os.seteuid(uid)
        descriptor = os.open(place, _FOLDER)
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    except OSError as error:
        print(f"it cannot be synced: {error.strerror}")
        return 1
    return 0


def _groups_of(uid: int, gid: int) -> list[int]:
    """By one of the others the user may have come into a reservation that is shared with a group."""
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        return [gid]


if __name__ == "__main__":
    sys.exit(main())
