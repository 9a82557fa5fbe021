# SPDX-License-Identifier: Apache-2.0
"""Commands of `forebay follow`: names of files are others' choice, and become no code of a shell's."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from forebay.cli.child_command import ChildCommand


@pytest.mark.parametrize("name", ["plt$(id)", "plt`id`", "plt;id", "plt'id", 'plt"id', "plt id", "plt\nid"])
def test_a_name_that_a_shell_would_run_stands_inside_no_word(tmp_path: Path, name: str) -> None:
    ran = tmp_path / "ran"
    inside = ChildCommand(["sh", "-c", f"echo {{path}} > {ran}"], os.environ)
    assert "mean something to a shell" in asyncio.run(inside.run({"path": f"/run/{name}"}))
    assert not ran.exists()
    alone = ChildCommand(["sh", "-c", f'printf %s "$1" > {ran}', "sh", "{path}"], os.environ)
    assert asyncio.run(alone.run({"path": f"/run/{name}"})) == ""
    assert ran.read_text() == f"/run/{name}"


def test_usual_names_stand_inside_words(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = ChildCommand(["sh", "-c", f"echo {{name}}@{{number}} > {ran}"], os.environ)
    assert asyncio.run(command.run({"name": "plt00017.d/wrfout_d01_2026-11-30_00:00:00", "number": "17"})) == ""
    assert ran.read_text() == "plt00017.d/wrfout_d01_2026-11-30_00:00:00@17\n"
