# SPDX-License-Identifier: Apache-2.0
"""Plotfiles of AMReX and BoxLib codes (Nyx, Castro, …) as steps of a stream: one step for each plotfile.

How levels lie in a step is told in :mod:`forebay.connectors.leveled_files`.

>>> from forebay.connectors import amrex
>>> amrex.ingest(sorted(Path("run").glob("plt?????")), "run1/plots")
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from forebay.connectors.leveled_files import Box, Triple, ingest_files, write_step
from forebay.errors import CorruptError, NotFoundError
from forebay.files.open_folder import open_file

__all__ = ["Box", "Level", "Plotfile", "ingest", "write_step"]

_HEADER_BYTES_MAX = 1 << 30
_BOX = re.compile(r"\(\s*\(([-0-9, ]+)\)\s*\(([-0-9, ]+)\)\s*\(([-0-9, ]+)\)\s*\)")
_FAB_ON_DISK = re.compile(r"FabOnDisk:\s*([A-Za-z0-9_.-]+)\s+([0-9]+)")
_FAB = re.compile(
    rb"FAB \(\(8, \([0-9 ]+\)\),\((?P<bytes>[48]), \((?P<order>[0-9 ]+)\)\)\)"
    rb"(?P<box>\(\([-0-9,]+\) \([-0-9,]+\) \([-0-9,]+\)\)) (?P<fields>[0-9]+)\n"
)
_FAB_HEADER_BYTES_MAX = 1024


@dataclass(frozen=True)
class Level:
    """One level of refinement.

    Attributes
    ----------
    domain : Box
        What the level could cover.
    boxes : tuple of Box
        What it covers.
    files : tuple of (Path, int)
        Where each box's data lies: file, and offset in bytes.
    spacing : tuple of float
        Sides of its cells along x, y, z.
    ghosts : tuple of int
        How many ghost cells along x, y, z the files have around each box.
    """

    domain: Box
    boxes: tuple[Box, ...]
    files: tuple[tuple[Path, int], ...]
    spacing: tuple[float, ...]
    ghosts: Triple


@dataclass(frozen=True)
class Plotfile:
    """What the headers of a plotfile say."""

    path: Path
    fields: tuple[str, ...]
    dimensions: int
    time: float
    low: tuple[float, ...]  #: lower corner of the domain along x, y, z
    levels: tuple[Level, ...]

    @classmethod
    def read(cls, path: Path | str) -> Plotfile:
        """Reads ``Header`` and each level's ``Cell_H``.

        Raises
        ------
        NotFoundError
            There is no such plotfile.
        CorruptError
            A header is cut off, or does not say what it should; the text names the file.
        """
        path = Path(path)
        try:
            return _read_header(path)
        except FileNotFoundError as error:
            raise NotFoundError("it is no plotfile, or not whole: a file is missing", str(error.filename)) from None
        except (ValueError, IndexError, UnicodeDecodeError) as error:
            raise CorruptError(f"its header is damaged or of another format: {str(error)[:120]}", str(path)) from None

    def blocks(self, level: int, fields: Sequence[str]) -> Iterator[tuple[Box, str, NDArray[Any]]]:
        """Each box of a level and each of the fields, with the field's elements in the box, in C order (z, y, x)."""
        places = [(field, self.fields.index(field)) for field in fields]
        for box, (file, offset) in zip(self.levels[level].boxes, self.levels[level].files, strict=True):
            with _opened(file, offset) as opened:
                fab = _Fab.read(opened, offset, box, self.levels[level].ghosts, len(self.fields))
                for field, place in places:
                    yield box, field, fab.field(opened, place)


def _lines(path: Path) -> Iterator[str]:
    with os.fdopen(open_file(path), "r", encoding="ascii") as opened:
        if os.fstat(opened.fileno()).st_size > _HEADER_BYTES_MAX:
            raise ValueError(f"{path.name} is larger than a header")
        yield from opened.read(_HEADER_BYTES_MAX).splitlines()


