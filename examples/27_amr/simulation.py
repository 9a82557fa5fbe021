# SPDX-License-Identifier: Apache-2.0
"""A blob in a swirling flow on three levels of refinement, which writes plotfiles and checkpoints as AMReX codes do.

It knows nothing of Forebay: ``python simulation.py FOLDER``. ``plt00006`` and ``chk00006`` appear in FOLDER by renaming
``plt00006.temp`` and ``chk00006.temp``. ``--restart chk00060`` continues, with the same bits as an undisturbed run.

The flow is LeVeque's deformation of the unit cube (SIAM J. Num. Anal. 33, 1996, p. 627), without its reversal. Finite
volumes with van Leer's slopes; each level has cells half as large as the level below it, and covers tiles of 8 x 8 x 8
cells around steep places. All levels take the same time step, and fluxes between levels are not matched.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVELS = 3
TILE = 8
GHOSTS = 2
FIELDS = ("density", "x_velocity", "y_velocity", "z_velocity")
STEPS_BETWEEN_OUTPUTS = 6
STEEP = 0.08
Array = NDArray[np.float64]
Box = tuple[tuple[int, int, int], int]  #: first cell (z, y, x), and cells along each axis


@dataclass
class Level:
    """Cells of the whole cube; those that no tile covers are filled from the level below.

    Attributes
    ----------
    values : array (z, y, x)
        Density.
    tiles : array (z, y, x) of bool
        Which tiles the level covers.
    """

    values: Array
    tiles: NDArray[np.bool_]

    @property
    def cells(self) -> int:
        """Along each axis."""
        return len(self.values)

    @property
    def covered(self) -> NDArray[np.bool_]:
        """Which cells it covers."""
        return _finer(self.tiles, TILE)

    def boxes(self) -> Iterator[Box]:
        """The tiles, as few large cubes: each lies at a multiple of its size."""
        left = self.tiles.copy()
        for size in (4, 2, 1):
            if len(left) % size:
                continue
            for place in np.argwhere(_coarser(left, size, np.logical_and)) * size:
                left[tuple(slice(first, first + size) for first in place)] = False
                z, y, x = (int(first) * TILE for first in place)
                yield (z, y, x), size * TILE


def _finer(values: NDArray[Any], factor: int) -> NDArray[Any]:
    """Each element, ``factor`` times along each axis."""
    for axis in range(3):
        values = np.repeat(values, factor, axis)
    return values


def _coarser(
    values: NDArray[Any], factor: int, combine: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
) -> NDArray[Any]:
    """One element of ``factor`` (2, 4, …) along each axis, two at a time."""
    while factor > 1:
        for axis in range(3):
            pairs = np.moveaxis(values, axis, 0)
            values = np.moveaxis(combine(pairs[::2], pairs[1::2]), 0, axis)
        factor //= 2
    return values


def _mean(left: Array, right: Array) -> Array:
    return 0.5 * (left + right)


def _wider(marked: NDArray[np.bool_], cells: int) -> NDArray[np.bool_]:
    """What is marked, and what lies so near to it."""
    for axis in range(3):
        padded = np.pad(marked, [(cells, cells) if other == axis else (0, 0) for other in range(3)])
        marked = np.asarray(np.lib.stride_tricks.sliding_window_view(padded, 2 * cells + 1, axis).any(-1))
    return marked


def _cut(box: Box) -> tuple[slice, ...]:
    return tuple(slice(first, first + box[1]) for first in box[0])


class Simulation:
    """The levels, from coarse to fine, with time and number of the step.

    Parameters
    ----------
    cells : int
        Along each axis of level 0; a multiple of 8.
    """

    def __init__(self, cells: int) -> None:
        self.step, self.time = 0, 0.0
        self.levels: list[Level] = []
        for number in range(LEVELS):
            n = cells << number
            z, y, x = np.meshgrid(*[(np.arange(n) + 0.5) / n] * 3, indexing="ij")
            distance = np.sqrt((x - 0.35) ** 2 + (y - 0.35) ** 2 + (z - 0.35) ** 2)
            self.levels.append(Level(0.5 * (1 - np.tanh((distance - 0.15) / 0.02)), np.ones((n // TILE,) * 3, bool)))
        self.regrid()
        self._average_down()
        # The sum of |u|, |v|, |w| is nowhere above 2.6.
        self.time_step = 0.8 / (2.6 * self.levels[-1].cells)

    def advance(self) -> None:
        """One time step of all levels."""
        self._fill_up()
        for level in self.levels:
            _advance(level, self.time_step)
        self._average_down()
        self.step += 1
        self.time += self.time_step

    def regrid(self) -> None:
        """Covers anew what is steep, each level within the one below it."""
        self._fill_up()
        needed = np.zeros_like(self.levels[-1].covered)
        for below, level in zip(self.levels[-2::-1], self.levels[:0:-1], strict=True):
            steep = sum(np.abs(part) for part in np.gradient(below.values)) > STEEP
            # Three cells more, so that a front stays on its level until the next time.
            marked = (_wider(steep, 3) & below.covered) | _coarser(needed, 2, np.logical_or)
            level.tiles = _coarser(marked, TILE // 2, np.logical_or)
            # No level touches the one two below it.
            needed = _wider(_coarser(level.covered, 2, np.logical_or), 2)
        self._fill_up()

    def _fill_up(self) -> None:
        for below, level in zip(self.levels, self.levels[1:], strict=False):
            np.copyto(level.values, _finer(below.values, 2), where=~level.covered)

    def _average_down(self) -> None:
        for below, level in zip(self.levels[-2::-1], self.levels[:0:-1], strict=True):
            np.copyto(below.values, _coarser(level.values, 2, _mean), where=_coarser(level.covered, 2, np.logical_and))


def _velocities(places: NDArray[np.int64], cells: int) -> list[Array]:
    """Mean velocity through each face of tiles: along x, y, z, each (tile, z, y, x) with one face more along its axis.

    The means are exact, so that as much flows into a cell as out of it.
    """
    faces = np.arange(cells + 1) / cells
    normal = np.sin(np.pi * faces) ** 2
    along = -np.diff(np.cos(2 * np.pi * faces)) * cells / (2 * np.pi)
    velocities = []
    for axis, strength in enumerate((2.0, -1.0, -1.0)):
        parts = []
        for other in (2, 1, 0):  # z, y, x
            first = places[:, 2 - other] * TILE
            count = TILE + 1 if other == axis else TILE
            part = (normal if other == axis else along)[first[:, None] + np.arange(count)]
            parts.append(part.reshape(-1, *(count if place == 2 - other else 1 for place in range(3))))
        velocities.append(strength * parts[0] * parts[1] * parts[2])
    return velocities


def _advance(level: Level, time_step: float) -> None:
    """The tiles of a level, all at once."""
    places = np.argwhere(level.tiles)
    padded = np.pad(level.values, GHOSTS, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (TILE + 2 * GHOSTS,) * 3)[::TILE, ::TILE, ::TILE]
    tiles = windows[level.tiles]  # (tile, z, y, x)
    inner = slice(GHOSTS, -GHOSTS)
    change = np.zeros((len(tiles), TILE, TILE, TILE))
    for axis, velocity in enumerate(_velocities(places, level.cells)):
        place = 3 - axis
        cells = np.moveaxis(tiles[tuple(slice(None) if at in (0, place) else inner for at in range(4))], place, -1)
        # How far it flows in the step, in cells.
        courant = np.moveaxis(velocity, place, -1) * (time_step * level.cells)
        slopes = _slopes(cells)
        before = cells[..., 1:-2] + 0.5 * (1 - courant) * slopes[..., :-1]
        behind = cells[..., 2:-1] - 0.5 * (1 + courant) * slopes[..., 1:]
        flux = courant * np.where(courant > 0, before, behind)
        change += np.moveaxis(flux[..., :-1] - flux[..., 1:], -1, place)
    n = level.cells // TILE
    # The same memory, seen as tiles.
    level.values.reshape(n, TILE, n, TILE, n, TILE).transpose(0, 2, 4, 1, 3, 5)[level.tiles] += change


def _slopes(cells: Array) -> Array:
    """Van Leer's: the harmonic mean of both differences, 0 where they have opposite signs."""
    differences = np.diff(cells)
    left, right = differences[..., :-1], differences[..., 1:]
    product = np.maximum(left * right, 0.0)
    total = left + right
    slopes: Array = np.divide(2 * product, total, out=np.zeros_like(product), where=product > 0)
    return slopes


