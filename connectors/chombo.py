# SPDX-License-Identifier: Apache-2.0
"""Plot files of Chombo (``plt000010.3d.hdf5``) as steps of a stream: one step for each file.

How levels lie in a step is told in :mod:`forebay.connectors.leveled_files`. Needs the extra ``forebay[hdf5]``.

>>> from forebay.connectors import chombo
>>> chombo.ingest(sorted(Path("run").glob("plt*.hdf5")), "run1/plots")
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from forebay.connectors.leveled_files import Box, Triple, ingest_files, write_step
from forebay.errors import CorruptError, NotFoundError, PermissionDeniedError
from forebay.hdf5_reading import open_hdf5

__all__ = ["ChomboFile", "ChomboLevel", "ingest", "write_step"]

_AXES = "ijk"
_LEVELS_MAX = 64
_FIELDS_MAX = 100_000


@dataclass(frozen=True)
class ChomboLevel:
    """One level of refinement.

    Attributes
    ----------
    domain : Box
        What the level could cover.
    boxes : tuple of Box
        What it covers.
    offsets : tuple of int
        Where each box's data begins, in elements.
    spacing : tuple of float
        Sides of its cells along x, y, z.
    ghosts : tuple of int
        How many ghost cells along x, y, z the file has around each box.
    """

    domain: Box
    boxes: tuple[Box, ...]
    offsets: tuple[int, ...]
    spacing: tuple[float, ...]
    ghosts: Triple


@dataclass(frozen=True)
class ChomboFile:
    """What a plot file says beside its data."""

    path: Path
    fields: tuple[str, ...]
    dimensions: int
    time: float
    low: tuple[float, ...]  #: lower corner of the domain along x, y, z
    levels: tuple[ChomboLevel, ...]

    @classmethod
    def read(cls, path: Path | str) -> ChomboFile:
        """Reads all but the data.

        The lower corner is the attribute ``prob_lo``, if there is one; else what the first cell's number says.

        Raises
        ------
        NotFoundError
            There is no such file.
        CorruptError
            It is no Chombo file, or cut off; the text names the file.
        """
        path = Path(path)
        with _opened(path) as file:
            return _read(path, file)

    def blocks(self, level: int, fields: Sequence[str]) -> Iterator[tuple[Box, str, NDArray[Any]]]:
        """Each box of a level and each of the fields, with the field's elements in the box, in C order (z, y, x)."""
        places = [(field, self.fields.index(field)) for field in fields]
        found = self.levels[level]
        with _opened(self.path) as file:
            data = file[f"level_{level}/data:datatype=0"]
            for box, offset in zip(found.boxes, found.offsets, strict=True):
                whole = box.grown(found.ghosts)
                elements = math.prod(whole.count)
                for field, place in places:
                    begin = offset + place * elements
                    yield box, field, data[begin : begin + elements].reshape(whole.count)[box.inside(whole)]


def ingest(
    files: Iterable[Path | str],
    address: str,
    *,
    fields: Sequence[str] | None = None,
    numbers: bool = True,
    **options: Any,
) -> int:
    """Writes a stream with a step for each plot file; returns how many it wrote.

    Called again with more files, it continues: those whose numbers the stream has are passed over.

    Parameters
    ----------
    files : iterable of path
        In order of time; files that are whole.
    fields : sequence of str, optional
        Which; None: all.
    numbers : bool
        The step's number is that in the file's name, 10 of ``plt000010.3d.hdf5``. False: steps are counted from 0,
        and nothing is passed over.
    **options
        Of :func:`forebay.open`, for example ``retention``.

    Raises
    ------
    InvalidArgumentError
        A name has no number, or numbers do not grow.
    NotFoundError, CorruptError
        A file is not whole. The steps before it stay.
    """
    return ingest_files(
        files, address, ChomboFile.read, _number_in_name, fields=fields, numbers=numbers, options=options
    )