def _read_header(path: Path) -> Plotfile:
    lines = _lines(path / "Header")

    def line() -> str:
        found = next(lines, None)
        if found is None:
            raise ValueError("it is cut off")
        return found.strip()

    version = line()
    if not version.startswith(("HyperCLaw", "NavierStokes", "CARTGRID")):
        raise ValueError(f"it begins with {version[:40]!r}, not with HyperCLaw-V1.1")
    fields = tuple(line() for _ in range(_number(line(), 1, 100_000)))
    if len(set(fields)) != len(fields) or not all(fields):
        raise ValueError("two fields have one name, or one has none")
    dimensions = _number(line(), 1, 3)
    time = float(line())
    level_count = _number(line(), 0, 63) + 1
    low = _floats(line(), dimensions)
    _floats(line(), dimensions)
    line()  # ratios of refinement
    domains = [_parse_box(text, dimensions) for text in _boxes(line())]
    line()  # numbers of the levels' steps
    spacings = [_floats(line(), dimensions) for _ in range(level_count)]
    if len(domains) != level_count:
        raise ValueError(f"it names {len(domains)} domains for {level_count} levels")
    line()  # system of coordinates
    line()
    levels = []
    for number in range(level_count):
        count = _number(line().split()[1], 0, 1 << 24)
        line()
        for _ in range(count * dimensions):
            line()
        place = line()
        if re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", place) is None or ".." in place:
            raise ValueError(f"level {number} lies at {place[:60]!r}")
        levels.append(_read_level(path / f"{place}_H", domains[number], spacings[number], len(fields), count))
    return Plotfile(path, fields, dimensions, time, low, tuple(levels))


def _read_level(path: Path, domain: Box, spacing: tuple[float, ...], fields: int, count: int) -> Level:
    text = "\n".join(_lines(path))
    head = text.split(None, 4)
    if _number(head[2], 0, 1 << 30) != fields:
        raise ValueError(f"{path.name} has {head[2]} fields, and Header {fields}")
    boxes = tuple(_parse_box(one, len(domain.low)) for one in _boxes(text.partition("FabOnDisk")[0]))
    files = tuple((path.parent / name, int(offset)) for name, offset in _FAB_ON_DISK.findall(text))
    if not len(boxes) == len(files) == count:
        raise ValueError(f"{path.name} has {len(boxes)} boxes and {len(files)} places, and Header {count}")
    if outside := next((box for box in boxes if not box.within(domain)), None):
        raise ValueError(f"{path.name}: box {outside.low} to {outside.high} lies outside the domain")
    return Level(domain, boxes, files, spacing, _ghosts(head[3], len(domain.low)))


@contextlib.contextmanager
def _opened(file: Path, offset: int) -> Iterator[BinaryIO]:
    """The file to read the box at this offset from; what is wrong there is told by name."""
    try:
        with os.fdopen(open_file(file), "rb", buffering=0) as opened:
            yield opened
    except FileNotFoundError:
        raise NotFoundError("the plotfile is not whole: a file is missing", str(file)) from None
    except _DamagedError as error:
        raise CorruptError(str(error), f"{file}, byte {offset}") from None


class _DamagedError(Exception):
    """The file has not at this place what the headers say."""