# --- Files, as AMReX writes them ---

_REAL = "((8, (64 11 52 0 1 12 0 1023)),(8, (8 7 6 5 4 3 2 1)))"


def _box_text(box: Box) -> str:
    (z, y, x), size = box
    return f"(({x},{y},{z}) ({x + size - 1},{y + size - 1},{z + size - 1}) (0,0,0))"


def _write_level(folder: Path, name: str, boxes: list[Box], fields: list[Array]) -> None:
    """A MultiFab: its boxes one after another in one file, and a header that says where each begins."""
    folder.mkdir()
    places, lows, highs = [], [], []
    with (folder / f"{name}_D_00000").open("wb") as file:
        for box in boxes:
            places.append(f"FabOnDisk: {name}_D_00000 {file.tell()}")
            file.write(f"FAB {_REAL}{_box_text(box)} {len(fields)}\n".encode())
            parts = [np.ascontiguousarray(field[_cut(box)], "<f8") for field in fields]
            for part in parts:
                file.write(part.data)
            lows.append("".join(f"{float(part.min())!r}," for part in parts))
            highs.append("".join(f"{float(part.max())!r}," for part in parts))
    extents = f"{len(boxes)},{len(fields)}"
    lines = ["1", "1", str(len(fields)), "0", f"({len(boxes)} 0", *map(_box_text, boxes), ")", str(len(boxes))]
    lines += [*places, "", extents, *lows, "", extents, *highs, ""]
    (folder / f"{name}_H").write_text("\n".join(lines) + "\n")


