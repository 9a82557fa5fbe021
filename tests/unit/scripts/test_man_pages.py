# SPDX-License-Identifier: Apache-2.0
"""The man pages: one for each command, which the formatters take without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from forebay.cli.root import app
from scripts import man_pages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where they were written."""
    place = tmp_path_factory.mktemp("man")
    man_pages.write_pages(place)
    return place


def test_every_command_has_a_page(folder: Path) -> None:
    names = typer.main.get_command(app).list_commands(None)  # type: ignore[attr-defined]
    assert {path.name for path in folder.iterdir()} == {"forebay.1", *(f"forebay-{name}.1" for name in names)}


@pytest.mark.parametrize(
    "lint",
    [
        pytest.param(["groff", "-man", "-ww", "-b", "-z", "-Tutf8"], id="groff"),
        pytest.param(["mandoc", "-Tlint", "-Wwarning"], id="mandoc"),
    ],
)
def test_the_formatter_has_nothing_to_say(folder: Path, lint: list[str]) -> None:
    if shutil.which(lint[0]) is None:
        pytest.skip(f"{lint[0]} is not installed")
    for page in sorted(folder.iterdir()):
        done = subprocess.run([*lint, str(page)], capture_output=True, text=True, check=False)
        assert done.stdout + done.stderr == "", page.name


def test_a_page_has_what_the_help_has(folder: Path) -> None:
    """As it is shown: dashes, quotes and bars are not eaten."""
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed")

    def shown(name: str) -> str:
        page = str(folder / name)
        done = subprocess.run(
            ["groff", "-man", "-Tascii", "-P-cbou", "-rLL=200n", page], capture_output=True, text=True, check=True
        )
        # Lines may end behind a dash.
        return re.sub(r"(?<=\w-)\n\s+", "", done.stdout)

    create = shown("forebay-create.1")
    for text in (
        "--capacity CAPACITY",
        "letters, digits, '_', '.' or '-'",
        "forebay create run1 --capacity",
    ):
        assert text in create
    stream = shown("forebay-stream.1")
    assert "forebay stream precious RES/STREAM STEPS [OPTIONS]" in stream
    assert "last:N, first:N, consumers:NAME+NAME, precious:N" in stream
    overview = shown("forebay.1")
    for text in ("EXIT STATUS", "Ctrl-C", "forebay-stage-out(1)", "FOREBAY_ROOT"):
        assert text in overview


@pytest.mark.parametrize("arguments", [(), ("--help",), ("--version",), ("a", "b")])
def test_an_option_is_no_folder(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    program = Path(man_pages.__file__)
    done = subprocess.run(
        [sys.executable, program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "usage: " in done.stdout + done.stderr
    assert (done.returncode == 0) == (arguments == ("--help",))
    assert list(tmp_path.iterdir()) == []
