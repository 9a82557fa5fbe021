# SPDX-License-Identifier: Apache-2.0
"""What a scene consists of, read from TOML and checked before anything is drawn.

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
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from forebay.errors import InvalidArgumentError

__all__ = [
    "Camera",
    "GlyphLayer",
    "Layer",
    "OutlineLayer",
    "PointLayer",
    "SceneDescription",
    "SliceLayer",
    "StreamlineLayer",
    "SurfaceLayer",
    "VolumeLayer",
    "load_scene",
]

Color: TypeAlias = tuple[float, float, float]

#: Matplotlib's names of the colour maps that a scene may use.
COLOR_MAPS = ("viridis", "inferno", "gray", "coolwarm")


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
        Variable of (particles, 3): x, y and z.
    variable : str
        Of (particles,): what colours them. Empty: all have ``color``.
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


Layer: TypeAlias = SliceLayer | SurfaceLayer | VolumeLayer | StreamlineLayer | GlyphLayer | PointLayer | OutlineLayer

_LAYERS: dict[str, type[Layer]] = {
    "slice": SliceLayer,
    "surface": SurfaceLayer,
    "volume": VolumeLayer,
    "streamlines": StreamlineLayer,
    "glyphs": GlyphLayer,
    "points": PointLayer,
    "outline": OutlineLayer,
}


@dataclass(frozen=True)
class Camera:
    """From where the grid is seen.

    Attributes
    ----------
    direction, up : three float
        From the middle of the grid to the camera, and what is up in the picture.
    zoom : float
        1: the whole grid is seen.
    """

    direction: tuple[float, float, float] = (1.0, -1.4, 0.9)
    up: tuple[float, float, float] = (0.0, 0.0, 1.0)
    zoom: float = 1.0


@dataclass(frozen=True)
class SceneDescription:
    """A scene.

    Attributes
    ----------
    layers : tuple of Layer
        What is drawn; the tables ``[[layer]]`` of the file.
    title : str
        First line of the picture.
    size : pair of int
        Pixels; even, because movies want them so.
    background : three float
        Red, green, blue from 0 to 1.
    camera : Camera
        From where.
    """

    layers: tuple[Layer, ...]
    title: str = ""
    size: tuple[int, int] = (960, 720)
    background: Color = (0.045, 0.060, 0.088)
    camera: Camera = field(default_factory=Camera)

    @property
    def variables(self) -> list[str]:
        """Names of the variables on the grid that the layers show."""
        shown = (layer.variable for layer in self.layers if not isinstance(layer, OutlineLayer | PointLayer))
        return list(dict.fromkeys(shown))

    @property
    def needs_grid(self) -> bool:
        """False if it shows particles only."""
        return any(not isinstance(layer, PointLayer) for layer in self.layers)


def load_scene(path: Path) -> SceneDescription:
    """Reads a scene from a TOML file.

    Raises
    ------
    InvalidArgumentError
        The file cannot be read, or says what no scene has; the text names the key and what is known.
    """
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgumentError(f"the scene cannot be read: {error}", str(path)) from None
    try:
        return _scene(document)
    except _BadSceneError as error:
        raise InvalidArgumentError(str(error), f"scene {path}") from None


class _BadSceneError(Exception):
    """What the file says wrong."""


def _scene(document: dict[str, Any]) -> SceneDescription:
    table = dict(document)
    tables = table.pop("layer", None)
    if not isinstance(tables, list) or not tables:
        raise _BadSceneError("a scene has at least one table [[layer]]")
    layers = tuple(_layer(number, given) for number, given in enumerate(tables))
    camera = table.pop("camera", {})
    placed = _made(Camera, camera, "[camera]")
    scene: SceneDescription = _made(SceneDescription, table, "the scene", layers=layers, camera=placed)
    if min(scene.size) < 16 or max(scene.size) > 16384 or any(extent % 2 for extent in scene.size):
        raise _BadSceneError(f"size is an even width and height of 16 to 16384 pixels, not {list(scene.size)}")
    if not any(scene.camera.direction) or not any(scene.camera.up):
        raise _BadSceneError("the camera's direction and up are not [0, 0, 0]")
    if scene.camera.zoom <= 0:
        raise _BadSceneError(f"the camera's zoom is above 0, not {scene.camera.zoom:g}")
    return scene


def _layer(number: int, given: Any) -> Layer:
    where = f"layer {number + 1}"
    table = dict(given) if isinstance(given, dict) else {}
    kind = table.pop("kind", None)
    if kind not in _LAYERS:
        raise _BadSceneError(f"{where}: kind is one of {', '.join(_LAYERS)}, not {kind!r}")
    layer: Layer = _made(_LAYERS[kind], table, f"{where} ({kind})")
    if isinstance(layer, SliceLayer | StreamlineLayer):
        if layer.axis not in ("x", "y", "z"):
            raise _BadSceneError(f"{where}: axis is x, y or z, not {layer.axis!r}")
        if not 0 <= layer.position <= 1:
            raise _BadSceneError(f"{where}: position is from 0 to 1, not {layer.position:g}")
    if isinstance(layer, SliceLayer | VolumeLayer | StreamlineLayer | GlyphLayer | PointLayer):
        if layer.colors not in COLOR_MAPS:
            raise _BadSceneError(f"{where}: colors is one of {', '.join(COLOR_MAPS)}, not {layer.colors!r}")
        if layer.range is not None and not layer.range[0] < layer.range[1]:
            raise _BadSceneError(f"{where}: range is a smaller and a larger number, not {list(layer.range)}")
    if isinstance(layer, VolumeLayer) and not all(0 <= value <= 1 for value in layer.opacity):
        raise _BadSceneError(f"{where}: opacity is two numbers from 0 to 1, not {list(layer.opacity)}")
    for name in ("seeds", "every"):
        if getattr(layer, name, 1) < 1:
            raise _BadSceneError(f"{where}: {name} is at least 1, not {getattr(layer, name)}")
    for name in ("scale", "size", "width"):
        if getattr(layer, name, 1) <= 0:
            raise _BadSceneError(f"{where}: {name} is above 0, not {getattr(layer, name):g}")
    return layer


def _made(kind: Any, given: Any, where: str, **ready: Any) -> Any:
    """A dataclass from a table: known keys, of the type that the defaults and annotations say."""
    if not isinstance(given, dict):
        raise _BadSceneError(f"{where} is a table")
    fields = {known.name: known for known in dataclasses.fields(kind) if known.name not in ready}
    for name in given:
        if name not in fields:
            raise _BadSceneError(f"{where} has no {name!r}; known are {', '.join(fields)}")
    values = {name: _value(value, str(fields[name].type), f"{where}: {name}") for name, value in given.items()}
    missing = [
        name
        for name, known in fields.items()
        if name not in values and known.default is dataclasses.MISSING and known.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise _BadSceneError(f"{where} needs {', '.join(missing)}")
    return kind(**ready, **values)


def _value(value: Any, annotation: str, where: str) -> Any:
    if annotation == "str":
        if isinstance(value, str):
            return value
        raise _BadSceneError(f"{where} is a text, not {value!r}")
    if annotation == "float":
        return _number(value, where)
    if annotation == "int":
        if isinstance(value, bool) or not isinstance(value, int):
            raise _BadSceneError(f"{where} is a whole number, not {value!r}")
        return value
    length = 2 if annotation.startswith(("tuple[float, float]", "tuple[int, int]")) else 3
    if not isinstance(value, list) or len(value) != length:
        raise _BadSceneError(f"{where} is {length} numbers, not {value!r}")
    numbers = tuple(_number(item, where) for item in value)
    if annotation == "tuple[int, int]":
        if any(not isinstance(item, int) for item in value):
            raise _BadSceneError(f"{where} is {length} whole numbers, not {value!r}")
        return tuple(int(number) for number in numbers)
    return numbers


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise _BadSceneError(f"{where} is a number, not {value!r}")
    return float(value)
