# SPDX-License-Identifier: Apache-2.0
"""Plotfiles as AMReX writes them, folders ``plt00010``: what yt, VisIt, ParaView and VTK read with all levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import UnsupportedError
from forebay.viz.levels import Box, Levels

__all__ = ["write_plotfile"]

#: How AMReX describes IEEE numbers, the order of their bytes little-endian.
_REALS = {
    8: "((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))",
    4: "((8, (32 8 23 0 1 9 0 127)),(4, (4 3 2 1)))",
}
_DATA_FILE = "Cell_D_00000"


def write_plotfile(path: Path, levels: Levels, step: int) -> None:
    """Writes a step's fields, with all levels, to a folder that is made.

    Raises
    ------
    UnsupportedError
        A level is not refined by one whole ratio, or a name has a line break: the header has no place for it.
    """
    components = levels.components
    if broken := next((name for name in components if "\n" in name), None):
        raise UnsupportedError(
            f"the name {broken!r} has a line break, which a plotfile's header cannot have", levels.where
        )
    dimensions, finest = levels.dimensions, len(levels.levels) - 1
    low = levels.origin[:dimensions]
    coarsest = levels.levels[0]
    high = [zero + cells * side for zero, cells, side in zip(low, coarsest.shape[::-1], coarsest.spacing, strict=False)]
    lines = ["HyperCLaw-V1.1", str(len(components)), *components, str(dimensions), repr(levels.time), str(finest)]
    lines += [_joined(low), _joined(high), "".join(f"{ratio} " for ratio in levels.ratios())]
    lines += [" ".join(_box(Box((0,) * dimensions, level.shape)) for level in levels.levels)]
    lines += [" ".join([str(step)] * (finest + 1))]
    lines += [_joined(level.spacing[:dimensions]) for level in levels.levels]
    lines += ["0", "0"]  # Cartesian coordinates, no boundary
    path.mkdir()
    for number, level in enumerate(levels.levels):
        lines += [f"{number} {len(level.boxes)} {levels.time!r}", str(step)]
        for box in level.boxes:
            for axis, (first, last) in enumerate(zip(box.start[::-1], box.last[::-1], strict=True)):
                side, zero = level.spacing[axis], low[axis]
                lines.append(f"{zero + first * side!r} {zero + (last + 1) * side!r}")
        lines.append(f"Level_{number}/Cell")
        _write_level(path / f"Level_{number}", levels, number)
    (path / "Header").write_text("\n".join(lines) + "\n")


def _write_level(folder: Path, levels: Levels, number: int) -> None:
    folder.mkdir()
    components = levels.components
    boxes = levels.levels[number].boxes
    kind = levels.dtype.newbyteorder("<")
    places, low, high = [], [], []
    with (folder / _DATA_FILE).open("wb") as file:
        for place, box in enumerate(boxes):
            places.append(f"FabOnDisk: {_DATA_FILE} {file.tell()}")
            file.write(f"FAB {_REALS[kind.itemsize]}{_box(box)} {len(components)}\n".encode())
            extremes = []
            for field, component in components.values():
                values = np.ascontiguousarray(levels.values(number, place, field, component), kind)
                file.write(values.data)
                extremes.append(_extremes(values))
            low.append("".join(f"{least!r}," for least, _ in extremes))
            high.append("".join(f"{most!r}," for _, most in extremes))
    count = f"{len(boxes)},{len(components)}"
    lines = ["1", "1", str(len(components)), "0", f"({len(boxes)} 0", *(_box(box) for box in boxes), ")"]
    lines += [str(len(boxes)), *places, "", count, *low, "", count, *high, ""]
    (folder / "Cell_H").write_text("\n".join(lines) + "\n")


def _extremes(values: NDArray[Any]) -> tuple[float, float]:
    """Of what are numbers; NaN where nothing is."""
    return float(np.fmin.reduce(values, axis=None)), float(np.fmax.reduce(values, axis=None))


def _box(box: Box) -> str:
    """First and last cell, along x, y and z, and that it is of cells."""
    corners = (box.start[::-1], box.last[::-1], (0,) * len(box.start))
    return f"({' '.join('(' + ','.join(map(str, corner)) + ')' for corner in corners)})"


def _joined(numbers: tuple[float, ...] | list[float]) -> str:
    return " ".join(repr(float(number)) for number in numbers)
