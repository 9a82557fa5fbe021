# SPDX-License-Identifier: Apache-2.0
"""The tutorial, walked by its words: each block runs in the terminal that its section names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.load import until

ROOT = Path(__file__).parents[2]

#: The same simulation on a smaller grid and faster, so that the walk takes seconds.
PACE = "--steps 100 --pace-ms 1000"
QUICK = "--steps 30 --pace-ms 250 --nx=24 --ny=24 --nz=40 --plenum=7 --sphere-radius=4 --solid-fraction=0.42"


def blocks(section: str) -> list[str]:
    """The blocks of code below a heading."""
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    _, _, rest = page.partition(f"\n## {section}\n")
    assert rest, f"the tutorial has no section {section!r}"
    return re.findall(r"^```\w+\n(.*?)^```$", rest.partition("\n## ")[0], re.MULTILINE | re.DOTALL)


class Terminal:
    """Runs blocks of the tutorial, and keeps what they print."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
        self._enter = blocks("Terminal 2: a live picture")[0].rpartition("forebay render")[0]
        self.log = folder / "terminal.log"

    def start(self, block: str) -> subprocess.Popen[bytes]:
        """Starts a block in a shell of its own, as a terminal does: Ctrl-C reaches all of it."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", self._enter + block],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, block: str) -> str:
        """Runs a block, which must succeed; what it printed."""
        before = self.log.stat().st_size if self.log.exists() else 0
        status = self.start(block).wait(120)
        printed = self.log.read_text(encoding="utf-8")[before:]
        assert status == 0, f"{block}\n{printed}"
        return printed


@pytest.mark.timeout(400)
def test_the_tutorial_works_by_its_words_alone(tmp_path: Path) -> None:
    build = Path(os.environ.get("FOREBAY_BUILD_DIR", ROOT / "build/dev"))
    for name, place in ((".venv", ROOT / ".venv"), ("examples", ROOT / "examples"), ("build/dev", build)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(place)
    program = build / "examples/01_packed_cylinder/packed_cylinder"
    assert program.exists(), f"{program} is missing: `./run build` makes it"
    pictures = tmp_path / "build/tutorial/pictures"
    terminal = Terminal(tmp_path)
    begin = "".join(blocks("Terminal 1: start Forebay and a simulation"))
    assert PACE in begin
    end = "".join(blocks("Clean up"))
    try:
        terminal.run(begin.replace(PACE, QUICK))
        (show,) = blocks("Terminal 2: a live picture")
        renderer = terminal.start(show)
        until(lambda: (pictures / "frames/000002.png").exists(), "three frames")
        os.killpg(renderer.pid, signal.SIGINT)
        renderer.wait(30)
        look, again = blocks("Stop the renderer and start it again")
        assert "render:-" in terminal.run(look)
        terminal.run(again)
        assert len(list((pictures / "frames").glob("*.png"))) == 30
        assert (pictures / "movie.mp4").stat().st_size > 0
        (tmp_path / "program.py").write_text("".join(blocks("Read the stream from Python")), encoding="utf-8")
        assert "newest step:" in terminal.run("python program.py")
        terminal.run("".join(blocks("Keep a checkpoint")))
        assert (tmp_path / "build/tutorial/checkpoints/flow.000020.bp").is_dir()
        terminal.run(end)
    finally:
        terminal.run("forebay down --force")
