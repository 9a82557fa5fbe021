# SPDX-License-Identifier: Apache-2.0
"""What a derived step is made of: fields, each with its blocks, which are computed when they are written.

An operation makes fields of fields. Nothing is read before a block is written, and a block is all that is in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import StepBeingWritten, Variable
from forebay.datatypes import AttributeValue, ShapeKind
from forebay.dimensions import attribute_of, attributes_of, dims_of
from forebay.errors import VariableNotFoundError

__all__ = ["Array", "Box", "ComputedField", "Field", "Fields", "MissingVariableError", "SourceField", "field_named"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Box:
    """A block, or another part, of a field.

    Attributes
    ----------
    number : int
        Of the source's block, which local arrays are read by.
    start, count : tuple of int
        Its place in the global shape and its extents; ``start`` is empty in local arrays.
    """

    number: int
    start: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as an index of the whole."""
        return tuple(slice(start, start + count) for start, count in zip(self.start, self.count, strict=True))


class Field(ABC):
    """One variable of a step that is derived.

    Attributes
    ----------
    dtype : dtype
        Of its elements.
    shape : tuple of int
        The global shape; empty for single values and local arrays.
    is_local : bool
        A local array: blocks without a place.
    boxes : tuple of Box
        What is written, block by block; a single value has one without extents.
    dims : tuple of str, optional
        Names of the dimensions.
    attributes : mapping
        Of the variable, by their own names.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_local: bool = False
    boxes: Sequence[Box]
    dims: tuple[str, ...] | None = None
    attributes: Mapping[str, AttributeValue] = {}

    @property
    def is_value(self) -> bool:
        """A single value."""
        return not self.shape and not self.is_local

    @property
    def ndim(self) -> int:
        """Number of dimensions, of local arrays that of each block."""
        if self.is_local:
            return len(self.boxes[0].count) if self.boxes else 0
        return len(self.shape)

    @abstractmethod
    def read(self, box: Box) -> Array:
        """The elements of a box; one of ``boxes``, or any other part of a global array."""

    def content(self, box: Box) -> Any:
        """What is written of one of ``boxes``."""
        return self.read(box)

    def extremes(self) -> tuple[float, float] | None:
        """Smallest and largest finite element; None: there is none."""
        found: list[float] = []
        for box in self.boxes:
            block = self.read(box)
            finite = block[np.isfinite(block)] if block.dtype.kind == "f" else block
            if finite.size:
                found += [float(finite.min()), float(finite.max())]
        return (min(found), max(found)) if found else None

    def write(self, step: StepBeingWritten, name: str, box: Box) -> None:
        """Writes one of ``boxes`` into a step."""
        self._put(step, name, box, self.content(box))

    def _put(self, step: StepBeingWritten, name: str, box: Box, content: Any) -> None:
        if self.is_value:
            step.write(name, content)
        elif self.is_local:
            step.write(name, content, kind=ShapeKind.LOCAL_ARRAY, dims=self.dims)
        else:
            step.write(name, content, shape=self.shape, start=box.start, dims=self.dims)


#: By name, in the order in which they are written.
Fields = dict[str, Field]

_NAMES_SHOWN = 10


class MissingVariableError(VariableNotFoundError):
    """A step lacks a variable that an operation needs; ``name``: which."""

    def __init__(self, what: str, where: str = "", name: str = "") -> None:
        super().__init__(what, where)
        self.name = name


def field_named(name: str, fields: Fields) -> Field:
    """The field of this name; MissingVariableError if there is none."""
    if name not in fields:
        shown = ", ".join(list(fields)[:_NAMES_SHOWN]) or "none"
        raise MissingVariableError(f"there is no variable {name!r}; the step has {shown}", name=name)
    return fields[name]


class SourceField(Field):
    """A variable of the source as it is."""

    def __init__(self, variable: Variable, attributes: Mapping[str, AttributeValue]) -> None:
        """``attributes``: all of the step's."""
        self.dtype = variable.dtype
        self.shape = variable.shape
        self.is_local = variable.kind is ShapeKind.LOCAL_ARRAY
        self._variable = variable
        self._has_blocks = variable.kind in (ShapeKind.GLOBAL_ARRAY, ShapeKind.JOINED_ARRAY)
        if variable.kind is ShapeKind.LOCAL_VALUE:
            # As readers see them: an array with an element for each rank.
            self.boxes = (Box(0, (0,), variable.shape),)
        elif self.is_value:
            self.boxes = (Box(0, (), ()),)
        else:
            self.boxes = tuple(Box(number, block.start, block.count) for number, block in enumerate(variable.blocks))
        self.dims = dims_of(attributes.get(attribute_of(variable.name)), self.ndim)
        self.attributes = attributes_of(variable.name, attributes, self.dims)

    def whole(self) -> Array:
        """All elements of what is no local array, as :meth:`read`."""
        return np.asarray(self._variable[...])

    def read(self, box: Box) -> Array:
        """A read-only view where one block has all of it."""
        if self.is_local:
            return np.asarray(self._variable.block(box.number))
        if not box.count:
            return np.asarray(self._variable[...])
        # Within one block that is read alone: of an array with uncovered cells, reading otherwise warns.
        if self._has_blocks and box.number < len(self.boxes):
            own = self.boxes[box.number]
            places = list(zip(box.start, box.count, own.start, own.count, strict=True))
            if all(first <= start and start + count <= first + extent for start, count, first, extent in places):
                block = np.asarray(self._variable.block(box.number))
                return block[tuple(slice(start - first, start - first + count) for start, count, first, _ in places)]
        return np.asarray(self._variable[box.slices])

    def extremes(self) -> tuple[float, float] | None:
        """Those that the blocks' statistics tell, without reading them."""
        low, high = self._variable.min, self._variable.max
        if low is None or high is None or not (np.isfinite(low) and np.isfinite(high)):
            return super().extremes()
        return float(low), float(high)

    def content(self, box: Box) -> Any:
        """Texts are single values, which NumPy's arrays do not hold everywhere."""
        return self._variable.item() if self.is_value and self.dtype.kind in "TO" else self.read(box)


class ComputedField(Field):
    """An array, or a single value, that is in memory.

    Parameters
    ----------
    boxes : sequence of Box, optional
        Its blocks; not given: one.
    """

    def __init__(
        self,
        array: Array,
        dims: tuple[str, ...] | None = None,
        attributes: Mapping[str, AttributeValue] | None = None,
        boxes: Sequence[Box] | None = None,
    ) -> None:
        self._array = array
        self.dtype, self.shape, self.dims = array.dtype, array.shape, dims
        self.attributes = attributes or {}
        self.boxes = (Box(0, (0,) * array.ndim, array.shape),) if boxes is None else boxes

    def read(self, box: Box) -> Array:
        return self._array[box.slices]
