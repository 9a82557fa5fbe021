# SPDX-License-Identifier: Apache-2.0
"""`./run COMMAND --help` and `./run test --list` need nothing that has to be installed or built first."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Without environment and build, with a `scripts/build` that would fail."""
    for folder in ("scripts", "tests/bench", "examples/01_packed_cylinder"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache"))
    shutil.copy(ROOT / "run", tmp_path / "run")
    shutil.copy(ROOT / "tests" / "__init__.py", tmp_path / "tests")
    (tmp_path / "scripts" / "build").write_text("#!/bin/sh\nexit 9\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("test unit --help", "usage: ./run test"),
        ("test unit -h", "--shard"),
        ("test unit --list", "quick"),
        ("bench --help", "metadata"),
        ("demo -h", "--servers"),
        ("build --help", "Usage: ./run"),
        ("check --help", "Usage: ./run"),
        ("docs --help", "Usage: ./run"),
    ],
)
def test_help_comes_at_once(clone: Path, command: str, says: str) -> None:
    done = subprocess.run([str(clone / "run"), *command.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


@pytest.mark.parametrize(("command", "status"), [("test -- --help", 9), ("nonsense --help", 2)])
def test_other_words_are_no_question_for_help(clone: Path, command: str, status: int) -> None:
    assert subprocess.run([str(clone / "run"), *command.split()], capture_output=True, check=False).returncode == status