def _centre_velocities(cells: int) -> list[Array]:
    centres = (np.arange(cells) + 0.5) / cells
    normal, along = np.sin(np.pi * centres) ** 2, np.sin(2 * np.pi * centres)
    z, y, x = np.ix_(*[np.arange(cells)] * 3)
    return [
        2 * normal[x] * along[y] * along[z],
        -along[x] * normal[y] * along[z],
        -along[x] * along[y] * normal[z],
    ]


def write_plotfile(path: Path, run: Simulation) -> None:
    """A folder for viewers: all fields of all levels."""
    path.mkdir()
    levels = [(level, list(level.boxes())) for level in run.levels]
    lines = ["HyperCLaw-V1.1", str(len(FIELDS)), *FIELDS, "3", repr(run.time), str(LEVELS - 1)]
    lines += ["0.0 0.0 0.0 ", "1.0 1.0 1.0 ", "2 " * (LEVELS - 1)]
    lines.append("".join(f"{_box_text(((0, 0, 0), level.cells))} " for level in run.levels))
    lines.append(f"{run.step} " * LEVELS)
    lines += [f"{1 / level.cells!r} " * 3 for level in run.levels]
    lines += ["0", "0"]
    for number, (level, boxes) in enumerate(levels):
        lines += [f"{number} {len(boxes)} {run.time!r}", str(run.step)]
        for place, size in boxes:
            lines += [f"{first / level.cells!r} {(first + size) / level.cells!r}" for first in place[::-1]]
        lines.append(f"Level_{number}/Cell")
        _write_level(path / f"Level_{number}", "Cell", boxes, [level.values, *_centre_velocities(level.cells)])
    (path / "Header").write_text("\n".join(lines) + "\n")


def write_checkpoint(path: Path, run: Simulation) -> None:
    """A folder from which the run can continue."""
    path.mkdir()
    lines = ["Checkpoint file of the swirling blob", str(LEVELS - 1), str(run.step), repr(run.time)]
    for number, level in enumerate(run.levels):
        boxes = list(level.boxes())
        lines += [f"({len(boxes)} 0", *map(_box_text, boxes), ")"]
        _write_level(path / f"Level_{number}", "density", boxes, [level.values])
    (path / "Header").write_text("\n".join(lines) + "\n")


