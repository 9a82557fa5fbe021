# SPDX-License-Identifier: Apache-2.0
"""File systems that do not keep what was synced are told apart from those that do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from forebay.sync_support import sync_weakness


def mounts(folder: Path, kind: str, options: str) -> Path:
    """A table of mounts that says this of the folder's file system."""
    device = folder.stat().st_dev
    table = folder / "mountinfo"
    table.write_text(
        "21 20 0:99999 / /elsewhere rw - tmpfs tmpfs rw\n"
        f"22 20 {os.major(device)}:{os.minor(device)} / / rw,relatime shared:1 - {kind} /dev/x {options}\n"
    )
    return table


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay"])
def test_a_file_system_that_syncs_has_no_weakness(tmp_path: Path, kind: str) -> None:
    assert sync_weakness(tmp_path, mounts(tmp_path, kind, "rw,lowerdir=/a")) is None


def test_memory_is_told(tmp_path: Path) -> None:
    weakness = sync_weakness(tmp_path, mounts(tmp_path, "tmpfs", "rw,size=1g"))
    assert weakness is not None
    assert "on tmpfs" in weakness


def test_an_overlay_that_ignores_syncs_is_told(tmp_path: Path) -> None:
    weakness = sync_weakness(tmp_path, mounts(tmp_path, "overlay", "rw,upperdir=/b,volatile"))
    assert weakness is not None
    assert "volatile" in weakness


def test_a_file_system_that_refuses_to_sync_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    weakness = sync_weakness(tmp_path, mounts(tmp_path, "fuse.odd", "rw"))
    assert weakness is not None
    assert "(fuse.odd) cannot sync (Invalid argument)" in weakness


def test_without_the_kernels_table_nothing_is_claimed(tmp_path: Path) -> None:
    assert sync_weakness(tmp_path, tmp_path / "none") is None


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="there is no /dev/shm")
def test_shared_memory_of_this_machine_is_memory() -> None:
    weakness = sync_weakness(Path("/dev/shm"))
    assert weakness is not None
    assert "in memory" in weakness
