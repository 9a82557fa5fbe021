# SPDX-License-Identifier: Apache-2.0
"""What a scene consists of: the tables and keys of its TOML file (:mod:`forebay.viz.scenes.scene_file` reads it).

::

    title = "Heat in a block"
    size = [960, 720]

    [camera]
    direction = [1.0, -1.2, 0.8]

    [[layer]]
    kind = "slice"
    variable = "T"
    axis = "z"

    [[layer]]
    kind = "surface"
    variable = "T"
    value = 0.5
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

__all__ = [
    "COLOR_MAPS",
    "LAYERS",
    "ArrowLayer",
    "Camera",
    "CameraStop",
    "CutawayLayer",
    "GlyphLayer",
    "Layer",
    "OutlineLayer",
    "PointLayer",
    "Quality",
    "RulerLayer",
    "SceneDescription",
    "SliceLayer",
    "StreakLayer",
    "StreamlineLayer",
    "SurfaceLayer",
    "VolumeLayer",
]

Color: TypeAlias = tuple[float, float, float]

#: Matplotlib's names of the colour maps that a scene may use.
COLOR_MAPS = ("viridis", "inferno", "gray", "coolwarm")


class Quality(StrEnum):
    """How much work goes into a picture."""

    DRAFT = "draft"  #: fewer lines and triangles, no shadows: for a live view
    FULL = "full"  #: for what is kept


@dataclass(frozen=True)
class SliceLayer:
    """A cut through the grid, coloured by a variable.

    Attributes
    ----------
    variable : str
        Of (z, y, x), or of (z, y, x, components), of which the length is shown.
    axis : {"x", "y", "z"}
        What the cut is perpendicular to.
    position : float
        Where it cuts, from 0 to 1 along the axis.
    range : pair of float, optional
        Values at the ends of the colour map; None: the step's smallest and largest.
    colors : str
        A map of Matplotlib: ``viridis``, ``inferno``, ``gray`` or ``coolwarm``.
    """

    variable: str
    axis: str = "z"
    position: float = 0.5
    range: tuple[float, float] | None = None
    colors: str = "viridis"


@dataclass(frozen=True)
class SurfaceLayer:
    """Where a variable has a value.

    Attributes
    ----------
    variable : str
        As of a slice.
    value : float
        The value.
    color : three float
        Red, green, blue from 0 to 1.
    opacity : float
        From 0 to 1.
    """

    variable: str
    value: float
    color: Color = (0.80, 0.82, 0.86)
    opacity: float = 1.0


@dataclass(frozen=True)
class VolumeLayer:
    """A variable as a cloud: the larger a value, the less can be seen through it.

    Attributes
    ----------
    variable, range, colors
        As of a slice.
    opacity : pair of float
        At the lower and at the upper end of the range, from 0 to 1, for a quarter of the way through
        the grid's shortest side.
    """

    variable: str
    range: tuple[float, float] | None = None
    colors: str = "viridis"
    opacity: tuple[float, float] = (0.0, 0.8)


@dataclass(frozen=True)
class StreamlineLayer:
    """Lines along a vector field, coloured by its length.

    Attributes
    ----------
    variable : str
        Of (z, y, x, 3): the components along x, y and z.
    axis, position
        The plane in which the lines begin, as of a slice. They go from it both ways.
    seeds : int
        How many lines, about; at least 1.
    range, colors
        As of a slice.
    width : float
        Of a line, in pixels.
    """

    variable: str
    axis: str = "z"
    position: float = 0.5
    seeds: int = 100
    range: tuple[float, float] | None = None
    colors: str = "viridis"
    width: float = 2.0


@dataclass(frozen=True)
class GlyphLayer:
    """Arrows along a vector field, coloured by its length.

    Attributes
    ----------
    variable : str
        Of (z, y, x, 3): the components along x, y and z.
    every : int
        An arrow in each so many cells along each axis; at least 1.
    scale : float
        1: the arrow of the largest vector of the step is as long as the arrows are apart.
    range, colors
        As of a slice.
    """

    variable: str
    every: int = 8
    scale: float = 1.0
    range: tuple[float, float] | None = None
    colors: str = "viridis"


@dataclass(frozen=True)
class PointLayer:
    """Particles.

    Attributes
    ----------
    positions : str
        Variable of (particles, 3): x, y and z. Or ``SPECIES/position`` of particles as openPMD has them: metres.
    variable : str
        Of (particles,): what colours them. Empty: all have ``color``. Of openPMD's particles a record, of which the
        length is shown, or a component, ``SPECIES/momentum/x``: in SI units.
    size : float
        Pixels.
    color : three float
        Red, green, blue from 0 to 1.
    range, colors
        As of a slice.
    """

    positions: str
    variable: str = ""
    size: float = 4.0
    color: Color = (0.95, 0.85, 0.55)
    range: tuple[float, float] | None = None
    colors: str = "viridis"


@dataclass(frozen=True)
class OutlineLayer:
    """The edges of the grid."""

    color: Color = (0.5, 0.55, 0.62)


@dataclass(frozen=True)
class CutawayLayer:
    """A solid without the quarter of larger x and y, and a variable on the two faces of the cut.

    Attributes
    ----------
    variable : str
        What colours the faces; as of a slice.
    solid : str
        Variable of (z, y, x), not 0 where there is solid.
    spheres, radius : str
        Attributes of the stream: centres (x, y, z) of the spheres that the solid consists of, and their radius. If
        the stream has none, the solid is drawn from its cells.
    cylinder : str
        Attribute of the stream: radius of a tube around the z axis through the middle of the grid. Beyond it nothing
        is drawn. If the stream has none, there is no tube.
    color : three float
        Of the solid: red, green, blue from 0 to 1.
    range : pair of float, optional
        As of a slice; None: from 0 to a round number above nearly all values of the step.
    colors : str
        As of a slice.
    """

    variable: str
    solid: str
    spheres: str = "sphere_centres"
    radius: str = "sphere_radius"
    cylinder: str = "cylinder_radius"
    color: Color = (0.74, 0.77, 0.82)
    range: tuple[float, float] | None = None
    colors: str = "inferno"


@dataclass(frozen=True)
class StreakLayer:
    """Streaks that run along z with the flow like comets; from step to step they move on.

    Attributes
    ----------
    variable : str
        Of (z, y, x, 3): the components along x, y and z.
    seeds : int
        How many stream lines carry them.
    cylinder : str
        Attribute of the stream, as of a cutaway: the lines begin within this radius.
    range, colors
        As of a cutaway.
    """

    variable: str
    seeds: int = 220
    cylinder: str = "cylinder_radius"
    range: tuple[float, float] | None = None
    colors: str = "inferno"


@dataclass(frozen=True)
class ArrowLayer:
    """An arrow along the mean of a vector field, above the end where it comes in.

    Attributes
    ----------
    variable : str
        Of (z, y, x, 3).
    label : str
        What stands above it.
    """

    variable: str
    label: str = "flow"


@dataclass(frozen=True)
class RulerLayer:
    """A scale along z under the grid, with the unit of the attribute ``spacing/units``."""

    color: Color = (0.66, 0.73, 0.83)


Layer: TypeAlias = (
    SliceLayer
    | SurfaceLayer
    | VolumeLayer
    | StreamlineLayer
    | GlyphLayer
    | PointLayer
    | OutlineLayer
    | CutawayLayer
    | StreakLayer
    | ArrowLayer
    | RulerLayer
)

#: The word ``kind`` in the file.
LAYERS: dict[str, type[Layer]] = {
    "slice": SliceLayer,
    "surface": SurfaceLayer,
    "volume": VolumeLayer,
    "streamlines": StreamlineLayer,
    "glyphs": GlyphLayer,
    "points": PointLayer,
    "outline": OutlineLayer,
    "cutaway": CutawayLayer,
    "streaks": StreakLayer,
    "arrow": ArrowLayer,
    "ruler": RulerLayer,
}


@dataclass(frozen=True)
class CameraStop:
    """Where the camera is at a step.

    Attributes
    ----------
    step : int
        Number of the step.
    direction : three float
        From the middle of the grid to the camera.
    zoom : float
        1: the whole grid is seen.
    """

    step: int
    direction: tuple[float, float, float]
    zoom: float = 1.0


@dataclass(frozen=True)
class Camera:
    """From where the grid is seen.

    Attributes
    ----------
    direction, up : three float
        From the middle of the grid to the camera, and what is up in the picture.
    zoom : float
        1: the whole grid is seen.
    sway : float
        Degrees that the camera swings to each side, once in 240 steps; 0: it stands still.
    path : tuple of CameraStop
        The tables ``[[camera.path]]``, by growing step: the camera goes from one to the next, and stays at the last.
        They take the place of direction and zoom.
    """

    direction: tuple[float, float, float] = (1.0, -1.4, 0.9)
    up: tuple[float, float, float] = (0.0, 0.0, 1.0)
    zoom: float = 1.0
    sway: float = 0.0
    path: tuple[CameraStop, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether another step may be seen from elsewhere."""
        return bool(self.sway) or len(self.path) > 1

    def opposite(self, direction: tuple[float, float, float]) -> bool:
        """Whether the camera would look from the other side."""
        return sum(a * b for a, b in zip(_unit(self.direction), _unit(direction), strict=True)) < -0.9999

    def at(self, step: int) -> tuple[tuple[float, float, float], float]:
        """Direction, of length 1, and zoom at a step."""
        if not self.path:
            return _unit(self.direction), self.zoom
        before = max(
            (stop for stop in self.path if stop.step <= step), key=lambda stop: stop.step, default=self.path[0]
        )
        after = next((stop for stop in self.path if stop.step > step), self.path[-1])
        share = 0.0 if after.step <= before.step else (step - before.step) / (after.step - before.step)
        ends = _unit(before.direction), _unit(after.direction)
        angle = math.acos(max(-1.0, min(1.0, sum(a * b for a, b in zip(*ends, strict=True)))))
        # At even speed along the great circle; opposite directions have no such circle, which scene files refuse.
        weights = (1 - share, share)
        if angle > 1e-6:
            weights = (math.sin((1 - share) * angle), math.sin(share * angle))
        x, y, z = (weights[0] * a + weights[1] * b for a, b in zip(*ends, strict=True))
        return _unit((x, y, z)), before.zoom + share * (after.zoom - before.zoom)


