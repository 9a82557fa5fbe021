# SPDX-License-Identifier: Apache-2.0
"""The demo on nodes of this machine, over a small grid."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["run_node_demo"]

_DEMO = Path(__file__).resolve().parents[2] / "examples/01_packed_cylinder/demo.py"
_STEPS = 20


def run_node_demo(option: str, out: Path) -> tuple[str, dict[str, Any]]:
    """`./run demo OPTION`, of which all has to hold: what it printed, and its summary."""
    ended = subprocess.run(
        [sys.executable, "-u", str(_DEMO), option, "--small", "--steps", str(_STEPS), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    assert all(check["holds"] for check in summary["checks"])
    assert len(list((out / "frames").glob("*.png"))) == _STEPS
    assert not (out / "instance").exists()
    return ended.stdout, summary
