# SPDX-License-Identifier: Apache-2.0
"""ADIOS2 programs that know nothing of Forebay, and `forebay run`, which starts them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import forebay
from tests.support.plugin import plugin_library
from tests.support.time_limits import seconds

__all__ = ["FOREBAY_RUN", "built", "numbers_of", "python", "run", "run_environment"]

FOREBAY_RUN = [sys.executable, "-m", "forebay", "run"]


def run_environment(**more: str) -> dict[str, str]:
    """What `forebay run` runs with here: this process's environment, and the plugin that CMake built."""
    return {**os.environ, "FOREBAY_ADIOS2_LIBRARY": str(plugin_library()), **more}


def run(
    options: Sequence[str],
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a program under `forebay run` in ``folder``."""
    return subprocess.run(
        [*FOREBAY_RUN, *options, "--", *command],
        cwd=folder,
        env=run_environment(**(environment or {})),
        capture_output=True,
        text=True,
        timeout=seconds(100),
    )


def python(program: str, *arguments: str) -> list[str]:
    """A command: a Python program that imports nothing of Forebay."""
    return [sys.executable, "-c", textwrap.dedent(program), *arguments]


def built(name: str) -> str:
    """A program that CMake built."""
    build = os.environ.get("FOREBAY_BUILD_DIR")
    if not build:
        pytest.skip("FOREBAY_BUILD_DIR does not say where the test programs are; ./run test sets it")
    return str(Path(build) / "tests" / "integration" / "adios2" / name)


def numbers_of(stream: str, variable: str = "number") -> list[int]:
    """The single value of each step."""
    with forebay.open(stream, mode="r", timeout=seconds(10)) as reader:
        return [int(reader[summary.number][variable][()]) for summary in reader.steps()]
