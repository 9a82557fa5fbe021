# SPDX-License-Identifier: Apache-2.0
"""An instance, and a folder with a Snakefile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.instance import CommandLineInstance
from tests.support.snakemake import PROGRAMS


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLineInstance]:
    """With the reservation `wf`."""
    with CommandLineInstance(tmp_path / "root", capacity="256MiB") as up:
        up.ask("create", "wf", "--capacity", "64MiB", "--files", "16MiB", "--persistent")
        monkeypatch.setenv("FOREBAY_ROOT", str(up.root))
        yield up


@pytest.fixture
def workflow(tmp_path: Path) -> Path:
    """A folder with the Snakefile."""
    folder = tmp_path / "workflow"
    folder.mkdir()
    shutil.copy(PROGRAMS / "Snakefile", folder)
    return folder
