# SPDX-License-Identifier: Apache-2.0
"""From steps to frames and movie: acknowledged when on disk, in order after rewinds, alive when the child crashes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from forebay.errors import InvalidArgumentError
from forebay.viz.fields import FlowFields
from forebay.viz.fragments import walk_file
from forebay.viz.painter import Painter, PainterError
from forebay.viz.recorder import Recorder
from forebay.viz.scene_options import SceneOptions
from tests.unit.viz.recorded_stream import swirling_step

OPTIONS = SceneOptions(width=160, height=120)


@pytest.fixture
def painter() -> Iterator[Painter]:
    with Painter(OPTIONS) as painter:
        yield painter


def movie_steps(folder: Path) -> list[int]:
    with (folder / "movie.mp4").open("rb") as file:
        return [fragment.number - 1 for fragment in walk_file(file)[1]]


def frame_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "frames").iterdir())


def record(folder: Path, painter: Painter, numbers: list[int]) -> None:
    with Recorder(folder, painter, OPTIONS) as recorder:
        for number in numbers:
            recorder.record(swirling_step(number))


def test_a_step_is_acknowledged_when_its_frame_is_on_disk(tmp_path: Path, painter: Painter) -> None:
    step = swirling_step(3)
    with Recorder(tmp_path, painter, OPTIONS) as recorder:
        acknowledge = step.ack

        def checked() -> None:
            with Image.open(tmp_path / "frames/000003.png") as image:
                assert image.size == (160, 120)
                image.load()
            acknowledge()

        step.ack = checked  # type: ignore[method-assign]
        recorder.record(step)
    assert step.acknowledged
    assert frame_files(tmp_path) == ["000003.png"]
    assert movie_steps(tmp_path) == [3]


def test_steps_withdrawn_by_a_restart_are_replaced(tmp_path: Path, painter: Painter) -> None:
    record(tmp_path, painter, [0, 1, 2, 3, 4, 2, 3])
    assert frame_files(tmp_path) == ["000000.png", "000001.png", "000002.png", "000003.png"]
    assert movie_steps(tmp_path) == [0, 1, 2, 3]


def test_a_step_given_again_after_a_restart_of_the_consumer_is_shown_once(tmp_path: Path, painter: Painter) -> None:
    record(tmp_path, painter, [0, 1, 2])
    record(tmp_path, painter, [2, 3])
    assert movie_steps(tmp_path) == [0, 1, 2, 3]


def test_frames_that_a_killed_movie_lost_are_put_back(tmp_path: Path, painter: Painter) -> None:
    record(tmp_path, painter, [0, 1, 2, 3])
    os.truncate(tmp_path / "movie.mp4", 2000)
    record(tmp_path, painter, [4])
    assert movie_steps(tmp_path) == [0, 1, 2, 3, 4]
    (tmp_path / "movie.mp4").unlink()
    record(tmp_path, painter, [5])
    assert movie_steps(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_movie_frames_without_a_file_are_taken_out(tmp_path: Path, painter: Painter) -> None:
    record(tmp_path, painter, [0, 1, 2, 3])
    for number in (2, 3):
        (tmp_path / f"frames/{number:06d}.png").unlink()
    (tmp_path / "frames/.000002.png.77.part").write_bytes(b"half")
    record(tmp_path, painter, [])
    assert movie_steps(tmp_path) == [0, 1]
    assert frame_files(tmp_path) == ["000000.png", "000001.png"]


def test_another_size_in_the_same_folder_is_refused(tmp_path: Path, painter: Painter) -> None:
    record(tmp_path, painter, [0])
    (tmp_path / "movie.mp4").unlink()
    with pytest.raises(InvalidArgumentError, match="another folder"):
        Recorder(tmp_path, painter, SceneOptions(width=162, height=120))


CRASHING_CHILD = """
import os, pathlib, signal, sys
from forebay.viz import painter_child
count = pathlib.Path(sys.argv[1])
attempt = int(count.read_text()) if count.exists() else 0
count.write_text(str(attempt + 1))
how = sys.argv[2]
if attempt < int(sys.argv[3]):
    def fail(self, fields):
        if how == "hang":
            signal.pause()
        print("the driver says no", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    painter_child.Scene.render = fail
sys.exit(painter_child.main(sys.argv[4:]))
"""


def crashing_painter(tmp_path: Path, how: str, crashes: int, notes: list[str]) -> Painter:
    script = tmp_path / "child.py"
    script.write_text(CRASHING_CHILD)
    command = (sys.executable, str(script), str(tmp_path / "attempts"), how, str(crashes))
    return Painter(OPTIONS, timeout_s=3.0 if how == "hang" else 60.0, on_retry=notes.append, command=command)


@pytest.mark.parametrize("how", ["crash", "hang"])
def test_a_crashed_or_hanging_child_is_replaced_and_the_frame_drawn(tmp_path: Path, how: str) -> None:
    notes: list[str] = []
    with crashing_painter(tmp_path, how, 1, notes) as painter:
        record(tmp_path / "out", painter, [4, 5])
    assert frame_files(tmp_path / "out") == ["000004.png", "000005.png"]
    assert len(notes) == 1
    assert ("signal 11" if how == "crash" else "no frame within 3 s") in notes[0]


def test_a_child_that_always_crashes_is_given_up_and_the_step_not_acknowledged(tmp_path: Path) -> None:
    notes: list[str] = []
    step = swirling_step(4)
    with (
        crashing_painter(tmp_path, "crash", 99, notes) as painter,
        Recorder(tmp_path / "out", painter, OPTIONS) as recorder,
    ):
        with pytest.raises(PainterError, match=r"step 4 .* in 3 attempts.*signal 11.*the driver says no.*libegl1"):
            recorder.record(step)
        assert not step.acknowledged
    assert len(notes) == 2
    assert frame_files(tmp_path / "out") == []


def test_fields_that_cannot_be_drawn_are_no_crash(tmp_path: Path, painter: Painter) -> None:
    step = swirling_step(2)
    fields = FlowFields.of_step(2, step.variables, step.attributes)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(PainterError, match=r"step 2 cannot be rendered: .*File exists"):
        painter.paint(fields, blocked / "000002.png")
    assert painter.paint(fields, tmp_path / "000002.png").shape == (120, 160, 3)


def test_grids_of_growing_size_pass_through_the_same_memory(tmp_path: Path, painter: Painter) -> None:
    for extent in (4, 40, 12):
        solid = np.zeros((extent, extent, extent), np.uint8)
        velocity = np.zeros((extent, extent, extent, 3), np.float32)
        velocity[..., 2] = 0.01
        picture = painter.paint(FlowFields(extent, velocity, solid), tmp_path / f"{extent}.png")
        with Image.open(tmp_path / f"{extent}.png") as image:
            assert np.array_equal(np.asarray(image), picture)
