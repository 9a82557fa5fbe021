# SPDX-License-Identifier: Apache-2.0
"""Turns the steps of a stream into image files and a movie in one folder, whatever is interrupted and withdrawn.

The image files are the truth: a step is done when its file is there. The movie has those frames before which none is
missing, and is made to agree with the files at every start.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from forebay import Step
from forebay.closing import Closing
from forebay.errors import InvalidArgumentError, StepGoneError, StepNotFoundError
from forebay.files.by_descriptor import found_inner
from forebay.new_output import remove_left
from forebay.viz.coming_steps import ComingSteps
from forebay.viz.contact_sheet import ContactSheet
from forebay.viz.made_folders import MadeFolders
from forebay.viz.movie import Movie
from forebay.viz.painter import Painter

__all__ = ["Recorder"]


class Recorder(Closing):
    """Keeps ``FOLDER/frames/NNNNNN.png``, ``FOLDER/movie.mp4`` and the link ``FOLDER/latest.png`` to the newest frame.

    Use it by ``with``; one per folder at a time.

    Parameters
    ----------
    folder : Path
        Continued if it has frames of an earlier run.
    painter : Painter
        Draws the pictures.
    frame_rate : int
        Frames per second of the movie.
    frames, movie : Path, optional
        Where the images and the movie are kept instead.
    sheet : ContactSheet, optional
        Takes what the movie takes; closed at the end.
    """

    def __init__(
        self,
        folder: Path,
        painter: Painter,
        *,
        frame_rate: int = 12,
        frames: Path | None = None,
        movie: Path | None = None,
        sheet: ContactSheet | None = None,
    ) -> None:
        self._folder, self._frames_folder = folder, frames or folder / "frames"
        self._painter, self._sheet = painter, sheet
        self._made = MadeFolders(self._frames_folder)
        with found_inner(self._frames_folder) as frames_folder:
            for part in (*frames_folder.glob(".*.part"), *folder.glob(".latest.*.part")):
                remove_left(part)  # of a process that was killed while it wrote
        self._waiting: list[int] = []  # frames on disk that come after a missing one, in order
        self._movie = Movie(movie or folder / "movie.mp4", *painter.size, frame_rate=frame_rate)
        try:
            self._catch_up(painter.size)
        except BaseException:
            self._movie.close()
            raise

    @property
    def frames(self) -> list[int]:
        """Numbers of the steps that are on disk, in order."""
        with found_inner(self._frames_folder) as folder:
            return sorted(int(path.stem) for path in folder.glob("*.png") if path.stem.isdecimal())

    def frame_path(self, step: int) -> Path:
        """Where the picture of a step lies."""
        return self._frames_folder / f"{step:06d}.png"

    def record(self, coming: ComingSteps, step: Step) -> bool:
        """Draws a step that ``coming`` gave, puts it on disk and into the movie, and acknowledges it.

        Frames and cursor go as far as no earlier step is missing; the rest waits until it is drawn.

        Returns
        -------
        bool
            False if the step was withdrawn or dropped while it was drawn.
        """
        try:
            picture = self._painter.paint(step, self.frame_path(step.number), inner=True)
        except (StepGoneError, StepNotFoundError) as error:
            # Whoever draws opens the step anew: it may be withdrawn, or dropped where it could not be pinned.
            coming.gone(step, str(error))
            return False
        if not coming.done(step):
            self._remove(step.number)
            return False
        self._link_latest(step.number)
        self._waiting = sorted({*self._waiting, step.number})
        self._pass(coming, step, picture)
        return True

    def pass_over(self, coming: ComingSteps) -> None:
        """Goes on with the movie after a step that nobody can draw any more."""
        self._pass(coming, None, None)

    def withdraw(self, first: int) -> None:
        """Takes a step and all after it out of folder and movie."""
        for number in reversed(self.frames):
            if number >= first:
                self._remove(number)
        self._waiting = [number for number in self._waiting if number < first]
        latest = self._folder / "latest.png"
        if latest.is_symlink() and not latest.exists():
            latest.unlink()
        if self._movie.last_step is not None and first <= self._movie.last_step:
            self._movie.rewind(first)
        if self._sheet is not None:
            self._sheet.withdraw(first)

    def close(self) -> None:
        """Writes the end of the movie, and the contact sheet. Without a frame nothing is left behind. Idempotent."""
        self._movie.close()
        self._made.remove_empty()
        if self._sheet is not None:
            self._sheet.close()

    def _pass(self, coming: ComingSteps, step: Step | None, picture: NDArray[np.uint8] | None) -> None:
        """Moves movie and cursor to the last frame before which none is missing."""
        missing = coming.oldest_waiting
        passed = [number for number in self._waiting if missing is None or number < missing]
        self._waiting = self._waiting[len(passed) :]
        for number in passed:
            shown = picture if step is not None and number == step.number else None
            self._append(number, self._frame(number) if shown is None else shown)
        if not passed:
            return
        if step is not None and passed[-1] == step.number:
            coming.acknowledge(step)
            return
        try:
            with coming.stream[passed[-1]] as last:
                coming.acknowledge(last)
        except (StepGoneError, StepNotFoundError):
            if step is not None:
                coming.acknowledge(step)  # the cursor lags behind, but what it has not passed is gone

    def _append(self, number: int, picture: NDArray[np.uint8]) -> None:
        self._movie.append(number, picture)
        if self._sheet is not None:
            self._sheet.add(number, picture)

    def _frame(self, number: int) -> NDArray[np.uint8]:
        with found_inner(self._frames_folder) as folder, Image.open(folder / self.frame_path(number).name) as image:
            return np.asarray(image.convert("RGB"))

    def _remove(self, number: int) -> None:
        """Removes a frame, if it is there."""
        with found_inner(self._frames_folder) as folder:
            (folder / self.frame_path(number).name).unlink(missing_ok=True)

    def _link_latest(self, number: int) -> None:
        """Points to the frame unless it is of a step that was skipped earlier."""
        latest = self._folder / "latest.png"
        if latest.exists() and number < self._number_of(latest):
            return
        temporary = latest.with_name(f".latest.{os.getpid()}.part")
        temporary.symlink_to(self.frame_path(number).relative_to(self._folder))
        temporary.replace(latest)

    def _number_of(self, latest: Path) -> int:
        stem = latest.resolve().stem
        return int(stem) if stem.isdecimal() else -1

    def _catch_up(self, size: tuple[int, int]) -> None:
        frames = self.frames
        self._movie.rewind(frames[-1] + 1 if frames else 0)
        for number in frames:
            if self._movie.last_step is not None and number <= self._movie.last_step:
                if self._sheet is not None:
                    self._sheet.add(number, self._frame(number))
                continue
            picture = self._frame(number)
            if picture.shape != (size[1], size[0], 3):
                height, width, _ = picture.shape
                raise InvalidArgumentError(
                    f"{self.frame_path(number)} is {width}x{height}, not {size[0]}x{size[1]}: use the size of the "
                    "frames in this folder, or another folder"
                )
            self._append(number, picture)
