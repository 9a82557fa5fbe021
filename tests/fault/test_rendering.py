# SPDX-License-Identifier: Apache-2.0
"""From steps to frames and movie: newest first, acknowledged on disk, whole after rewinds and crashes of the child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from PIL import Image

import forebay
from forebay.errors import InvalidArgumentError
from forebay.viz.coming_steps import ComingSteps
from forebay.viz.fragments import walk_file
from forebay.viz.painter import Painter, PainterError
from forebay.viz.recorder import Recorder
from forebay.viz.scenes.description import OutlineLayer, SceneDescription, SliceLayer
from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.time_limits import seconds

pytestmark = pytest.mark.usefixtures("current_instance")

SCENE = SceneDescription((SliceLayer("T", range=(0.0, 40.0)), OutlineLayer()), size=(160, 120))
ADDRESS = "r/flow"


@pytest.fixture
def painter() -> Iterator[Painter]:
    with Painter(SCENE) as painter:
        yield painter


def write(stream: forebay.WritableStream, *numbers: int) -> None:
    for number in numbers:
        with stream.step() as step:
            step["T"] = np.full((4, 6, 6), number, np.float32)


def write_all(steps: int, mode: str = "w", **options: object) -> None:
    with forebay.open(ADDRESS, mode=mode, **options) as stream:  # type: ignore[call-overload]
        write(stream, *range(steps))


def movie_steps(folder: Path) -> list[int]:
    with (folder / "movie.mp4").open("rb") as file:
        return [fragment.number - 1 for fragment in walk_file(file)[1]]


def frame_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "frames").iterdir())


def step_is_gone(step: forebay.Step, _path: Path, inner: bool) -> None:
    raise forebay.StepGoneError("the step was withdrawn", str(step.address))


def names(*numbers: int) -> list[str]:
    return [f"{number:06d}.png" for number in numbers]


class Recording:
    """Draws what comes, step by step as the test says."""

    def __init__(self, folder: Path, painter: Painter, *, latest: bool = True, whole: bool = True) -> None:
        self.stream = forebay.open(ADDRESS)
        self.recorder = Recorder(folder, painter)
        self.gone: list[str] = []
        self.drawn: list[int] = []
        self.coming = ComingSteps(
            self.stream.follow("render", timeout=seconds(60), ack="manual"),
            latest=latest,
            whole=whole,
            on_withdrawn=self.recorder.withdraw,
            on_gone=self._pass_over,
        )

    def _pass_over(self, reason: str) -> None:
        self.gone.append(reason)
        self.recorder.pass_over(self.coming)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.coming.close()
        self.recorder.close()
        self.stream.close()

    def draw(self) -> int | None:
        """The next one; its number, or None at the end."""
        step = self.coming.take()
        if step is None:
            return None
        with step:
            if self.recorder.record(self.coming, step):
                self.drawn.append(step.number)
        return step.number

    def draw_all(self) -> list[int]:
        while self.draw() is not None:
            pass
        return self.drawn

    def wait_for(self, newest: int) -> None:
        until(lambda: self.coming.newest_known == newest, f"step {newest} has come")

    @property
    def position(self) -> int:
        return next(known.position for known in self.stream.info.consumers if known.name == "render")


def record_all(folder: Path, painter: Painter, **options: bool) -> list[int]:
    with Recording(folder, painter, **options) as recording:
        return recording.draw_all()


def test_newest_step_is_drawn_first_and_skipped_ones_afterwards(tmp_path: Path, painter: Painter) -> None:
    with forebay.open(ADDRESS, mode="w") as stream, Recording(tmp_path, painter) as recording:
        write(stream, 0)
        assert recording.draw() == 0
        write(stream, 1, 2, 3)
        recording.wait_for(3)
        assert recording.draw() == 3
        assert (tmp_path / "latest.png").resolve().name == "000003.png"
        assert movie_steps(tmp_path)[:1] in ([], [0])
        assert recording.position == 1  # 1 and 2 are to be drawn yet
        assert recording.draw() == 1
        assert recording.position == 2
        write(stream, 4)
        recording.wait_for(4)
        assert recording.draw() == 4  # what is newer comes before what was skipped
        assert recording.draw() == 2
        assert recording.position == 5
        assert (tmp_path / "latest.png").resolve().name == "000004.png"
    assert movie_steps(tmp_path) == [0, 1, 2, 3, 4]
    assert frame_files(tmp_path) == names(0, 1, 2, 3, 4)


def test_in_order_means_one_after_another(tmp_path: Path, painter: Painter) -> None:
    write_all(5)
    assert record_all(tmp_path, painter, latest=False) == [0, 1, 2, 3, 4]
    assert movie_steps(tmp_path) == [0, 1, 2, 3, 4]


def test_skipped_steps_are_left_out_on_request(tmp_path: Path, painter: Painter) -> None:
    with forebay.open(ADDRESS, mode="w") as stream, Recording(tmp_path, painter, whole=False) as recording:
        write(stream, 0, 1, 2)
        recording.wait_for(2)
        assert recording.draw() == 2
        assert recording.position == 3
        write(stream, 3, 4)
        recording.wait_for(4)
        assert recording.draw() == 4
    assert movie_steps(tmp_path) == [2, 4]


def test_a_step_is_acknowledged_when_its_frame_is_on_disk(tmp_path: Path, painter: Painter) -> None:
    write_all(1)
    with Recording(tmp_path, painter) as recording:
        acknowledge = recording.coming.acknowledge

        def checked(step: forebay.Step) -> None:
            with Image.open(tmp_path / "frames/000000.png") as image:
                assert image.size == (160, 120)
                image.load()
            acknowledge(step)

        recording.coming.acknowledge = checked  # type: ignore[method-assign]
        recording.draw()
        assert recording.position == 1


# crash-matrix: forebay render | the producer restarts and withdraws steps | their frames leave folder and movie, and the new ones take their place
def test_steps_withdrawn_by_a_restart_are_replaced(tmp_path: Path, painter: Painter) -> None:
    write_all(5)
    with Recording(tmp_path, painter) as recording:
        assert sorted(recording.draw_all()) == [0, 1, 2, 3, 4]
    before = (tmp_path / "frames/000002.png").read_bytes()
    with forebay.open(ADDRESS, mode="a", append_after=1) as stream:
        write(stream, 30, 31)
    record_all(tmp_path, painter)
    assert frame_files(tmp_path) == names(0, 1, 2, 3)
    assert movie_steps(tmp_path) == [0, 1, 2, 3]
    assert (tmp_path / "frames/000002.png").read_bytes() != before


LOST_WRITER = """
import os, sys, numpy, forebay
stream = forebay.open(sys.argv[1], mode="w")
for number in range(4):
    with stream.step() as step:
        step["T"] = numpy.full((4, 6, 6), number, numpy.float32)
