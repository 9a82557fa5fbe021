# SPDX-License-Identifier: Apache-2.0
"""A variable of a stream over its steps, as one array that is read where it is indexed."""

from __future__ import annotations

import math
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.array_operators import ArrayOperators
from forebay.array_selection import Index, select
from forebay.arrow_export import series_capsule
from forebay.datatypes import ShapeKind
from forebay.errors import InvalidArgumentError, StepNotFoundError, VariableNotFoundError
from forebay.step_metadata import StepsMetadata
from forebay.step_table import StepTable

if TYPE_CHECKING:
    from forebay.stream import Stream

__all__ = ["Series"]

Array = NDArray[Any]


class Series(ArrayOperators):
    """A variable over the steps that were kept when it was asked for: ``stream["T"]``. Pickles by address.

    Axis 0 is the place among these steps - :attr:`steps` has their numbers -, the other axes are the variable's own.
    ``series[index]`` takes ints, slices (with steps, also negative) and Ellipsis, as NumPy does. Of one step it is
    what ``step["T"][index]`` is: a read-only view where one block covers the selection. Of several steps it is a new
    array, with zeros where no block covers it. Single values are read when the series is made, all others when they
    are indexed. Operators, NumPy's functions and ``numpy.asarray`` read the whole.

    >>> temperature = stream["T"]
    >>> temperature.shape, temperature.steps[-1]
    ((200, 64, 64), 199)
    >>> profile = temperature[-10:, :, 32].mean(axis=0)  # of the last ten steps
    """

    __slots__ = ("_dims", "_dtype", "_extents", "_name", "_table", "_values")

    def __init__(
        self,
        table: StepTable,
        name: str,
        dtype: np.dtype[Any],
        extents: tuple[int, ...],
        dims: tuple[str, ...] | None,
        values: Array | None,
    ) -> None:
        self._table = table
        self._name = name
        self._dtype = dtype
        self._extents = extents
        self._dims = dims
        self._values = values  # of single values, one for each step

    @property
    def name(self) -> str:
        """Name of the variable."""
        return self._name

    @property
    def stream(self) -> Stream:
        """The stream that it is read from."""
        return self._table.stream

    @property
    def steps(self) -> NDArray[np.int64]:
        """Number of each step along axis 0."""
        return self._table.numbers.copy()

    @property
    def times_ns(self) -> NDArray[np.int64]:
        """When each step committed, nanoseconds since the Unix epoch."""
        return self._table.times_ns.copy()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type, as :attr:`Variable.dtype`."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of steps, then the variable's extents."""
        return (len(self._table), *self._extents)

    @property
    def ndim(self) -> int:
        """Number of dimensions, that of the steps included."""
        return 1 + len(self._extents)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self._dtype.itemsize

    @property
    def dims(self) -> tuple[str, ...] | None:
        """``("step", …)`` with the names that the writer gave in the newest step; None without such names."""
        return None if self._dims is None else ("step", *self._dims)

    def __getitem__(self, index: Index) -> Any:
        """The selected elements.

        Raises
        ------
        IndexError
            An index beyond its axis, or one that is no int, slice or Ellipsis.
        StepGoneError
            A chosen step was dropped, withdrawn or replaced since the series was made; the text says what keeps steps.
        CorruptError
            A block that was to be checked, as ``verify`` says, does not match its checksum.
        """
        selection = select(index, self.shape)  # checks the index, and says what shape the result has
        if self._values is not None:
            return self._values[index]
        place, *rest = _items(index, self.ndim)
        box = tuple(rest)
        if not isinstance(place, slice):
            return self._table.step(place.__index__())[self._name][(*box, ...) if not selection.is_scalar else box]
        places = range(len(self._table))[place]
        if len(places) == 1:
            one: Array = self._table.step(places[0])[self._name][(*box, ...)]
            return one[np.newaxis]
        result = np.zeros(selection.shape, self._dtype)
        for row, position in enumerate(places):
            # Released before the next is taken: one step is pinned at a time.
            with self._table.step(position) as step:
                step[self._name].read((*box, ...), out=result[row, ...])
        return result

    def _seen_without_a_copy(self) -> Array:
        if self._values is None and len(self._table) != 1:
            raise ValueError(f"the steps of {self._name!r} cannot be seen as one array without a copy")
        array: Array = self[...]
        return array

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A table for Polars, DuckDB and others: a row for each step, its columns ``step`` and the variable's name.

        Steps are read when the consumer comes to them; a chunk is the step's own bytes where one block covers the
        variable. Needs ``forebay[arrow]``.
        """
        return series_capsule(self, requested_schema)

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (*self._table.__dask_tokenize__(), self._name)

    def __repr__(self) -> str:
        numbers = self._table.numbers
        return (
            f"<Series {self._name!r} of {self.stream.address}: {self._dtype}, shape {self.shape}, "
            f"steps {numbers[0]} to {numbers[-1]}>"
        )

    def _has_one_value(self) -> bool:
        return False


def series_of(stream: Stream, uuid: str, found: StepsMetadata, name: str) -> Series:
    """The series of a variable over these steps.

    Raises
    ------
    StepNotFoundError
        There are no steps.
    VariableNotFoundError
        A step does not have the variable; the text names the first.
    InvalidArgumentError
        It has another type, kind or shape in a step, which the text names; or it is a local array.
    """
    if not found:
        raise StepNotFoundError(
            "the stream has no steps yet, so its variables are not known: follow it to wait for one",
            f"stream {stream.address}",
        )
    numbers, layouts = found.layout_numbers, found.layouts
    lacking = np.flatnonzero(np.isin(numbers, [place for place, layout in enumerate(layouts) if name not in layout]))
    if lacking.size == len(found):
        raise VariableNotFoundError(
            f"there is no variable {name!r}; the newest step has {', '.join(found[-1]) or 'none'}",
            f"stream {stream.address}",
        )
    if lacking.size:
        raise VariableNotFoundError(
            f"{lacking.size} of {len(found)} kept steps have no variable {name!r}: take the steps that have it one by "
            "one, stream[number][name]",
            f"{stream.address}@{found.numbers[lacking[0]]}, the first of them",
        )
    newest = layouts[numbers[-1]][name]
    for place, layout in enumerate(layouts):
        other = layout[name]
        if (other.kind, other.dtype, other.shape) != (newest.kind, newest.dtype, newest.shape):
            number = found.numbers[np.flatnonzero(numbers == place)[-1]]
            raise InvalidArgumentError(
                f"variable {name!r} is {other.kind} of {other.dtype}, shape {other.shape}, but in the newest step "
                f"{newest.kind} of {newest.dtype}, shape {newest.shape}: take such steps one by one, "
                "stream[number][name]",
                f"{stream.address}@{number}",
            )
    if newest.kind is ShapeKind.LOCAL_ARRAY:
        raise InvalidArgumentError(
            "a local array has no global shape: read its blocks, stream[number][name].block(number)",
            f"stream {stream.address}, variable {name!r}",
        )
    values = None
    if newest.kind is ShapeKind.GLOBAL_VALUE:
        values = found.values(name)
        values.flags.writeable = False
    table = StepTable(
        stream, uuid, found.numbers.astype(np.int64), found.epochs.astype(np.int64), found.times_ns.astype(np.int64)
    )
    return Series(table, name, newest.dtype, newest.shape, found[-1][name].dims, values)


def _items(index: Index, dimensions: int) -> list[Any]:
    """One int or slice for each dimension; the index was checked."""
    items: list[Any] = list(index) if isinstance(index, tuple) else [index]
    places = [place for place, item in enumerate(items) if isinstance(item, EllipsisType)]
    before = items[: places[0]] if places else items
    after = items[places[0] + 1 :] if places else []
    return [*before, *[slice(None)] * (dimensions - len(before) - len(after)), *after]
