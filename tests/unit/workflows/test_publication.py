# SPDX-License-Identifier: Apache-2.0
"""Removing what was written, while a thread of ADIOS2 may still open files in it."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from forebay.workflows.staging.publication import remove


def test_a_file_that_appears_meanwhile_is_removed_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is not empty when its turn comes; another look finds the file."""
    partial = tmp_path / "partial"
    partial.mkdir()
    (partial / "md.0").touch()
    remove_tree = shutil.rmtree
    looks = 0

    def late(path: Path) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            (path / "md.0").unlink()
            (path / "data.0").touch()
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))
        remove_tree(path)

    monkeypatch.setattr(shutil, "rmtree", late)
    remove(partial)
    assert looks == 2
    assert list(tmp_path.iterdir()) == []


def test_another_failure_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not pass is not tried again."""
    partial = tmp_path / "partial"
    partial.mkdir()
    looks = 0

    def refused(path: Path) -> None:
        nonlocal looks
        looks += 1
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(PermissionError):
        remove(partial)
    assert looks == 1
