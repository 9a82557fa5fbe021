# SPDX-License-Identifier: Apache-2.0
"""An H.264 movie that can be watched while it grows, survives any crash, and can be cut back and continued.

It is a fragmented MP4 with one fragment per frame, appended whole. A fragment carries the number of its step, so the
file alone says what it shows: after a crash a torn tail is cut off; when steps are withdrawn, the movie is cut back to
the frame before them and continues there, so it always shows each step once and in order. Steps that were never seen
leave their place on the time axis: the frame before them stays on show for as long as they would have, but not longer
than a second.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import tempfile
from collections import deque
from pathlib import Path
from threading import Thread
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from forebay.closing import Closing
from forebay.viz.fragments import Box, FormatError, Fragment, read_box, renumber, timescale, walk_file
from forebay.viz.made_folders import MadeFolders

__all__ = ["Movie", "MovieError", "find_ffmpeg"]


class MovieError(RuntimeError):
    """The movie cannot be written; the text says why and what to do."""


def find_ffmpeg() -> str:
    """Path of an ffmpeg program: the one on PATH, else the one that imageio-ffmpeg brings."""
    on_path = shutil.which("ffmpeg")
    if on_path is not None:
        return on_path
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError) as error:
        raise MovieError(
            "no ffmpeg was found: pip install 'forebay[viz]', or put an ffmpeg with libx264 on PATH"
        ) from error


class Movie(Closing):
    """A movie file. Belongs to one process and thread at a time.

    Parameters
    ----------
    path : Path
        Made when the first frame comes. An existing movie is continued.
    width, height : int
        Of the frames; even.
    frame_rate : int
        Frames per second.
    """

    def __init__(self, path: Path, width: int, height: int, *, frame_rate: int = 12) -> None:
        if min(width, height) < 2 or width % 2 or height % 2:
            raise ValueError(f"H.264 needs an even width and height, not {width}x{height}")
        self._path, self._width, self._height, self._frame_rate = path, width, height, frame_rate
        self._file = self._open()
        self._beginning, self._fragments, end = self._walk()
        self._file.truncate(end)
        self._file.seek(end)
        self._encoder: _Encoder | None = None
        self._last = self._fragments[-1].number - 1 if self._fragments else None

    @property
    def last_step(self) -> int | None:
        """Number of the step that the movie ends with; None while it is empty."""
        return self._last

    def append(self, step: int, picture: NDArray[np.uint8]) -> None:
        """Shows a step of shape (height, width, 3) after those before it.

        Raises
        ------
        ValueError
            The step does not come after the last one (see :meth:`rewind`), or the picture has another size.
        MovieError
            The encoder ended; the text has its words.
        """
        if self._last is not None and step <= self._last:
            raise ValueError(f"the movie already shows step {self._last}: rewind({step}) first")
        if picture.shape != (self._height, self._width, 3) or picture.dtype != np.uint8:
            raise ValueError(
                f"expected a picture of {self._width}x{self._height} RGB bytes, not {picture.shape} {picture.dtype}"
            )
        if self._encoder is None:
            self._encoder = _Encoder(self, self._width, self._height, self._frame_rate)
        self._encoder.feed(step, picture)
        self._last = step

    def rewind(self, step: int) -> None:
        """Takes ``step`` and all after it out of the movie."""
        self._finish_encoder()
        kept = [fragment for fragment in self._fragments if fragment.number - 1 < step]
        if len(kept) < len(self._fragments):
            end = self._fragments[len(kept)].begin
            self._file.truncate(end)
            self._file.seek(end)
            self._fragments = kept
        self._last = kept[-1].number - 1 if kept else None

    def close(self) -> None:
        """Writes what the encoder still holds. A movie without a frame is left behind by nobody. Idempotent."""
        try:
            self._finish_encoder()
        finally:
            if not self._file.closed and not self._fragments:
                self._path.unlink(missing_ok=True)
                self._made.remove_empty()
            self._file.close()

    def _open(self) -> BinaryIO:
        self._made = MadeFolders(self._path.parent)
        # Not append mode: that would ignore the place where the tail was cut.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return cast(BinaryIO, os.fdopen(os.open(self._path, flags, 0o644), "r+b"))
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            # Who may write in this folder, too, may have put it there.
            raise MovieError(f"{self._path} is a link, which is not followed: name the movie itself") from None

    def _walk(self) -> tuple[bytes, list[Fragment], int]:
        try:
            return walk_file(self._file)
        except FormatError as error:
            self._file.close()
            raise MovieError(f"{self._path} is not a movie that forebay wrote ({error}): move it away") from error

    def _finish_encoder(self) -> None:
        if self._encoder is not None:
            encoder, self._encoder = self._encoder, None
            encoder.finish()

    # The two below are called by the encoder's thread; the methods above meet it only in _finish_encoder.

    def begin(self, beginning: bytes) -> None:
        """What a new encoder's output starts with; must be the same for all encoders of one file."""
        if not self._beginning:
            self._file.write(beginning)
            self._file.flush()
            self._beginning = beginning
        elif beginning != self._beginning:
            raise MovieError(
                f"{self._path} was written with another picture size, frame rate or ffmpeg: delete it, and it is made "
                "again from the frames"
            )

    def add(self, step: int, moof: Box, mdat: Box) -> None:
        """One more frame."""
        ticks = timescale(self._beginning) // self._frame_rate
        decode_time = 0
        if self._fragments:
            before = self._fragments[-1]
            missing = min(step - before.number, self._frame_rate)
            decode_time = before.decode_time + (1 + missing) * ticks
        moof = renumber(moof, step + 1, decode_time)
        begin = self._file.tell()
        self._file.write(moof.data + mdat.data)
        self._file.flush()
        self._fragments.append(Fragment(begin, self._file.tell(), step + 1, decode_time))


