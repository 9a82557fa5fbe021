# SPDX-License-Identifier: Apache-2.0
"""Turns the steps of a stream into image files and a movie in one folder, whatever is interrupted and withdrawn.

The image files are the truth: a step is done when its file is there. The movie is made to agree with them at every
start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from forebay.closing import Closing
from forebay.errors import InvalidArgumentError
from forebay.viz.fields import FlowFields
from forebay.viz.following import FollowedStep
from forebay.viz.movie import Movie
from forebay.viz.painter import Painter
from forebay.viz.scene_options import SceneOptions

__all__ = ["Recorder"]


class Recorder(Closing):
    """Keeps ``FOLDER/frames/NNNNNN.png`` and ``FOLDER/movie.mp4``. Use it by ``with``; one per folder at a time.

    Parameters
    ----------
    folder : Path
        Continued if it has frames of an earlier run.
    painter : Painter
        Draws pictures of the size that ``options`` say.
    options : SceneOptions
        Size of the pictures.
    frame_rate : int
        Frames per second of the movie.
    velocity, solid : str
        Names of the variables to draw.
    """

    def __init__(
        self,
        folder: Path,
        painter: Painter,
        options: SceneOptions,
        *,
        frame_rate: int = 12,
        velocity: str = "velocity",
        solid: str = "solid",
    ) -> None:
        self._frames_folder = folder / "frames"
        self._painter = painter
        self._velocity, self._solid = velocity, solid
        self._frames_folder.mkdir(parents=True, exist_ok=True)
        for part in self._frames_folder.glob(".*.part"):
            part.unlink()  # of a process that was killed while it wrote
        self._movie = Movie(folder / "movie.mp4", options.width, options.height, frame_rate=frame_rate)
        try:
            self._catch_up((options.width, options.height))
        except BaseException:
            self._movie.close()
            raise

    @property
    def frames(self) -> list[int]:
        """Numbers of the steps that are on disk, in order."""
        return sorted(int(path.stem) for path in self._frames_folder.glob("*.png") if path.stem.isdecimal())

    def frame_path(self, step: int) -> Path:
        """Where the picture of a step lies."""
        return self._frames_folder / f"{step:06d}.png"

    def record(self, step: FollowedStep) -> None:
        """Draws a step, puts it on disk and into the movie, and acknowledges it.

        A step that does not come after all others takes their place: they were withdrawn, or this one is given again.
        """
        self._withdraw(step.number)
        picture = self._painter.paint(self._fields(step), self.frame_path(step.number))
        self._movie.append(step.number, picture)
        step.ack()

    def close(self) -> None:
        """Writes the end of the movie. Idempotent."""
        self._movie.close()

    def _fields(self, step: FollowedStep) -> FlowFields:
        arrays: dict[str, NDArray[Any]] = {
            "velocity": np.asarray(step[self._velocity][...]),
            "solid": np.asarray(step[self._solid][...]),
        }
        time = float(step["time"]) if "time" in step else None
        return FlowFields.of_step(step.number, arrays, step.attributes, time)

    def _withdraw(self, first: int) -> None:
        if self._movie.last_step is None or first > self._movie.last_step:
            return
        for number in reversed(self.frames):
            if number >= first:
                self.frame_path(number).unlink()
        self._movie.rewind(first)

    def _catch_up(self, size: tuple[int, int]) -> None:
        frames = self.frames
        self._movie.rewind(frames[-1] + 1 if frames else 0)
        for number in frames:
            if self._movie.last_step is not None and number <= self._movie.last_step:
                continue
            with Image.open(self.frame_path(number)) as image:
                if image.size != size:
                    raise InvalidArgumentError(
                        f"{self.frame_path(number)} is {image.size[0]}x{image.size[1]}, not {size[0]}x{size[1]}: use "
                        "the size of the frames in this folder, or another folder"
                    )
                self._movie.append(number, np.asarray(image.convert("RGB")))
