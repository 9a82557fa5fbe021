# SPDX-License-Identifier: Apache-2.0
"""Whether a program has a file open for writing."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.files import open_writers
from forebay.files.open_writers import is_being_written


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    """Open; has the file `a.nc`."""
    (tmp_path / "a.nc").write_text("content")
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_a_writer_is_seen_until_it_closes_the_file(folder: int, tmp_path: Path) -> None:
    assert is_being_written(folder, "a.nc") is False
    with (tmp_path / "a.nc").open("a"):
        assert is_being_written(folder, "a.nc") is True
    assert is_being_written(folder, "a.nc") is False


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "fuse.sshfs", "fuse.juicefs", "fuse", "beegfs"])
def test_nobody_can_tell_where_other_nodes_or_programs_write(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Such a file system may grant a lease although another node writes."""
    monkeypatch.setattr(open_writers, "mount_of", lambda _device: (kind, frozenset()))
    assert is_being_written(folder, "a.nc") is None
    with (tmp_path / "a.nc").open("a"):
        assert is_being_written(folder, "a.nc") is None


def test_nobody_can_tell_where_the_kernel_gives_no_lease(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, command: int, argument: int) -> int:
        if command == fcntl.F_SETLEASE:
            raise OSError(errno.EINVAL, "Invalid argument")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert is_being_written(folder, "a.nc") is None