@dataclass(frozen=True)
class _Fab:
    """All fields of a box, in a file; perhaps with ghost cells around it.

    Attributes
    ----------
    begin : int
        Offset of the first field's elements in bytes.
    inside : tuple of slice
        Where the box lies in what the file has, of the extents `count`.
    """

    begin: int
    dtype: np.dtype[Any]
    count: tuple[int, ...]
    inside: tuple[slice, ...]

    @classmethod
    def read(cls, opened: BinaryIO, offset: int, box: Box, ghosts: Triple, fields: int) -> _Fab:
        opened.seek(offset)
        match = _FAB.match(opened.read(_FAB_HEADER_BYTES_MAX))
        if match is None:
            raise _DamagedError("there is no FAB of 4 or 8 bytes")
        try:
            whole = _parse_box(match["box"].decode(), len(box.low))
        except ValueError as error:
            raise _DamagedError(str(error)) from None
        if int(match["fields"]) != fields or whole != box.grown(ghosts):
            raise _DamagedError(f"the FAB is of {whole.low} to {whole.high} with {int(match['fields'])} fields")
        size = int(match["bytes"])
        ascending = list(range(1, size + 1))
        order = {tuple(ascending): ">", tuple(ascending[::-1]): "<"}.get(
            tuple(int(number) for number in match["order"].split())
        )
        if order is None:
            raise _DamagedError("the order of its bytes is none that computers of today have")
        return cls(offset + match.end(), np.dtype(f"{order}f{size}"), whole.count, box.inside(whole))

    def field(self, opened: BinaryIO, place: int) -> NDArray[Any]:
        """Elements of one field, without ghost cells."""
        elements = math.prod(self.count)
        opened.seek(self.begin + place * elements * self.dtype.itemsize)
        values = np.fromfile(opened, self.dtype, elements)
        if values.size != elements:
            raise _DamagedError(f"{values.size} of {elements} elements are there: the file is cut off")
        return values.reshape(self.count)[self.inside]


def ingest(
    plotfiles: Iterable[Path | str],
    address: str,
    *,
    fields: Sequence[str] | None = None,
    numbers: bool = True,
    **options: Any,
) -> int:
    """Writes a stream with a step for each plotfile; returns how many it wrote.

    Called again with more plotfiles, it continues: those whose numbers the stream has are passed over.

    Parameters
    ----------
    plotfiles : iterable of path
        In order of time; folders that are whole.
    fields : sequence of str, optional
        Which; None: all.
    numbers : bool
        The step's number is that in the plotfile's name, 10 of ``plt00010``. False: steps are counted from 0, and
        nothing is passed over.
    **options
        Of :func:`forebay.open`, for example ``retention``.

    Raises
    ------
    InvalidArgumentError
        A name has no number, or numbers do not grow.
    NotFoundError, CorruptError
        A plotfile is not whole. The steps before it stay.
    """
    return ingest_files(
        plotfiles, address, Plotfile.read, _number_in_name, fields=fields, numbers=numbers, options=options
    )


def _number_in_name(path: Path) -> int | None:
    match = re.search(r"([0-9]+)$", path.name)
    return None if match is None else int(match[1])


def _parse_box(text: str, dimensions: int) -> Box:
    """Takes ``((0,0,0) (15,15,15) (0,0,0))``; ValueError for anything else, and for boxes not of cells."""
    match = _BOX.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:60]!r} is no box")
    low, high, kind = (tuple(int(number) for number in part.split(",")) for part in match.groups())
    if not len(low) == len(high) == len(kind) == dimensions or any(kind):
        raise ValueError(f"{text[:60]!r} is no box of cells in {dimensions} dimensions")
    return Box(low, high)


def _ghosts(text: str, dimensions: int) -> Triple:
    """``1``, or ``(1,1,0)``."""
    numbers = tuple(_number(word, 0, 1 << 16) for word in text.strip("()").split(","))
    return numbers * dimensions if len(numbers) == 1 else numbers


def _number(text: str, least: int, most: int) -> int:
    number = int(text)
    if not least <= number <= most:
        raise ValueError(f"{number} is not from {least} to {most}")
    return number


def _floats(text: str, count: int) -> tuple[float, ...]:
    numbers = tuple(float(word) for word in text.split())
    if len(numbers) != count:
        raise ValueError(f"{text[:60]!r} are not {count} numbers")
    return numbers


def _boxes(text: str) -> list[str]:
    return [match[0] for match in _BOX.finditer(text)]
