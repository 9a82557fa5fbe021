# SPDX-License-Identifier: Apache-2.0
"""The growing movie: whole at any time, in the order of the steps, gone on with after crashes and rewinds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from forebay.viz.fragments import walk_file
from forebay.viz.movie import Movie, MovieError, find_ffmpeg
from tests.support.load import until

WIDTH, HEIGHT = 64, 48


def picture(step: int) -> NDArray[np.uint8]:
    """A flat grey that tells the step."""
    return np.full((HEIGHT, WIDTH, 3), 4 * step, np.uint8)


def decoded_steps(path: Path) -> list[int]:
    """What a player sees, by the grey of each frame."""
    command = [find_ffmpeg(), "-loglevel", "error", "-i", str(path), "-fps_mode", "passthrough", "-f", "rawvideo"]
    result = subprocess.run([*command, "-pix_fmt", "gray", "-"], capture_output=True, check=True)
    assert result.stderr == b""
    frames = np.frombuffer(result.stdout, np.uint8).reshape(-1, HEIGHT, WIDTH)
    return [round(float(frame.mean()) / 4) for frame in frames]


def frames_in(path: Path) -> int:
    """How many whole frames the file holds."""
    if path.stat().st_size == 0:
        return 0
    with path.open("rb") as file:
        return len(walk_file(file)[1])


def test_frames_come_out_in_order(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"
    with Movie(path, WIDTH, HEIGHT) as movie:
        for step in range(30):
            movie.append(step, picture(step))
        assert movie.last_step == 29
    assert decoded_steps(path) == list(range(30))


def test_it_can_be_watched_while_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"
    with Movie(path, WIDTH, HEIGHT) as movie:
        for step in range(60):
            movie.append(step, picture(step))
            if seen := frames_in(path):
                shown = decoded_steps(path)
                assert shown == list(range(len(shown)))
                assert len(shown) >= seen
        # The encoder works beside this process, and may have just begun.
        until(lambda: frames_in(path) > 0, "something can be seen before the end")
        shown = decoded_steps(path)
        assert shown == list(range(len(shown)))


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"
    for begin in (0, 7, 9):
        with Movie(path, WIDTH, HEIGHT) as movie:
            for step in range(begin, begin + 7 if begin == 0 else begin + 2):
                movie.append(step, picture(step))
    assert decoded_steps(path) == list(range(11))


def test_rewind_takes_steps_out_and_the_new_ones_take_their_place(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"
    with Movie(path, WIDTH, HEIGHT) as movie:
        for step in range(10):
            movie.append(step, picture(step))
        movie.rewind(4)
        assert movie.last_step == 3
        for step in range(4, 7):
            movie.append(step, picture(step + 20))
        movie.rewind(99)
        assert movie.last_step == 6
    assert decoded_steps(path) == [0, 1, 2, 3, 24, 25, 26]


def test_rewind_to_the_beginning_leaves_a_movie_that_can_grow(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"
    with Movie(path, WIDTH, HEIGHT) as movie:
        movie.append(3, picture(3))
        movie.rewind(0)
        assert movie.last_step is None
        movie.append(0, picture(1))
    assert decoded_steps(path) == [1]


@pytest.mark.parametrize("lost_bytes", [1, 40, 400])
def test_a_torn_tail_is_cut_off(tmp_path: Path, lost_bytes: int) -> None:
    path = tmp_path / "movie.mp4"
    with Movie(path, WIDTH, HEIGHT) as movie:
        for step in range(10):
            movie.append(step, picture(step))
    os.truncate(path, path.stat().st_size - lost_bytes)
    with Movie(path, WIDTH, HEIGHT) as movie:
        last = movie.last_step
        assert last is not None
        assert last < 9
        for step in range(last + 1, 12):
            movie.append(step, picture(step))
    assert decoded_steps(path) == list(range(12))


def test_a_killed_writer_leaves_a_playable_movie(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"
    script = (
        "import numpy as np, os, signal, pathlib, sys\n"
        "from forebay.viz.movie import Movie\n"
        "movie = Movie(pathlib.Path(sys.argv[1]), 64, 48)\n"
        "for step in range(40): movie.append(step, np.full((48, 64, 3), 4 * step, np.uint8))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert killed.returncode == -9
    with Movie(path, WIDTH, HEIGHT) as movie:
        last = -1 if movie.last_step is None else movie.last_step
        for step in range(last + 1, 42):
            movie.append(step, picture(step))
    assert decoded_steps(path) == list(range(42))


def test_steps_that_were_never_seen_leave_their_time_but_at_most_a_second(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"
    with Movie(path, WIDTH, HEIGHT, frame_rate=10) as movie:
        for step in (5, 6, 9, 1000):
            movie.append(step, picture(step % 40))
    with path.open("rb") as file:
        fragments = walk_file(file)[1]
    assert [fragment.number - 1 for fragment in fragments] == [5, 6, 9, 1000]
    assert [fragment.decode_time / 1000 for fragment in fragments] == [0, 1, 4, 15]


def test_a_step_twice_is_refused_without_a_rewind(tmp_path: Path) -> None:
    with Movie(tmp_path / "movie.mp4", WIDTH, HEIGHT) as movie:
        movie.append(4, picture(4))
        with pytest.raises(ValueError, match=r"rewind\(4\) first"):
            movie.append(4, picture(4))


def test_another_size_than_the_movie_was_begun_with_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"
    with Movie(path, WIDTH, HEIGHT) as movie:
        movie.append(0, picture(0))
    movie = Movie(path, WIDTH, HEIGHT + 2)
    movie.append(1, np.zeros((HEIGHT + 2, WIDTH, 3), np.uint8))
    with pytest.raises(MovieError, match="delete it"):
        movie.close()


def test_a_file_that_is_no_movie_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"
    path.write_bytes(b"\0\0\0\1 not a movie")
    with pytest.raises(MovieError, match="move it away"):
        Movie(path, WIDTH, HEIGHT)
    assert path.read_bytes() == b"\0\0\0\1 not a movie"


def test_without_ffmpeg_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MovieError, match=r"forebay\[viz\]"):
        find_ffmpeg()


def test_ctrl_c_within_a_picture_leaves_a_movie_without_it(tmp_path: Path) -> None:
    path = tmp_path / "movie.mp4"

    class TornPicture:
        """Half of its bytes go to the encoder, then Ctrl-C comes."""

        def __init__(self, stdin: BinaryIO) -> None:
            self._stdin = stdin

        def write(self, data: memoryview) -> None:
            self._stdin.write(data.cast("B")[: data.nbytes // 2])
            raise KeyboardInterrupt

        def flush(self) -> None:
            self._stdin.flush()

        def close(self) -> None:
            self._stdin.close()

    with Movie(path, WIDTH, HEIGHT) as movie:
        for step in range(5):
            movie.append(step, picture(step))
        assert movie._encoder is not None
        movie._encoder._process.stdin = cast(Any, TornPicture(cast(BinaryIO, movie._encoder._process.stdin)))
        with pytest.raises(KeyboardInterrupt):
            movie.append(5, picture(5))
    assert decoded_steps(path) == list(range(5))
    with Movie(path, WIDTH, HEIGHT) as movie:
        assert movie.last_step == 4
        movie.append(5, picture(5))
    assert decoded_steps(path) == list(range(6))
