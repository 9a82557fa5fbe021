# SPDX-License-Identifier: Apache-2.0
"""The units that start Forebay at boot: systemd takes them, and the commands in them take their options."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forebay.cli.root import app
from scripts.suites import ROOT

FOLDER = ROOT / "packaging" / "systemd"
COMMANDS = {"forebay.service": ["up", "down"], "forebay-agent.service": ["agent"]}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    # It looks for the programs, which are not installed here.
    text = (FOLDER / name).read_text(encoding="utf-8").replace("/opt/forebay/bin/forebay", "/bin/true")
    (tmp_path / name).write_text(re.sub(r"man:forebay-\w+\(1\)", "man:ls(1)", text))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", COMMANDS)
def test_the_commands_take_their_options(unit: str) -> None:
    text = (FOLDER / unit).read_text(encoding="utf-8")
    found = re.findall(r"^Exec(?:Start|Stop)=/opt/forebay/bin/forebay (.*)$", text, re.M)
    assert [shlex.split(command)[0] for command in found] == COMMANDS[unit]
    for command in found:
        name, *options = [word for word in shlex.split(command) if not word.startswith("$")]
        helped = CliRunner().invoke(app, [name, "--help"])
        assert helped.exit_code == 0
        assert all(option in helped.stdout for option in options), command
