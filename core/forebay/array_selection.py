# SPDX-License-Identifier: Apache-2.0
"""NumPy's basic indexing as a box to read and what is left to apply to it.

Ints, slices with steps, negatives, Ellipsis.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from types import EllipsisType
from typing import SupportsIndex, TypeAlias

__all__ = ["ArraySelection", "Index", "select"]

IndexItem: TypeAlias = SupportsIndex | slice | EllipsisType
Index: TypeAlias = IndexItem | tuple[IndexItem, ...]


@dataclass(frozen=True, slots=True)
class ArraySelection:
    """The smallest box that holds the selected elements, and the index that takes them from it."""

    start: tuple[int, ...]
    count: tuple[int, ...]
    shape: tuple[int, ...]  #: of the selection
    rest: tuple[int | slice | EllipsisType, ...] | None  #: None: the box is the selection
    is_scalar: bool  #: every dimension was given an int, or there are none and the index was ``()``


def select(index: Index, shape: tuple[int, ...]) -> ArraySelection:
    """Turns an index into a selection of an array of this shape.

    Raises
    ------
    IndexError
        An int beyond its dimension, too many indices, or anything but ints, slices and one Ellipsis.
    """
    if index is Ellipsis:
        return ArraySelection((0,) * len(shape), shape, shape, None, False)
    items = _without_ellipsis(index if isinstance(index, tuple) else (index,), len(shape))
    start: list[int] = []
    count: list[int] = []
    extents: list[int] = []
    rest: list[int | slice | EllipsisType] = []
    plain = True
    for axis, extent in enumerate(shape):
        item = items[axis] if axis < len(items) else slice(None)
        if isinstance(item, slice):
            chosen = range(*item.indices(extent))
            if not chosen:
                first, length, kept = 0, 0, slice(None)
            elif chosen.step > 0:
                first, length, kept = chosen[0], chosen[-1] - chosen[0] + 1, slice(None, None, chosen.step)
            else:
                first, length, kept = chosen[-1], chosen[0] - chosen[-1] + 1, slice(None, None, chosen.step)
            extents.append(len(chosen))
            plain = plain and (kept.step is None or kept.step == 1)
            rest.append(kept)
        else:
            position = _position(item, axis, extent)
            first, length = position, 1
            plain = False
            rest.append(0)
        start.append(first)
        count.append(length)
    is_scalar = not extents and not (isinstance(index, tuple) and Ellipsis in index)
    # The Ellipsis makes NumPy give an array also where only ints select.
    return ArraySelection(tuple(start), tuple(count), tuple(extents), None if plain else (*rest, ...), is_scalar)


def _without_ellipsis(items: tuple[IndexItem, ...], dimensions: int) -> list[SupportsIndex | slice]:
    result: list[SupportsIndex | slice] = []
    seen = False
    for item in items:
        if item is Ellipsis:
            if seen:
                raise IndexError("an index can only have a single ellipsis ('...')")
            seen = True
            result.extend([slice(None)] * max(0, dimensions - (len(items) - 1)))
        elif isinstance(item, slice) or (
            hasattr(item, "__index__") and not isinstance(item, bool) and not _is_array(item)
        ):
            result.append(item)
        else:
            raise IndexError(
                f"a variable takes integers, slices and Ellipsis, not {type(item).__name__}: take variable[...] first "
                "and index the array"
            )
    if len(result) > dimensions:
        raise IndexError(f"too many indices: the variable has {dimensions} dimensions, but {len(result)} were indexed")
    return result


def _is_array(item: object) -> bool:
    # One-element arrays have __index__, but NumPy takes them as fancy indices.
    return bool(getattr(item, "ndim", 0))


def _position(item: SupportsIndex, axis: int, extent: int) -> int:
    position = operator.index(item)
    if not -extent <= position < extent:
        raise IndexError(f"index {position} is out of bounds for axis {axis} with size {extent}")
    return position + extent if position < 0 else position
