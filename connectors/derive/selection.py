# SPDX-License-Identifier: Apache-2.0
"""Parts of arrays: a box of them (``--subset``), and each n-th element (``--stride``).

A block of the source becomes the block that is left of it; one of which nothing is left is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forebay.connectors.derive.fields import Array, Box, Field, Fields
from forebay.datatypes import AttributeValue
from forebay.errors import InvalidArgumentError

__all__ = ["Selection", "parse_stride", "parse_subset"]

#: First, end (None: that of the array) and distance of the elements along one dimension.
Range = tuple[int, int | None, int]

_WHOLE: Range = (0, None, 1)
_SUBSET_ADVICE = (
    "--subset is FIRST:END for each dimension, for example 0:64,:,16:32, or by names of dimensions, for example "
    "z=0:64,x=16:32"
)


class Selection:
    """The operations ``--subset`` and ``--stride``, of which each is a range along some dimensions.

    Parameters
    ----------
    places : sequence of range, optional
        One for each dimension: arrays of so many dimensions are cut, others stay whole.
    names : mapping of range, optional
        By the dimensions' names: arrays that have one of these are cut along it.
    everywhere : range, optional
        For all dimensions of all arrays.
    text : str
        As the user wrote it.
    """

    def __init__(
        self,
        text: str,
        *,
        places: Sequence[Range] = (),
        names: Mapping[str, Range] | None = None,
        everywhere: Range | None = None,
    ) -> None:
        self.text = text
        self._places = tuple(places)
        self._names = names or {}
        self._everywhere = everywhere

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        ranges = {name: self._ranges_of(made) for name, made in fields.items()}
        along = {
            dimension: one
            for name, found in ranges.items()
            for dimension, one in zip(fields[name].dims or (), found or (), strict=False)
        }
        for name, made in fields.items():
            # Coordinates go along with the arrays that they belong to.
            if ranges[name] is None and made.dims == (name,) and name in along:
                ranges[name] = [along[name]]
        cut: Fields = {}
        for name, made in fields.items():
            own = ranges[name]
            cut[name] = made if own is None else self._cut(name, made, own)
        if not any(made is not fields[name] for name, made in cut.items()):
            shown = ", ".join(f"{name} {made.dims or made.shape}" for name, made in list(fields.items())[:5])
            raise InvalidArgumentError(f"{self.text} fits no array of the step: it has {shown}")
        _move_grid(fields, cut, attributes)
        return cut

    def _ranges_of(self, field: Field) -> list[Range] | None:
        """Those along each dimension of an array; None: it stays as it is."""
        if field.is_value or (not self._names and field.ndim != len(self._places) and self._everywhere is None):
            return None
        if self._everywhere is not None:
            return [self._everywhere] * field.ndim
        if not self._names:
            return list(self._places)
        if not self._names.keys() & set(field.dims or ()):
            return None
        return [self._names.get(name, _WHOLE) for name in field.dims or ()]

    def _cut(self, name: str, field: Field, ranges: Sequence[Range]) -> Field:
        if field.is_local and any(first or end is not None for first, end, _ in ranges):
            raise InvalidArgumentError(
                f"{name!r} is a local array, whose blocks have no place in a whole: name the variables that are to be "
                "cut by --variables"
            )
        for extent, (first, end, _) in zip(field.shape, ranges, strict=False):
            if first >= extent or (end is not None and end > extent):
                raise InvalidArgumentError(f"{self.text} lies outside {name!r}, whose shape is {field.shape}")
        return _PartField(field, ranges)


class _PartField(Field):
    """Elements at first, first + distance, … before the end, along each dimension."""

    def __init__(self, whole: Field, ranges: Sequence[Range]) -> None:
        self._whole = whole
        self.dtype, self.dims, self.is_local, self.attributes = (
            whole.dtype,
            whole.dims,
            whole.is_local,
            whole.attributes,
        )
        ends = [extent if end is None else end for extent, (_, end, _) in zip(whole.shape, ranges, strict=False)]
        self.firsts = tuple(first for first, _, _ in ranges)
        self.distances = tuple(distance for _, _, distance in ranges)
        self.shape = () if self.is_local else tuple(map(_length, self.firsts, ends, self.distances))
        boxes = []
        for box in whole.boxes:
            part = self._local_part(box) if self.is_local else self._part(box, ends)
            if part is not None:
                boxes.append(part)
        self.boxes = tuple(boxes)

    def read(self, box: Box) -> Array:
        if self.is_local:
            return self._whole.read(box)[tuple(slice(None, None, distance) for distance in self.distances)]
        start = tuple(
            first + place * distance
            for first, place, distance in zip(self.firsts, box.start, self.distances, strict=True)
        )
        count = tuple(
            (extent - 1) * distance + 1 if extent else 0
            for extent, distance in zip(box.count, self.distances, strict=True)
        )
        if 0 in count:
            return np.empty(box.count, self.dtype)
        values = self._whole.read(Box(box.number, start, count))
        return values[tuple(slice(None, None, distance) for distance in self.distances)]

    def _part(self, box: Box, ends: Sequence[int]) -> Box | None:
        """What is left of a block, in places of the new array."""
        start, count = [], []
        for at, extent, first, end, distance in zip(
            box.start, box.count, self.firsts, ends, self.distances, strict=True
        ):
            low = -(-max(at - first, 0) // distance)
            high = _length(first, min(at + extent, end), distance)
            if high <= low:
                return None
            start.append(low)
            count.append(high - low)
        return Box(box.number, tuple(start), tuple(count))

    def _local_part(self, box: Box) -> Box:
        return Box(box.number, (), tuple(map(_length, (0,) * len(box.count), box.count, self.distances)))


def _length(first: int, end: int, distance: int) -> int:
    """How many elements lie at first, first + distance, … before the end."""
    return max(0, -(-(end - first) // distance))


def _move_grid(before: Fields, after: Fields, attributes: dict[str, Any]) -> None:
    """Changes ``origin`` and ``spacing`` of the grid of three-dimensional arrays (x, y, z), and of each level of
    refinement; the whole grid's are those of level 0.
    """
    moved: set[str] = set()
    for name, made in after.items():
        level = re.match(r"level_([0-9]+)/", name)
        if made is before[name] or not isinstance(made, _PartField) or made.is_local:
            continue
        if made.ndim != 3 and (level is None or made.ndim > 3):
            continue
        for prefix in {level[0] if level else "", "" if level is None or level[1] == "0" else level[0]} - moved:
            moved.add(prefix)
            _move(made, attributes, prefix)


def _move(part: _PartField, attributes: dict[str, Any], prefix: str) -> None:
    if prefix and not {f"{prefix}origin", f"{prefix}spacing"} & attributes.keys():
        return  # the level follows from the whole grid's
    spacing = _three(attributes.get(f"{prefix}spacing", 1.0))
    origin = _three(attributes.get(f"{prefix}origin", 0.0))
    if spacing is None or origin is None:
        return
    firsts = np.array([*part.firsts[::-1], 0, 0][:3])
    distances = np.array([*part.distances[::-1], 1, 1][:3])
    # Each value stands for its cell: the first cell of the part begins where that element's did.
    attributes[f"{prefix}origin"] = origin + firsts * spacing
    attributes[f"{prefix}spacing"] = spacing * distances


def _three(value: AttributeValue) -> Array | None:
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "iuf" or numbers.shape not in ((), (1,), (3,)):
        return None
    return np.broadcast_to(numbers.astype(float), 3)


def parse_subset(text: str) -> Selection:
    """``0:64,:,16:32``, or ``z=0:64,x=16:32``; an end is not included.

    Raises
    ------
    InvalidArgumentError
        It is neither.
    """
    parts = [part.strip() for part in text.split(",")]
    named = [re.fullmatch(r"(?:([^=:]+)=)?([0-9]{0,18})(:?)([0-9]{0,18})", part) for part in parts]
    ranges: list[Range] = []
    for match in named:
        if match is None or (not match[3] and not match[2]):
            raise InvalidArgumentError(f"{_SUBSET_ADVICE}; not {text[:80]!r}")
        first = int(match[2] or 0)
        end = int(match[4]) if match[4] else None if match[3] else first + 1
        if end is not None and end <= first:
            raise InvalidArgumentError(f"--subset {text[:80]}: {match[0]} has no element: the end is not included")
        ranges.append((first, end, 1))
    names = [match[1] for match in named if match is not None and match[1]]
    if not names:
        return Selection(f"subset {text}", places=ranges)
    if len(set(names)) != len(parts):
        raise InvalidArgumentError(f"{_SUBSET_ADVICE}; each dimension once, all by names or none; not {text[:80]!r}")
    return Selection(f"subset {text}", names=dict(zip(names, ranges, strict=True)))


def parse_stride(text: str) -> Selection:
    """``2``: each second element along all dimensions; ``1,2,2``: of arrays of so many dimensions.

    Raises
    ------
    InvalidArgumentError
        It is neither.
    """
    if re.fullmatch(r"[1-9][0-9]{0,8}(,[1-9][0-9]{0,8})*", text.strip()) is None:
        raise InvalidArgumentError(f"--stride is N, or N,N,N for each dimension, from 1 on, not {text[:80]!r}")
    ranges: list[Range] = [(0, None, int(number)) for number in text.split(",")]
    if len(ranges) == 1:
        return Selection(f"stride {text}", everywhere=ranges[0])
    return Selection(f"stride {text}", places=ranges)
