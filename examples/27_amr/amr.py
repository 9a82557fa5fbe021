# SPDX-License-Identifier: Apache-2.0
"""Levels to frames to a movie while the simulation runs; plotfiles go once they are drawn, one checkpoint in ten stays.

    forebay up
    python examples/27_amr/amr.py

It needs ``forebay[viz]``. With ``--kill`` the renderer is killed on the way, and goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import forebay

HERE = Path(__file__).parent
STARTS_MAX = 5
POLL_SECONDS = 0.1
FRAMES_BEFORE_KILL = 5

sys.path.insert(0, str(HERE))
from plots import drop_drawn  # noqa: E402


class Kept:
    """A program that is started again when it dies, so often that it has ``starts``."""

    def __init__(self, name: str, command: Sequence[str | Path], starts: int) -> None:
        self.name, self._command, self._starts_left = name, command, starts
        self.process = self._start()

    def has_succeeded(self) -> bool:
        """False while it runs. RuntimeError if it has died too often."""
        status = self.process.poll()
        if status in (None, 0):
            return status == 0
        if not self._starts_left:
            raise RuntimeError(f"the {self.name} ended with status {status}, and is not started again")
        print(f"the {self.name} ended with status {status}: it is started again", flush=True)
        self.process = self._start()
        return False

    def end(self) -> None:
        """Ends it if it runs."""
        self.process.terminate()
        self.process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        self._starts_left -= 1
        return subprocess.Popen(self._command)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reservation", default="amr")
    parser.add_argument("--output", type=Path, default=Path("amr-out"), help="folder for pictures and checkpoints")
    parser.add_argument("--outputs", type=int, default=41, help="plotfiles and checkpoints, one each six steps")
    parser.add_argument("--cells", type=int, default=32, help="along each axis of level 0; a multiple of 8")
    parser.add_argument("--kill", action="store_true", help="kill the renderer when it has drawn five frames")
    chosen = parser.parse_args()
    name, output = chosen.reservation, chosen.output
    command: list[str | Path] = [sys.executable, "-P", "-m", "forebay"]
    if output.exists():
        raise SystemExit(f"{output} is there already: remove it, or name another folder by --output")
    # Room for all checkpoints, and for the few plotfiles and steps that wait for the renderer.
    subprocess.run([*command, "create", name, "--capacity", "512MiB", "--files", "1GiB"], check=True)
    with forebay.Admin() as admin:
        run = Path(admin.reservation(name).files_path) / "run"
    if run.exists():
        raise SystemExit(f"{name} has the files of another run: forebay destroy {name}")

    matching = ["--match", "chk?????", "--complete", "rename", "--every", "10", "--follow", "--until", "finished"]
    size = ["--outputs", str(chosen.outputs), "--cells", str(chosen.cells)]
    with contextlib.ExitStack() as stack:

        def start(what: str, *arguments: str | Path, starts: int = 1) -> Kept:
            kept = Kept(what, arguments, starts)
            stack.callback(kept.end)
            return kept

        drawing = ["render", f"{name}/plots", "--scene", HERE / "scene.toml", "--out", output / "pictures"]
        renderer = start("renderer", *command, *drawing, starts=STARTS_MAX)
        maker = start("maker of steps", sys.executable, HERE / "plots.py", name, starts=STARTS_MAX)
        stage = start("stage", *command, "stage-out", f"{name}:run", output / "checkpoints", *matching)
        simulation = start("simulation", sys.executable, HERE / "simulation.py", run, *size, "--compare")
        programs = [simulation, maker, stage, renderer]
        to_kill = chosen.kill
        while [program for program in programs if not program.has_succeeded()]:
            if to_kill and len(list((output / "pictures" / "frames").glob("*.png"))) >= FRAMES_BEFORE_KILL:
                renderer.process.send_signal(signal.SIGKILL)
                to_kill = False
            time.sleep(POLL_SECONDS)
    drop_drawn(name)
    tell(run, output)


def tell(run: Path, output: Path) -> None:
    """What came of it."""
    end = (run / "finished").stat().st_mtime
    report = json.loads((run / "finished").read_text())
    frames = list((output / "pictures" / "frames").glob("*.png"))
    late = max(frame.stat().st_mtime for frame in frames) - end
    megabytes = report["plotfile_bytes"] / 1e6
    rate, plain = (megabytes / report[f"{what}_seconds"] for what in ("plotfile", "plain"))
    kept = sorted(path.name for path in (output / "checkpoints").glob("chk*"))
    print(f"{output / 'pictures' / 'movie.mp4'}: {len(frames)} frames, the last one {late:.1f} s after the run's end")
    print(f"{megabytes:.0f} MB of plotfiles, of which {len(list(run.glob('plt*')))} are left; kept: {' '.join(kept)}")
    print(f"plotfiles {rate:.0f} MB/s, plain files {plain:.0f} MB/s: {rate / plain:.2f} of their rate")


if __name__ == "__main__":
    main()