os._exit(9)
"""


def test_a_step_withdrawn_while_it_is_drawn_leaves_no_frame(tmp_path: Path, painter: Painter) -> None:
    lost = subprocess.run([sys.executable, "-c", LOST_WRITER, ADDRESS], check=False)
    assert lost.returncode == 9
    with Recording(tmp_path, painter) as recording:
        recording.wait_for(3)
        step = recording.coming.take()
        assert step is not None
        assert step.number == 3
        with forebay.open(ADDRESS, mode="a", append_after=1) as stream:
            write(stream, 30)
            recording.wait_for(2)
            with step:
                assert not recording.recorder.record(recording.coming, step)
            assert recording.draw() == 2
            assert frame_files(tmp_path) == names(2)


# crash-matrix: forebay render | the producer restarts and withdraws the step in hand, and writes nothing yet | rendering waits, and goes on with the step that takes its place
@pytest.mark.parametrize("is_held", [True, False])
def test_a_step_withdrawn_before_another_one_comes_is_no_error(
    tmp_path: Path, painter: Painter, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """One that is held can be drawn all the same; its picture goes when the other one comes."""
    lost = subprocess.run([sys.executable, "-c", LOST_WRITER, ADDRESS], check=False)
    assert lost.returncode == 9
    with Recording(tmp_path, painter) as recording:
        recording.wait_for(3)
        step = recording.coming.take()
        assert step is not None
        with forebay.open(ADDRESS, mode="a", append_after=1) as stream:
            with step, monkeypatch.context() as without_pin:
                if not is_held:
                    without_pin.setattr(painter, "paint", step_is_gone)
                assert recording.recorder.record(recording.coming, step) == is_held
            write(stream, 30, 31)
            recording.wait_for(3)
            while set(recording.drawn) != {0, 1, 2, 3}:
                recording.draw()
        assert recording.gone == []
    assert frame_files(tmp_path) == names(0, 1, 2, 3)
    assert movie_steps(tmp_path) == [0, 1, 2, 3]


def test_steps_withdrawn_for_good_leave_no_frames(tmp_path: Path, painter: Painter) -> None:
    """A writer that comes back, takes steps back and ends."""
    lost = subprocess.run([sys.executable, "-c", LOST_WRITER, ADDRESS], check=False)
    assert lost.returncode == 9
    with Recording(tmp_path, painter, latest=False) as recording:
        while recording.drawn != [0, 1, 2, 3]:
            recording.draw()
        with forebay.open(ADDRESS, mode="a", append_after=1):
            pass
        assert recording.draw() is None
    assert frame_files(tmp_path) == names(0, 1)
    assert movie_steps(tmp_path) == [0, 1]


def test_a_recording_without_a_frame_leaves_nothing_behind(tmp_path: Path, painter: Painter) -> None:
    with forebay.open(ADDRESS, mode="w") as stream, stream.step() as step:
        step["profile"] = np.zeros(4)
    folder = tmp_path / "new" / "pictures"
    with Recording(folder, painter) as recording, pytest.raises(InvalidArgumentError):
        recording.draw()
    assert not (tmp_path / "new").exists()


def test_a_step_given_again_after_a_restart_of_the_consumer_is_shown_once(tmp_path: Path, painter: Painter) -> None:
    with forebay.open(ADDRESS, mode="w") as stream:
        with Recording(tmp_path, painter) as recording:
            write(stream, 0, 1, 2, 3)
            recording.wait_for(3)
            assert recording.draw() == 3  # not acknowledged: 0 to 2 are missing
        with Recording(tmp_path, painter) as recording:
            recording.wait_for(3)
            while recording.drawn != [3, 0, 1, 2]:
                recording.draw()
    assert movie_steps(tmp_path) == [0, 1, 2, 3]


def test_frames_that_a_killed_movie_lost_are_put_back(tmp_path: Path, painter: Painter) -> None:
    write_all(4)
    record_all(tmp_path, painter)
    os.truncate(tmp_path / "movie.mp4", 2000)
    record_all(tmp_path, painter)
    assert movie_steps(tmp_path) == [0, 1, 2, 3]
    (tmp_path / "movie.mp4").unlink()
    record_all(tmp_path, painter)
    assert movie_steps(tmp_path) == [0, 1, 2, 3]


def test_movie_frames_without_a_file_are_taken_out(tmp_path: Path, painter: Painter) -> None:
    write_all(4)
    record_all(tmp_path, painter)
    for number in (2, 3):
        (tmp_path / f"frames/{number:06d}.png").unlink()
    (tmp_path / "frames/.000002.png.77.part").write_bytes(b"half")
    record_all(tmp_path, painter)
    assert movie_steps(tmp_path) == [0, 1]
    assert frame_files(tmp_path) == names(0, 1)


def test_another_size_in_the_same_folder_is_refused(tmp_path: Path, painter: Painter) -> None:
    write_all(1)
    record_all(tmp_path, painter)
    (tmp_path / "movie.mp4").unlink()
    with pytest.raises(InvalidArgumentError, match="another folder"):
        Recorder(tmp_path, Painter(SceneDescription(SCENE.layers, size=(162, 120))))


def test_steps_that_retention_dropped_are_told_and_passed_over(tmp_path: Path, painter: Painter) -> None:
    with forebay.open(ADDRESS, mode="w", retention="last:2") as stream, Recording(tmp_path, painter) as recording:
        write(stream, 0)
        recording.wait_for(0)
        step = recording.coming.take()
        assert step is not None
        for number in range(1, 6):
            write(stream, number)
            recording.wait_for(number)
        with step:
            recording.recorder.record(recording.coming, step)
        assert recording.draw() == 5
        assert recording.draw() == 4
        assert recording.position == 6
        assert len(recording.gone) == 3
        assert "step 1" in recording.gone[0]
    assert movie_steps(tmp_path) == [0, 4, 5]


CRASHING_CHILD = """
import os, pathlib, signal, sys
from forebay.viz import painter_child
count = pathlib.Path(sys.argv[1])
attempt = int(count.read_text()) if count.exists() else 0
count.write_text(str(attempt + 1))
how = sys.argv[2]
if attempt < int(sys.argv[3]):
    def fail(self):
        if how != "crash":
            pathlib.Path(sys.argv[1] + ".pid").write_text(str(os.getpid()))
            signal.pause()
        print("the driver says no", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    painter_child.ScenePicture.render = fail
sys.exit(painter_child.main(sys.argv[4:]))
"""


def crashing_painter(tmp_path: Path, how: str, crashes: int, notes: list[str]) -> Painter:
    script = tmp_path / "child.py"
    script.write_text(CRASHING_CHILD)
    command = (sys.executable, str(script), str(tmp_path / "attempts"), how, str(crashes))
    # The one that comes after it starts within this, also on a busy machine.
    timeout_s = seconds(20 if how == "hang" else 60)
    return Painter(SCENE, timeout_s=timeout_s, on_retry=notes.append, command=command)


# crash-matrix: forebay render | the process that draws crashes or hangs | a new one draws the frame; cursor and movie go on
@pytest.mark.parametrize("how", ["crash", "hang"])
def test_a_crashed_or_hanging_child_is_replaced_and_the_frame_drawn(tmp_path: Path, how: str) -> None:
    write_all(2)
    notes: list[str] = []
    with crashing_painter(tmp_path, how, 1, notes) as painter:
        record_all(tmp_path / "out", painter)
    assert frame_files(tmp_path / "out") == names(0, 1)
    assert len(notes) == 1
    assert ("signal 11" if how == "crash" else f"no frame within {seconds(20):g} s") in notes[0]


# crash-matrix: forebay render | the process that draws is killed while it draws | a new one draws the frame; the step stays pinned meanwhile
def test_a_child_killed_while_it_draws_is_replaced(tmp_path: Path) -> None:
    write_all(2)
    notes: list[str] = []
    pid = tmp_path / "attempts.pid"

    def kill() -> None:
        until(lambda: pid.exists() and pid.read_text() != "", "the child draws")
        os.kill(int(pid.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with crashing_painter(tmp_path, "wait", 1, notes) as painter:
        record_all(tmp_path / "out", painter)
    killer.join()
    assert frame_files(tmp_path / "out") == names(0, 1)
    assert movie_steps(tmp_path / "out") == [0, 1]
    assert "signal 9" in notes[0]


def test_a_child_that_always_crashes_is_given_up_and_the_step_not_acknowledged(tmp_path: Path) -> None:
    write_all(1)
    notes: list[str] = []
    with crashing_painter(tmp_path, "crash", 99, notes) as painter, Recording(tmp_path / "out", painter) as recording:
        with pytest.raises(PainterError, match=r"step 0 .* in 3 attempts.*signal 11.*the driver says no.*libegl1"):
            recording.draw()
        assert recording.position == 0
    assert len(notes) == 2
    assert not (tmp_path / "out").exists()


def test_a_picture_that_cannot_be_written_is_no_crash(tmp_path: Path, painter: Painter) -> None:
    write_all(1)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with forebay.open(ADDRESS)[0] as step:
        with pytest.raises(PainterError, match=r"step 0 cannot be rendered: .*File exists"):
            painter.paint(step, blocked / "000000.png")
        picture = painter.paint(step, tmp_path / "000000.png")
        assert picture.shape == (120, 160, 3)
        with Image.open(tmp_path / "000000.png") as image:
            assert np.array_equal(np.asarray(image), picture)


# crash-matrix: forebay render | the staging server is killed while it draws and started again | it continues; every step has its frame
def test_the_server_killed_between_two_frames_costs_nothing(
    tmp_path: Path, painter: Painter, instance: Instance
) -> None:
    with forebay.open(ADDRESS, mode="w") as stream, Recording(tmp_path, painter) as recording:
        write(stream, 0, 1)
        recording.wait_for(1)
        assert recording.draw() == 1
        instance.restart()
        write(stream, 2)
        recording.wait_for(2)
        assert [recording.draw(), recording.draw()] == [2, 0]
    assert movie_steps(tmp_path) == [0, 1, 2]


def test_command_ends_with_the_stream_and_has_all_frames(tmp_path: Path) -> None:
    out = tmp_path / "pictures"
    command = [sys.executable, "-m", "forebay", "render", ADDRESS, "--out", str(out), "--size", "160x120"]
    with forebay.open(ADDRESS, mode="w") as stream:
        write(stream, 0)
        running = subprocess.Popen([*command, "--timeout", "60"], stderr=subprocess.PIPE, text=True)
        until(lambda: (out / "latest.png").exists(), "the first picture")
        write(stream, *range(1, 8))
    _, words = running.communicate(timeout=seconds(60))
    assert running.returncode == 0, words
    assert frame_files(out) == names(*range(8))
    assert movie_steps(out) == list(range(8))
    assert (out / "latest.png").resolve().name == "000007.png"

    # Drawn again because its cursor lies there: nobody took the stream back.
    subprocess.run([sys.executable, "-m", "forebay", "consumer", "seek", ADDRESS, "render", "5"], check=True)
    again = subprocess.run(command, capture_output=True, text=True, timeout=seconds(60))
    assert again.returncode == 0, again.stderr
    assert "continues with step 5: frames from there on are rendered again" in again.stderr
    assert "taken back" not in again.stderr
    assert frame_files(out) == names(*range(8))
