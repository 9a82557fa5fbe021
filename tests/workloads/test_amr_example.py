# SPDX-License-Identifier: Apache-2.0
"""The example of AMR levels, run as its head says: frames and a movie while it runs, also through kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yt

from forebay.connectors import amrex
from forebay.viz.fragments import walk_file
from tests.support.example_programs import EXAMPLES, example_module
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.time_limits import seconds

OUTPUTS, CELLS = 12, 16
SIZE = ("--outputs", str(OUTPUTS), "--cells", str(CELLS))
NUMBERS = [6 * output for output in range(OUTPUTS)]
AMR = EXAMPLES / "27_amr"


@dataclass(frozen=True)
class Result:
    """What a run of the example left."""

    output: Path
    printed: list[str]

    @property
    def pictures(self) -> Path:
        return self.output / "pictures"


def frames(pictures: Path) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in sorted((pictures / "frames").glob("*.png"))}


def movie_steps(pictures: Path) -> list[int]:
    with (pictures / "movie.mp4").open("rb") as file:
        return [fragment.number - 1 for fragment in walk_file(file)[1]]


def shows(pictures: Path, number: int) -> bool:
    return (pictures / "frames" / f"{number:06d}.png").exists()


def plays(pictures: Path, numbers: list[int]) -> bool:
    return movie_steps(pictures)[: len(numbers)] == numbers


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def simulate(folder: Path, *options: str) -> None:
    subprocess.run([sys.executable, AMR / "simulation.py", folder, *SIZE, *options], check=True, timeout=seconds(200))


@contextmanager
def instance_below(folder: Path) -> Iterator[tuple[CommandLineInstance, dict[str, str]]]:
    """An instance, and the environment of its users."""
    with CommandLineInstance(folder / "root", capacity="4GiB") as instance:
        yield instance, os.environ | instance.environment | {"XDG_STATE_HOME": str(folder / "state")}


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def files_of(instance: CommandLineInstance) -> Path:
    return next(Path(row["files_path"]) for row in instance.ask("ls")["reservations"] if row["name"] == "amr")


def run_example(folder: Path, *options: str) -> Result:
    output = folder / "out"
    with instance_below(folder) as (instance, environment):
        done = subprocess.run(
            [sys.executable, AMR / "amr.py", "--output", output, *SIZE, *options],
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds(200),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        left = {path.name for path in (files_of(instance) / "run").iterdir()}
    assert left == {"finished", *(f"chk{number:05d}" for number in NUMBERS)}
    return Result(output, done.stdout.splitlines())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run_example(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the simulation without Forebay."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    simulate(folder)
    return folder


@pytest.mark.timeout(300)
def test_each_plotfile_becomes_a_frame_and_one_checkpoint_in_ten_stays(undisturbed: Result, alone: Path) -> None:
    assert list(frames(undisturbed.pictures)) == movie_steps(undisturbed.pictures) == NUMBERS
    kept = undisturbed.output / "checkpoints"
    assert sorted(path.name for path in kept.glob("chk*")) == ["chk00000", "chk00060"]
    for name in ("chk00000", "chk00060"):
        assert contents(kept / name) == contents(alone / name)
    assert f"{OUTPUTS} plotfiles became steps; at most " in "\n".join(undisturbed.printed)
    assert undisturbed.printed[-1].startswith("plotfiles ")


@pytest.mark.timeout(300)
def test_a_killed_renderer_goes_on_and_draws_the_same(undisturbed: Result, tmp_path: Path) -> None:
    killed = run_example(tmp_path, "--kill")
    assert killed.printed.count("the renderer ended with status -9: it is started again") == 1
    assert frames(killed.pictures) == frames(undisturbed.pictures)
    assert movie_steps(killed.pictures) == NUMBERS


@pytest.mark.timeout(300)
def test_movie_grows_while_it_runs_and_a_kill_at_each_frame_loses_none(
    undisturbed: Result, alone: Path, tmp_path: Path
) -> None:
    pictures = tmp_path / "pictures"
    with instance_below(tmp_path) as (instance, environment):
        instance.ask("create", "amr", "--capacity", "512MiB", "--files", "512MiB")
        run = files_of(instance) / "run"
        run.mkdir()

        def start(*command: str | Path) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, *command], env=environment)

        def render() -> subprocess.Popen[bytes]:
            return start("-m", "forebay", "render", "amr/plots", "--scene", AMR / "scene.toml", "--out", pictures)

        def make() -> subprocess.Popen[bytes]:
            return start(AMR / "plots.py", "amr")

        maker, renderer = make(), render()
        try:
            for place, number in enumerate(NUMBERS):
                # As AMReX does: the name appears with all that is in it.
                path = run / f"plt{number:05d}"
                subprocess.run(["cp", "-a", alone / path.name, f"{path}.temp"], check=True)
                Path(f"{path}.temp").rename(path)
                if place % 4 == 3:
                    # Somewhere between learning of the plotfile and dropping the last one.
                    kill(maker)
                    maker = make()
                until(partial(shows, pictures, number), f"frame {number}")
                # The newest frame comes into the movie with the next one: until then nobody knows how long it is shown.
                until(partial(plays, pictures, NUMBERS[:place]), f"{NUMBERS[:place]} in the movie")
                if place % 2:
                    kill(renderer)
                    renderer = render()
            (run / "finished").touch()
            assert (maker.wait(seconds(60)), renderer.wait(seconds(60))) == (0, 0)
        finally:
            kill(maker)
            kill(renderer)
    assert frames(pictures) == frames(undisturbed.pictures)
    assert movie_steps(pictures) == NUMBERS


def test_a_kept_checkpoint_continues_with_the_same_bits(undisturbed: Result, alone: Path, tmp_path: Path) -> None:
    simulate(tmp_path / "again", "--restart", str(undisturbed.output / "checkpoints" / "chk00060"))
    assert sorted(path.name for path in (tmp_path / "again").glob("plt*")) == ["plt00066"]
    for name in ("plt00066", "chk00066"):
        assert contents(tmp_path / "again" / name) == contents(alone / name)


def test_what_is_drawn_is_yts_covering_grid_bit_by_bit(alone: Path) -> None:
    yt.set_log_level("error")
    for number in (0, 66):
        path = alone / f"plt{number:05d}"
        theirs = yt.load(path)
        cells = theirs.domain_dimensions * 2 ** int(theirs.index.max_level)
        grid = theirs.covering_grid(theirs.index.max_level, theirs.domain_left_edge, cells)
        values, levels = example_module("27_amr/plots.py").finest_grid(amrex.Plotfile.read(path), "density")
        assert np.array_equal(values, np.asarray(grid["boxlib", "density"]).T.astype(np.float32))
        for patch in theirs.index.grids:
            ratio = 2 ** (theirs.index.max_level - patch.Level)
            first = patch.get_global_startindex() * ratio
            place = tuple(slice(start, start + cells * ratio) for start, cells in zip(first, patch.shape, strict=True))
            is_finest = np.kron(patch.child_mask, np.ones((ratio,) * 3, bool))
            assert (levels.T[place][is_finest] == patch.Level).all()
        assert set(np.unique(levels)) == {0, 1, 2}


def test_what_was_left_of_another_run_is_refused(tmp_path: Path) -> None:
    def refusal() -> str:
        done = subprocess.run(
            [sys.executable, AMR / "amr.py", "--output", tmp_path / "out", *SIZE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds(60),
        )
        assert done.returncode != 0
        return done.stderr

    with instance_below(tmp_path) as (instance, environment):
        instance.ask("create", "amr", "--capacity", "512MiB", "--files", "1GiB")
        (files_of(instance) / "run").mkdir()
        assert "amr has the files of another run: forebay destroy amr" in refusal()
        (tmp_path / "out").mkdir()
        assert "is there already: remove it, or name another folder by --output" in refusal()
