# SPDX-License-Identifier: Apache-2.0
"""The kernel's table of mounts: what kind of file system a device is."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["MOUNTS", "is_distant", "mount_of"]

MOUNTS = Path("/proc/self/mountinfo")
#: Other nodes, or a program, change files there of which this kernel hears nothing.
_DISTANT = frozenset(
    ("9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3")
)


def mount_of(device: int, mounts: Path = MOUNTS) -> tuple[str, frozenset[str]]:
    """Type and options of the file system with this device number; nothing where the kernel does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return "", frozenset()
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        place, separator, system = line.partition(" - ")
        if separator and place.split()[2] == number:
            kind, _, options = system.split(maxsplit=2)
            return kind, frozenset(options.split(","))
    return "", frozenset()


def is_distant(kind: str) -> bool:
    """Whether a file system of this type is on the network, or served by a program (FUSE)."""
    return kind.partition(".")[0] in _DISTANT
