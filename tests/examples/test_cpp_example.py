# SPDX-License-Identifier: Apache-2.0
"""The C++ example, built in this tree, runs as its head says; the README shows a part of it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.example_programs import EXAMPLES, demo_reservation
from tests.support.time_limits import seconds

__all__ = ["demo_reservation"]

PROGRAM = Path(os.environ["FOREBAY_BUILD_DIR"]) / "examples" / "13_cpp_client" / "cpp_client"


@pytest.mark.usefixtures("demo_reservation")
def test_it_reads_what_it_wrote() -> None:
    done = subprocess.run([PROGRAM, "demo/values"], capture_output=True, text=True, timeout=seconds(60), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"step {number}: {number}" for number in range(10)]


@pytest.mark.usefixtures("demo_reservation")
def test_it_says_what_failed() -> None:
    done = subprocess.run([PROGRAM, "nowhere/values"], capture_output=True, text=True, timeout=seconds(60), check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("cpp_client: ")
    assert "nowhere" in done.stderr


def test_the_readme_shows_a_part_of_it() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```cpp\n(#include.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    program = (EXAMPLES / "13_cpp_client" / "main.cpp").read_text(encoding="utf-8")
    includes, _, code = block.partition("\n\n")
    assert set(includes.splitlines()) <= set(program.splitlines())
    assert code in program
