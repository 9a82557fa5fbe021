# SPDX-License-Identifier: Apache-2.0
"""What a picture should look like. Separate from the code that draws it, so that only the drawing process loads VTK."""

from __future__ import annotations

import math
from dataclasses import dataclass

from forebay.errors import InvalidArgumentError

__all__ = ["SceneOptions"]


@dataclass(frozen=True)
class SceneOptions:
    """Size and wording of a picture.

    Attributes
    ----------
    width, height : int
        Pixels; even, because movies want them so.
    title : str
        First line of the picture.
    speed_max : float, optional
        Upper end of the colour scale, the same in every frame. None: a round number above the speeds of each frame.
    sway_degrees : float
        How far the camera swings to each side, once in 240 steps; 0: it stands still.
    """

    width: int = 960
    height: int = 720
    title: str = ""
    speed_max: float | None = None
    sway_degrees: float = 7.0

    def __post_init__(self) -> None:
        if min(self.width, self.height) < 16 or self.width % 2 or self.height % 2:
            raise InvalidArgumentError(
                f"a picture needs an even width and height of at least 16, not {self.width}x{self.height}"
            )
        if self.speed_max is not None and not 0 < self.speed_max < math.inf:
            raise InvalidArgumentError(f"the end of the colour scale must be above 0, not {self.speed_max:g}")
