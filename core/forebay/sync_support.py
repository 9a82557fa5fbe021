# SPDX-License-Identifier: Apache-2.0
"""Does the file system below an instance's root keep what was synced? Where it does not, durable means less."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

__all__ = ["sync_weakness"]

_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_MOUNTS = Path("/proc/self/mountinfo")


def sync_weakness(root: Path, mounts: Path = _MOUNTS) -> str | None:
    """Why what is synced below ``root`` may not survive power loss, as a sentence for users; else None.

    ``mounts``: the kernel's table of mounts.
    """
    kind, options = _mount_of(root, mounts)
    if kind in _IN_MEMORY:
        return (
            f"the root is on {kind}, that is in memory: durable steps survive the end of any process, but not a reboot "
            "or power loss. Take a root on an SSD for data that must"
        )
    if kind == "overlay" and "volatile" in options:
        return (
            "the root is on an overlay that is mounted volatile, which ignores syncs: durable steps may not survive "
            "power loss. Take a root on a volume of its own"
        )
    refusal = _sync_refusal(root)
    if refusal is not None:
        return (
            f"the root's file system{f' ({kind})' if kind else ''} cannot sync ({refusal}): no step becomes durable. "
            "Take a root on a local file system, for example ext4 or XFS"
        )
    return None


def _mount_of(root: Path, mounts: Path) -> tuple[str, frozenset[str]]:
    """Type and options of the file system that `root` lies on; nothing where the kernel does not say."""
    try:
        device = root.stat().st_dev
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


def _sync_refusal(root: Path) -> str | None:
    """What the system says to a sync of a file there; None if it succeeds, or if the caller may not try."""
    try:
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(b"\0")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO):
            return error.strerror or str(error)
    return None
