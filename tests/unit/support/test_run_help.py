# SPDX-License-Identifier: Apache-2.0
"""`./run test --help` and `--list` need nothing that has to be installed or built first."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("option", "says"), [("--help", "usage: ./run test"), ("-h", "--shard"), ("--list", "quick")])
def test_help_comes_at_once(tmp_path: Path, option: str, says: str) -> None:
    """In a clone without environment and build, with a `scripts/build` that would fail."""
    shutil.copy(ROOT / "run", tmp_path / "run")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "scripts" / "build").write_text("#!/bin/sh\nexit 9\n")
    done = subprocess.run([str(tmp_path / "run"), "test", "unit", option], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    # It belongs to pytest.
    assert subprocess.run([str(tmp_path / "run"), "test", "--", option], check=False).returncode == 9