class _Encoder:
    """One ffmpeg process, and the thread that moves its output into the movie."""

    def __init__(self, movie: Movie, width: int, height: int, frame_rate: int) -> None:
        self._movie = movie
        self._steps: deque[int] = deque()
        self._failure: Exception | None = None
        self._torn = False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by finish()
        # fmt: off
        command = [
            find_ffmpeg(), "-nostdin", "-loglevel", "error",
            "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-framerate", str(frame_rate),
            "-i", "pipe:0",
            # One thread: the cores belong to the simulation. No frame refers to a later one: each can be shown at once.
            "-c:v", "libx264", "-threads", "1", "-preset", "veryfast", "-tune", "zerolatency", "-crf", "20",
            "-g", str(2 * frame_rate), "-bf", "0", "-pix_fmt", "yuv420p",
            "-video_track_timescale", str(1000 * frame_rate), "-map_metadata", "-1", "-fflags", "+bitexact",
            "-movflags", "frag_every_frame+empty_moov+default_base_moof", "-f", "mp4", "pipe:1",
        ]
        # fmt: on
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
        )
        self._thread = Thread(target=self._move, name="forebay-movie", daemon=True)
        self._thread.start()

    def feed(self, step: int, picture: NDArray[np.uint8]) -> None:
        assert self._process.stdin is not None
        self._steps.append(step)
        try:
            self._process.stdin.write(np.ascontiguousarray(picture).data)
            self._process.stdin.flush()
        except BrokenPipeError:
            self.finish()
            raise MovieError("the encoder ended before its input did") from None
        except BaseException:
            # Ctrl-C in the middle of a picture: the encoder drops the rest of it, and its step is not in the movie.
            self._torn = True
            raise

    def finish(self) -> None:
        """Waits until everything fed is in the movie."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its exit status, below, says more
            self._process.stdin.close()
        self._thread.join()
        status = self._process.wait()
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip()
        self._errors.close()
        if self._failure is not None:
            raise self._failure
        if status != 0 or (self._steps and not self._torn):
            raise MovieError(f"ffmpeg ended with status {status} and {len(self._steps)} frames not written: {words}")

    def _move(self) -> None:
        output = cast(BinaryIO, self._process.stdout)
        try:
            beginning = b""
            moof: Box | None = None
            while (box := read_box(output)) is not None:
                if box.type in (b"ftyp", b"moov"):
                    beginning += box.data
                    if box.type == b"moov":
                        self._movie.begin(beginning)
                elif box.type == b"moof":
                    moof = box
                elif box.type == b"mdat" and moof is not None:
                    # Pictures are not reordered, so fragments come out in the order in which pictures went in.
                    self._movie.add(self._steps.popleft(), moof, box)
                    moof = None
        except Exception as error:  # a thread's error is raised where its work is waited for
            self._failure = error
            self._process.kill()
        finally:
            output.close()
