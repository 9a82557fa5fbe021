# SPDX-License-Identifier: Apache-2.0
"""`./run demo --servers` over a small grid: a reservation over three servers, one of which is killed and healed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples/01_packed_cylinder/demo.py"


@pytest.mark.timeout(300)
def test_everything_that_the_demo_shows_on_three_servers_holds(nodes_possible: None, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = subprocess.run(
        [sys.executable, "-u", str(DEMO), "--servers", "--small", "--steps", "20", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "the server of node 3 is killed" in ended.stdout
    summary = json.loads((out / "summary.json").read_text())
    assert all(check["holds"] for check in summary["checks"])
    assert summary["server_away"]["steps"] > 0
    assert len(list((out / "frames").glob("*.png"))) == 20
    assert not (out / "instance").exists()
