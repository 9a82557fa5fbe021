# SPDX-License-Identifier: Apache-2.0
"""The packed-cylinder demo as a user runs it, over a small grid: what it shows holds, and nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

DEMO = Path(__file__).resolve().parents[2] / "examples/01_packed_cylinder/demo.py"


def processes_of(out: Path) -> list[str]:
    """Command lines of the processes that belong to the demo's instance."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and f"FOREBAY_ROOT={out / 'instance'}" in (process / "environ").read_text(
                errors="replace"
            ).split("\0"):
                found.append((process / "cmdline").read_text(errors="replace").replace("\0", " "))
        except OSError:
            continue  # it has ended, or is another user's
    return found


class Demo:
    """A running demo."""

    def __init__(self, out: Path, *arguments: str) -> None:
        self.out = out
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(DEMO), "--small", "--out", str(out), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def lines_until(self, text: str) -> None:
        """Reads what it prints up to a line with this text."""
        assert self.process.stdout is not None
        printed = []
        for line in self.process.stdout:
            printed.append(line)
            if text in line:
                return
        pytest.fail(f"the demo ended without saying {text!r}:\n{''.join(printed)}")


@pytest.fixture
def out() -> Iterator[Path]:
    """A folder of a short name: the ranks' sockets lie below it."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        out = Path(folder) / "out"
        yield out
        assert processes_of(out) == []


@pytest.mark.timeout(240)
def test_everything_that_the_demo_shows_holds(out: Path) -> None:
    demo = Demo(out, "--steps", "20")
    printed, _ = demo.process.communicate()
    assert demo.process.returncode == 0, printed
    assert "FAILS" not in printed
    summary = json.loads((out / "summary.json").read_text())
    assert summary["passed"]
    assert all(check["holds"] for check in summary["checks"])
    assert summary["rank_kill"]["withdrawn"] >= 1
    assert len(list((out / "frames").glob("*.png"))) == 20
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [
        "flow.000000.bp",
        "flow.000010.bp",
        "receipt.json",
    ]
    for result in ("movie.mp4", "permeability.png"):
        assert (out / result).stat().st_size > 0
    assert not (out / "instance").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_nothing_running(out: Path, number: signal.Signals) -> None:
    demo = Demo(out, "--steps", "20")
    demo.lines_until("followers are told that the stream is live")
    assert processes_of(out) != []
    demo.process.send_signal(number)
    printed, _ = demo.process.communicate()
    assert demo.process.returncode == 130, printed


def test_folder_with_other_files_is_left_alone(out: Path) -> None:
    out.mkdir()
    (out / "thesis.txt").write_text("important")
    demo = Demo(out)
    printed, _ = demo.process.communicate()
    assert demo.process.returncode == 1
    assert "--out" in printed
    assert os.listdir(out) == ["thesis.txt"]