def _number_in_name(path: Path) -> int | None:
    match = re.search(r"([0-9]+)(?:\.[123]d)?\.(?:hdf5|h5)$", path.name)
    return None if match is None else int(match[1])


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    try:
        with open_hdf5(path) as file:
            yield file
    except PermissionDeniedError:
        raise
    except FileNotFoundError:
        raise NotFoundError("there is no such file", str(path)) from None
    except (OSError, KeyError, ValueError, TypeError, IndexError, UnicodeDecodeError) as error:
        raise CorruptError(f"it is no Chombo file, or not whole: {str(error)[:120]}", str(path)) from None


def _read(path: Path, file: h5py.File) -> ChomboFile:
    dimensions = _number(file["Chombo_global"].attrs["SpaceDim"], 1, 3, "SpaceDim")
    level_count = _number(file.attrs["num_levels"], 1, _LEVELS_MAX, "num_levels")
    field_count = _number(file.attrs["num_components"], 1, _FIELDS_MAX, "num_components")
    fields = tuple(_text(file.attrs[f"component_{number}"]) for number in range(field_count))
    if len(set(fields)) != len(fields) or not all(fields):
        raise ValueError("two components have one name, or one has none")
    levels = tuple(_read_level(file[f"level_{number}"], dimensions, field_count) for number in range(level_count))
    time = float(file.attrs["time"] if "time" in file.attrs else file["level_0"].attrs.get("time", 0.0))
    low = tuple(first * side for first, side in zip(levels[0].domain.low, levels[0].spacing, strict=True))
    if "prob_lo" in file.attrs:
        low = tuple(np.asarray(file.attrs["prob_lo"], np.float64).tolist())
        if len(low) != dimensions:
            raise ValueError(f"prob_lo has {len(low)} numbers in {dimensions} dimensions")
    return ChomboFile(path, fields, dimensions, time, low, levels)


def _read_level(group: h5py.Group, dimensions: int, field_count: int) -> ChomboLevel:
    domain = _boxes(np.asarray(group.attrs["prob_domain"]).reshape(1), dimensions)[0]
    boxes = _boxes(group["boxes"][()], dimensions)
    if outside := next((box for box in boxes if not box.within(domain)), None):
        raise ValueError(f"{group.name}: box {outside.low} to {outside.high} lies outside the domain")
    ghosts = (0,) * dimensions
    kinds = group.get("data_attributes")
    if kinds is not None and "outputGhost" in kinds.attrs:
        given = kinds.attrs["outputGhost"]
        ghosts = tuple(_number(given[f"intvect{axis}"], 0, 1 << 16, "outputGhost") for axis in _AXES[:dimensions])
    data = group["data:datatype=0"]
    if data.ndim != 1 or data.dtype.kind != "f" or data.dtype.itemsize not in (4, 8):
        raise ValueError(f"{group.name}: its data are {data.dtype} {data.shape}, not numbers of 4 or 8 bytes in a row")
    sizes = [math.prod(box.grown(ghosts).count) * field_count for box in boxes]
    offsets = [0, *itertools.accumulate(sizes)][:-1]
    if "data:offsets=0" in group:
        offsets = np.asarray(group["data:offsets=0"][()], np.int64)[: len(boxes)].tolist()
    if len(offsets) != len(boxes) or any(
        offset < 0 or offset > data.shape[0] - size for offset, size in zip(offsets, sizes, strict=False)
    ):
        raise ValueError(f"{group.name}: {len(boxes)} boxes do not fit the {data.shape[0]} elements that are there")
    dx = float(group.attrs["dx"])
    if not 0 < dx < float("inf"):
        raise ValueError(f"{group.name}: dx is {dx}")
    return ChomboLevel(domain, boxes, tuple(offsets), (dx,) * dimensions, ghosts)


def _boxes(rows: NDArray[Any], dimensions: int) -> tuple[Box, ...]:
    axes = _AXES[:dimensions]
    return tuple(
        Box(tuple(int(row[f"lo_{axis}"]) for axis in axes), tuple(int(row[f"hi_{axis}"]) for axis in axes))
        for row in rows
    )


def _number(value: Any, least: int, most: int, name: str) -> int:
    number = int(value)
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, not from {least} to {most}")
    return number


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
