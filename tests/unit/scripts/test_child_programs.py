# SPDX-License-Identifier: Apache-2.0
"""How programs of Python are started: without the working directory in their path, where others may put modules."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
FOLDERS = ("core", "workflows", "viz", "connectors", "engines", "examples")


def test_no_program_takes_modules_from_the_working_directory() -> None:
    files = [file for folder in FOLDERS for file in (REPOSITORY / folder).rglob("*.py")]
    assert files
    with_it = re.compile(r'sys\.executable,\s*"-m"')
    assert [str(file) for file in files if with_it.search(file.read_text(encoding="utf-8"))] == []
