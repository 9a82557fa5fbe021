# SPDX-License-Identifier: Apache-2.0
"""Writes small plotfiles as AMReX does, of known content: two levels in three dimensions, or one in fewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BOXES", "FIELDS", "content", "write_plotfile"]

FIELDS = ("density", "x-velocity")
#: Level 0 covers its domain of 16 x 8 x 8 cells by three boxes, level 1 a part of its own, of 32 x 16 x 16.
BOXES: tuple[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], ...] = (
    (((0, 0, 0), (7, 7, 7)), ((8, 0, 0), (15, 3, 7)), ((8, 4, 0), (15, 7, 7))),
    (((4, 2, 0), (11, 9, 5)), ((12, 2, 0), (19, 5, 5))),
)
DOMAIN = (16, 8, 8)


def content(step: int, level: int, field: int) -> NDArray[np.float64]:
    """The field of a level as an array (z, y, x) of its whole domain."""
    extents = tuple(count * 2**level for count in DOMAIN)[::-1]
    cells = np.arange(np.prod(extents), dtype=np.float64).reshape(extents)
    return cells + 1e5 * field + 1e6 * level + 0.25 * step


def _tuple(numbers: Sequence[int]) -> str:
    return f"({','.join(map(str, numbers))})"


def _box(low: Sequence[int], high: Sequence[int]) -> str:
    return f"({_tuple(low)} {_tuple(high)} {_tuple([0] * len(low))})"


def write_plotfile(
    path: Path,
    step: int,
    *,
    order: str = "<",
    size: int = 8,
    ghosts: int = 0,
    values: Callable[[int, int, int], NDArray[Any]] = content,
) -> None:
    """Writes the plotfile of a step, with all that readers look at: headers, extremes and data."""
    path.mkdir(parents=True)
    spacing = [1.0 / DOMAIN[0]] * 3
    high = [count * side for count, side in zip(DOMAIN, spacing, strict=True)]
    finest = len(BOXES) - 1
    lines = ["HyperCLaw-V1.1", str(len(FIELDS)), *FIELDS, "3", repr(0.5 * step), str(finest)]
    lines += ["0.0 0.0 0.0 ", " ".join(map(repr, high)) + " ", " ".join(["2"] * finest) + " "]
    domains = [_box((0, 0, 0), [count * 2**level - 1 for count in DOMAIN]) for level in range(finest + 1)]
    lines += [" ".join(domains) + " ", " ".join([str(step)] * (finest + 1)) + " "]
    lines += [" ".join(repr(side / 2**level) for side in spacing) + " " for level in range(finest + 1)]
    lines += ["0", "0"]
    for level, boxes in enumerate(BOXES):
        lines += [f"{level} {len(boxes)} {0.5 * step!r}", str(step)]
        for low, last in boxes:
            for axis in range(3):
                side = spacing[axis] / 2**level
                lines.append(f"{low[axis] * side!r} {(last[axis] + 1) * side!r}")
        lines.append(f"Level_{level}/Cell")
        _write_level(path / f"Level_{level}", level, step, order, size, ghosts, values)
    (path / "Header").write_text("\n".join(lines) + "\n")


def _write_level(
    folder: Path,
    level: int,
    step: int,
    order: str,
    size: int,
    ghosts: int,
    values: Callable[[int, int, int], NDArray[Any]],
) -> None:
    folder.mkdir()
    boxes = BOXES[level]
    bits = {8: "64 11 52 0 1 12 0 1023", 4: "32 8 23 0 1 9 0 127"}[size]
    bytes_in_order = [*range(size, 0, -1)] if order == "<" else [*range(1, size + 1)]
    real = f"((8, ({bits})),({size}, ({' '.join(map(str, bytes_in_order))})))"
    places, low_lines, high_lines = [], [], []
    for number, (low, last) in enumerate(boxes):
        # Two boxes in a file, one behind another.
        file = folder / f"Cell_D_{number // 2:05d}"
        offset = file.stat().st_size if file.exists() else 0
        around = [first - ghosts for first in low], [final + ghosts for final in last]
        data, extremes = [], []
        for field in range(len(FIELDS)):
            whole = values(step, level, field)
            inner = whole[tuple(slice(first, final + 1) for first, final in zip(low, last, strict=True))[::-1]]
            data.append(np.pad(inner, ghosts, constant_values=-7.0).astype(f"{order}f{size}"))
            extremes.append((float(inner.min()), float(inner.max())))
        with file.open("ab") as opened:
            opened.write(f"FAB {real}{_box(*around)} {len(FIELDS)}\n".encode())
            for array in data:
                opened.write(array.tobytes())
        places.append(f"FabOnDisk: {file.name} {offset}")
        low_lines.append("".join(f"{least!r}," for least, _ in extremes))
        high_lines.append("".join(f"{most!r}," for _, most in extremes))
    count = f"{len(boxes)},{len(FIELDS)}"
    lines = ["1", "1", str(len(FIELDS)), str(ghosts), f"({len(boxes)} 0", *(_box(*box) for box in boxes), ")"]
    lines += [str(len(boxes)), *places, "", count, *low_lines, "", count, *high_lines, ""]
    (folder / "Cell_H").write_text("\n".join(lines) + "\n")