def read_checkpoint(path: Path, cells: int) -> Simulation:
    """The run as it was when the checkpoint was written, with so many cells along each axis of level 0."""
    run = Simulation(cells)
    lines = (path / "Header").read_text().splitlines()
    run.step, run.time = int(lines[2]), float(lines[3])
    for number, level in enumerate(run.levels):
        folder = path / f"Level_{number}"
        level.tiles[...] = False
        for file, offset in re.findall(r"FabOnDisk: (\S+) (\d+)", (folder / "density_H").read_text()):
            with (folder / file).open("rb") as opened:
                opened.seek(int(offset))
                corners = [int(text) for text in re.findall(rb"-?\d+", opened.readline().rpartition(b"((")[2])]
                place, size = (corners[2], corners[1], corners[0]), corners[3] - corners[0] + 1
                if max(place) + size > level.cells:
                    raise SystemExit(f"{path}: it is of another number of cells: give --cells as in the run before")
                level.values[_cut((place, size))] = np.fromfile(opened, "<f8", size**3).reshape((size,) * 3)
            level.tiles[tuple(slice(first // TILE, (first + size) // TILE) for first in place)] = True
    run._fill_up()
    return run


def write(folder: Path, name: str, write_into: Callable[[Path, Simulation], None], run: Simulation) -> int:
    """Writes under a temporary name and renames: what has its name is whole. Returns its bytes."""
    final = folder / f"{name}{run.step:05d}"
    temporary = final.with_name(f"{final.name}.temp")
    shutil.rmtree(temporary, ignore_errors=True)
    write_into(temporary, run)
    size = sum(file.stat().st_size for file in temporary.rglob("*") if file.is_file())
    if final.exists():
        # Of the run before a restart.
        shutil.rmtree(final)
    temporary.rename(final)
    return size


def write_plain(path: Path, size: int) -> None:
    """One file of as many bytes: what the file system takes."""
    piece = bytes(1 << 20)
    with path.open("wb") as file:
        for first in range(0, size, len(piece)):
            file.write(piece[: size - first])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--outputs", type=int, default=41, help="plotfiles and checkpoints, one each six steps")
    parser.add_argument("--cells", type=int, default=32, help="along each axis of level 0; a multiple of 8")
    parser.add_argument("--restart", type=Path, metavar="CHECKPOINT")
    parser.add_argument(
        "--compare", action="store_true", help="time a plain file of the same bytes after each plotfile"
    )
    chosen = parser.parse_args()
    if chosen.cells < TILE or chosen.cells % TILE:
        parser.error(f"--cells is a multiple of {TILE}, not {chosen.cells}")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    run = Simulation(chosen.cells) if chosen.restart is None else read_checkpoint(chosen.restart, chosen.cells)
    first = 0 if chosen.restart is None else run.step + 1
    last = (chosen.outputs - 1) * STEPS_BETWEEN_OUTPUTS
    report = {"plotfile_bytes": 0, "plotfile_seconds": 0.0, "plain_seconds": 0.0, "checkpoint_bytes": 0}
    while True:
        if run.step % STEPS_BETWEEN_OUTPUTS == 0 and run.step >= first:
            run.regrid()
            began = time.perf_counter()
            size = write(chosen.folder, "plt", write_plotfile, run)
            report["plotfile_seconds"] += time.perf_counter() - began
            report["plotfile_bytes"] += size
            if chosen.compare:
                began = time.perf_counter()
                write_plain(chosen.folder / "plain", size)
                report["plain_seconds"] += time.perf_counter() - began
                (chosen.folder / "plain").unlink()
            report["checkpoint_bytes"] += write(chosen.folder, "chk", write_checkpoint, run)
        if run.step >= last:
            break
        run.advance()
    temporary = chosen.folder / "finished.temp"
    temporary.write_text(json.dumps(report) + "\n")
    temporary.rename(chosen.folder / "finished")


if __name__ == "__main__":
    main()
