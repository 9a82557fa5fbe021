# SPDX-License-Identifier: Apache-2.0
"""The key of the secrets of stages, on disks that are full or fail."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import CorruptError, NoSpaceError, StorageError
from forebay.workflows.manager.core.stages.stage_secret import KEY_NAME, stage_key, stage_secret


@pytest.fixture
def bytes_max() -> Iterator[int]:
    """No file may be longer in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    yield 16
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_same_key_makes_the_same_secret(tmp_path: Path) -> None:
    job = {"kind": "files"}
    secret = stage_secret(tmp_path, 1, job)
    assert len(bytes.fromhex(secret)) == 32
    assert stage_secret(tmp_path, 1, job) == secret
    assert stage_secret(tmp_path, 2, job) != secret


def test_a_key_that_cannot_be_written_whole_leaves_none(bytes_max: int, tmp_path: Path) -> None:
    with pytest.raises((NoSpaceError, StorageError)) as raised:
        stage_key(tmp_path)
    assert "the key of the instance's stages" in str(raised.value)
    assert os.listdir(tmp_path) == []
    assert bytes_max < 32


def test_a_short_key_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / KEY_NAME).write_bytes(b"short")
    with pytest.raises(CorruptError, match="remove it"):
        stage_key(tmp_path)
