# SPDX-License-Identifier: Apache-2.0
"""Files with levels of refinement as steps of a stream: what :mod:`amrex` and :mod:`chombo` share.

Level N of the field ``density`` is the global array ``level_N/density``, of the shape of the level's domain, with a
block for each box. Cells that no box of the level covers have no block, and read as 0. Dimensions are (z, y, x).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay import StepBeingWritten, WritableStream
from forebay.errors import InvalidArgumentError

__all__ = ["Box", "Level", "LeveledFile", "Triple", "ingest_files", "write_step"]

Triple = tuple[int, ...]


@dataclass(frozen=True)
class Box:
    """A box of cells: first and last cell along x, y, z, both included."""

    low: Triple
    high: Triple

    def __post_init__(self) -> None:
        if any(first > last for first, last in zip(self.low, self.high, strict=True)):
            raise ValueError(f"the box from {self.low} to {self.high} is empty")

    @property
    def count(self) -> Triple:
        """Its extents, slowest dimension first."""
        return tuple(high - low + 1 for low, high in zip(self.low, self.high, strict=True))[::-1]

    def within(self, other: Box) -> bool:
        """Lies in the other one."""
        return all(
            mine >= theirs and last <= their_last
            for mine, theirs, last, their_last in zip(self.low, other.low, self.high, other.high, strict=True)
        )

    def grown(self, ghosts: Triple) -> Box:
        """With so many cells around it along x, y, z."""
        return Box(
            tuple(first - around for first, around in zip(self.low, ghosts, strict=True)),
            tuple(last + around for last, around in zip(self.high, ghosts, strict=True)),
        )

    def inside(self, other: Box) -> tuple[slice, ...]:
        """Where it lies in an array of the other one's extents."""
        return tuple(
            slice(first - zero, last - zero + 1)
            for first, last, zero in zip(self.low, self.high, other.low, strict=True)
        )[::-1]


class Level(Protocol):
    """One level of refinement: what it could cover, what it covers, and the sides of its cells along x, y, z."""

    @property
    def domain(self) -> Box: ...
    @property
    def boxes(self) -> tuple[Box, ...]: ...
    @property
    def spacing(self) -> tuple[float, ...]: ...


class LeveledFile(Protocol):
    """A file with levels: names of its fields, how many dimensions, its time, its domain's lower corner."""

    @property
    def path(self) -> Path: ...
    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def low(self) -> tuple[float, ...]: ...
    @property
    def levels(self) -> Sequence[Level]: ...

    def blocks(self, level: int, fields: Sequence[str]) -> Iterator[tuple[Box, str, NDArray[Any]]]:
        """Each box of a level and each of the fields, with the field's elements in the box, in C order (z, y, x)."""
        ...


def write_step(step: StepBeingWritten, file: LeveledFile, fields: Sequence[str] | None = None) -> None:
    """Writes a file into an open step.

    Parameters
    ----------
    fields : sequence of str, optional
        Which; None: all.
    """
    chosen = file.fields if fields is None else tuple(fields)
    if missing := [name for name in chosen if name not in file.fields]:
        raise InvalidArgumentError(
            f"there is no field {missing[0]!r}; it has {', '.join(file.fields[:10])}", str(file.path)
        )
    attributes = step.attributes
    step["time"] = file.time
    attributes["origin"] = _padded(file.low, 0.0)
    attributes["spacing"] = _padded(file.levels[0].spacing, 1.0)
    attributes["levels"] = len(file.levels)
    dims = ("z", "y", "x")[3 - file.dimensions :]
    for number, level in enumerate(file.levels):
        attributes[f"level_{number}/spacing"] = _padded(level.spacing, 1.0)
        attributes[f"level_{number}/origin"] = _padded(file.low, 0.0)
    for number, level in enumerate(file.levels):
        shape = level.domain.count
        for box, field, values in file.blocks(number, chosen):
            start = tuple(first - zero for first, zero in zip(box.low, level.domain.low, strict=True))[::-1]
            step.write(f"level_{number}/{field}", values, shape=shape, start=start, dims=dims)


def ingest_files(
    paths: Iterable[Path | str],
    address: str,
    read: Callable[[Path], LeveledFile],
    number_of: Callable[[Path], int | None],
    *,
    fields: Sequence[str] | None,
    numbers: bool,
    options: dict[str, Any],
) -> int:
    """Writes a stream with a step for each file; returns how many it wrote.

    Parameters
    ----------
    read, number_of : callable
        Gives a file, and the number in its name (None: it has none).
    fields, numbers, options
        As of :func:`forebay.connectors.amrex.ingest`.
    """
    written = 0
    with forebay.open(address, "a", **({"rank": 0, "ranks": 1} | options)) as stream:
        first = stream.next_step
        for path in map(Path, paths):
            number = _step_number(path, number_of(path), stream, first) if numbers else stream.next_step
            if number is None:
                continue
            file = read(path)
            with stream.step(number) as step:
                write_step(step, file, fields)
            written += 1
    return written


def _step_number(path: Path, number: int | None, stream: WritableStream, first: int) -> int | None:
    """The number in the name; None: the stream had it before."""
    if number is None:
        raise InvalidArgumentError("its name ends with no number: give numbers=False to count steps", str(path))
    if number < first:
        return None
    if number < stream.next_step:
        raise InvalidArgumentError(f"step {number} comes after step {stream.next_step - 1}: sort the files", str(path))
    return number


def _padded(numbers: tuple[float, ...], value: float) -> NDArray[np.float64]:
    """Three numbers along x, y and z, also of a plane or a line."""
    return np.array([*numbers, *[value] * (3 - len(numbers))])
