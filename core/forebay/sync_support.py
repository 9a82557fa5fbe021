# SPDX-License-Identifier: Apache-2.0
"""Does the file system below an instance's root keep what was synced? Where it does not, durable means less."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from forebay.mounts import MOUNTS, mount_of

__all__ = ["sync_weakness"]

_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")


def sync_weakness(root: Path, mounts: Path = MOUNTS) -> str | None:
    """Why what is synced below ``root`` may not survive power loss, as a sentence for users; else None.

    ``mounts``: the kernel's table of mounts.
    """
    try:
        kind, options = mount_of(root.stat().st_dev, mounts)
    except OSError:
        kind, options = "", frozenset()
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
