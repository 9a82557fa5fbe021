# SPDX-License-Identifier: Apache-2.0
"""The unit that starts Forebay at boot: systemd takes it, and the commands in it take their options."""

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

UNIT = ROOT / "packaging" / "systemd" / "forebay.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_has_nothing_to_say(tmp_path: Path) -> None:
    # It looks for the programs, which are not installed here.
    text = UNIT.read_text(encoding="utf-8").replace("/opt/forebay/bin/forebay", "/bin/true")
    (tmp_path / UNIT.name).write_text(text.replace("man:forebay-up(1) man:forebay-down(1)", "man:ls(1)"))
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / UNIT.name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_commands_take_their_options() -> None:
    found = re.findall(r"^Exec(?:Start|Stop)=/opt/forebay/bin/forebay (.*)$", UNIT.read_text(encoding="utf-8"), re.M)
    assert [shlex.split(command)[0] for command in found] == ["up", "down"]
    for command in found:
        name, *options = [word for word in shlex.split(command) if not word.startswith("$")]
        helped = CliRunner().invoke(app, [name, "--help"])
        assert helped.exit_code == 0
        assert all(option in helped.stdout for option in options), command
