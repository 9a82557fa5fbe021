# SPDX-License-Identifier: Apache-2.0
"""What README.md shows runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.instance import CommandLineInstance
from tests.support.time_limits import seconds

README = Path(__file__).parents[2] / "README.md"

#: What the XML of the README configures, as a program that knows nothing of Forebay.
ADIOS2_PROGRAM = """
import adios2, numpy as np
array = np.ones((4, 4))
io = adios2.Adios("adios2.xml").declare_io("flow")
with adios2.Stream(io, "flow", "w") as stream:
    for _ in stream.steps(3):
        stream.write("T", array, array.shape, [0, 0], array.shape)
"""


def block(beginning: str) -> str:
    """The fenced block of code that begins so."""
    text = README.read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"^```\w+\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(beginning))
    return found


@pytest.fixture
def instance(tmp_path: Path) -> CommandLineInstance:
    """Not started: the README's first command does that."""
    return CommandLineInstance(tmp_path / "root")


def test_the_commands_and_snippets_of_the_readme_run(instance: CommandLineInstance, tmp_path: Path) -> None:
    environment = os.environ | instance.environment | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(*command: str) -> None:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=seconds(100), check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "mesh").write_text("mesh")
    start, use, end = block("forebay up").split("\n\n")
    run("bash", "-euc", start)
    try:
        run(sys.executable, "-c", block("import adios2"))
        (tmp_path / "adios2.xml").write_text(block("<adios-config>"))
        run("bash", "-euc", 'eval "$(forebay env)"; exec "$@"', "bash", sys.executable, "-c", ADIOS2_PROGRAM)
        run(sys.executable, "-c", block("import forebay"))
        run("bash", "-euc", use)
        assert (tmp_path / "checkpoints" / "flow.000010.bp").is_dir()
    finally:
        run("bash", "-euc", end)


def test_the_pictures_and_pages_that_the_readme_names_exist() -> None:
    text = README.read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)#:]+)\)", text) + re.findall(r"`((?:docs|core)/[^` ]+)`", text)
    assert "docs/images/packed-cylinder.png" in named
    assert [name for name in named if not (README.parent / name).exists()] == []