def _unit(direction: tuple[float, float, float]) -> tuple[float, float, float]:
    length = math.hypot(*direction)
    x, y, z = (part / length for part in direction)
    return x, y, z


@dataclass(frozen=True)
class SceneDescription:
    """A scene.

    Attributes
    ----------
    layers : tuple of Layer
        What is drawn; the tables ``[[layer]]`` of the file. None: a slice through the first field of the first step.
    title : str
        First line of the picture.
    label : str
        What the colour bar shows; empty: the variable of the first layer that has colours.
    axes : bool
        Show the directions of x, y and z in a corner.
    shadows : bool
        Darken gaps, which gives them depth. Not in drafts.
    quality : {"draft", "full"}
        How much work goes into a picture.
    size : pair of int
        Pixels; even, because movies want them so.
    background : three float
        Red, green, blue from 0 to 1.
    camera : Camera
        From where.
    """

    layers: tuple[Layer, ...] = ()
    title: str = ""
    label: str = ""
    axes: bool = False
    shadows: bool = False
    quality: Quality = Quality.FULL
    size: tuple[int, int] = (960, 720)
    background: Color = (0.045, 0.060, 0.088)
    camera: Camera = field(default_factory=Camera)

    @property
    def variables(self) -> list[str]:
        """Names of the variables on the grid that the layers show."""
        shown: list[str] = []
        for layer in self.layers:
            if isinstance(layer, OutlineLayer | PointLayer | RulerLayer):
                continue
            shown.append(layer.variable)
            if isinstance(layer, CutawayLayer):
                shown.append(layer.solid)
        return list(dict.fromkeys(shown))

    @property
    def needs_grid(self) -> bool:
        """False if it shows particles only."""
        return any(not isinstance(layer, PointLayer) for layer in self.layers)

    def in_range(self, low: float, high: float) -> SceneDescription:
        """The same with these ends of all colour scales."""
        layers = tuple(
            layer
            if isinstance(layer, SurfaceLayer | OutlineLayer | ArrowLayer | RulerLayer)
            else dataclasses.replace(layer, range=(low, high))
            for layer in self.layers
        )
        return dataclasses.replace(self, layers=layers)
