# SPDX-License-Identifier: Apache-2.0
"""Reads a scene from a TOML file, and checks it before anything is drawn."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tomllib
from pathlib import Path
from typing import Any

from forebay.errors import InvalidArgumentError
from forebay.viz.scenes.description import (
    COLOR_MAPS,
    LAYERS,
    Camera,
    CameraStop,
    Layer,
    Quality,
    SceneDescription,
    SliceLayer,
    StreamlineLayer,
    VolumeLayer,
)

__all__ = ["check_size", "load_scene"]


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
    except InvalidArgumentError as error:
        raise InvalidArgumentError(error.what, f"scene {path}") from None


def check_size(size: tuple[int, int]) -> None:
    """InvalidArgumentError unless movies take pictures of this width and height."""
    if min(size) < 16 or max(size) > 16384 or any(extent % 2 for extent in size):
        raise InvalidArgumentError(f"size is an even width and height of 16 to 16384 pixels, not {list(size)}")


class _BadSceneError(InvalidArgumentError):
    """What the file says wrong."""


def _scene(document: dict[str, Any]) -> SceneDescription:
    table = dict(document)
    tables = table.pop("layer", None)
    if not isinstance(tables, list) or not tables:
        raise _BadSceneError("a scene has at least one table [[layer]]")
    layers = tuple(_layer(number, given) for number, given in enumerate(tables))
    placed = _camera(table.pop("camera", {}))
    scene: SceneDescription = _made(SceneDescription, table, "the scene", layers=layers, camera=placed)
    check_size(scene.size)
    return scene


def _camera(given: Any) -> Camera:
    if not isinstance(given, dict):
        raise _BadSceneError("[camera] is a table")
    table = dict(given)
    tables = table.pop("path", [])
    if not isinstance(tables, list):
        raise _BadSceneError("the camera's path is tables [[camera.path]]")
    path = tuple(_made(CameraStop, stop, f"[[camera.path]] {number + 1}") for number, stop in enumerate(tables))
    camera: Camera = _made(Camera, table, "[camera]", path=path)
    if not any(camera.up) or not all(any(place.direction) for place in (camera, *path)):
        raise _BadSceneError("the camera's direction and up are not [0, 0, 0]")
    for place in (camera, *path):
        if place.zoom <= 0:
            raise _BadSceneError(f"the camera's zoom is above 0, not {place.zoom:g}")
    for before, after in itertools.pairwise(path):
        if before.step >= after.step:
            raise _BadSceneError(f"the steps of [[camera.path]] grow, but {after.step} comes after {before.step}")
        if Camera(before.direction).opposite(after.direction):
            raise _BadSceneError(f"[[camera.path]] of step {after.step} is opposite to the one before: put one between")
    return camera


def _layer(number: int, given: Any) -> Layer:
    where = f"layer {number + 1}"
    table = dict(given) if isinstance(given, dict) else {}
    kind = table.pop("kind", None)
    if kind not in LAYERS:
        raise _BadSceneError(f"{where}: kind is one of {', '.join(LAYERS)}, not {kind!r}")
    layer: Layer = _made(LAYERS[kind], table, f"{where} ({kind})")
    if isinstance(layer, SliceLayer | StreamlineLayer):
        if layer.axis not in ("x", "y", "z"):
            raise _BadSceneError(f"{where}: axis is x, y or z, not {layer.axis!r}")
        if not 0 <= layer.position <= 1:
            raise _BadSceneError(f"{where}: position is from 0 to 1, not {layer.position:g}")
    colors, ends = getattr(layer, "colors", None), getattr(layer, "range", None)
    if colors is not None and colors not in COLOR_MAPS:
        raise _BadSceneError(f"{where}: colors is one of {', '.join(COLOR_MAPS)}, not {colors!r}")
    if ends is not None and not ends[0] < ends[1]:
        raise _BadSceneError(f"{where}: range is a smaller and a larger number, not {list(ends)}")
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
    if annotation == "bool":
        if isinstance(value, bool):
            return value
        raise _BadSceneError(f"{where} is true or false, not {value!r}")
    if annotation == "Quality":
        if value in list(Quality):
            return Quality(value)
        raise _BadSceneError(f"{where} is draft or full, not {value!r}")
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
