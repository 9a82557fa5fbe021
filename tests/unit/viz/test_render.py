# SPDX-License-Identifier: Apache-2.0
"""`forebay render` on a machine without the packages that draw."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
sys.modules["vtkmodules"] = sys.modules["PIL"] = None  # as if they were not installed
from forebay.cli.root import run
sys.exit(run(sys.argv[1:]))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, "render", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_its_help_needs_no_packages() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "Example: forebay render" in done.stdout


def test_what_is_missing_is_named_with_how_to_install_it(tmp_path: Path) -> None:
    done = run("run1/flow", "--out", str(tmp_path / "pictures"))
    assert done.returncode == 1
    assert done.stderr == "error: rendering needs vtkmodules and PIL: pip install 'forebay[viz]'\n"
    assert not list(tmp_path.iterdir())
