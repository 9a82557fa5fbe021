# SPDX-License-Identifier: Apache-2.0
"""One rank's part of a step while it is being written: variables, blocks in place, attributes."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from forebay import _core
from forebay.closing import PublicNames
from forebay.datatypes import (
    CODE_OF_KIND,
    AttributeValue,
    ShapeKind,
    attribute_to_native,
    code_of,
    dtype_of,
    joined_dimension,
    kind_of,
    plain_array,
)
from forebay.dimensions import attribute_of, checked_dims
from forebay.errors import ArgumentTypeError, ForebayError, InvalidArgumentError, UnavailableError
from forebay.memory import array_over
from forebay.options import integer, known_options, text

if TYPE_CHECKING:
    from forebay.writable_stream import WritableStream

__all__ = ["AttributesBeingWritten", "StepBeingWritten", "note_failure"]


class AttributesBeingWritten(PublicNames, MutableMapping[str, AttributeValue]):
    """Attributes that this writer set. Setting one makes it part of every step from the open (or next) one on.

    Values are a str, a number, a NumPy scalar, or a one-dimensional sequence of str or numbers. An attribute of one
    variable is named ``"variable/attribute"`` by convention.
    """

    def __init__(self, native: _core.Writer) -> None:
        self._core = native
        self._values: dict[str, AttributeValue] = {}

    def __setitem__(self, name: str, value: AttributeValue) -> None:
        self._core.set_attribute(name, *attribute_to_native(name, value))
        self._values[name] = value

    def __getitem__(self, name: str) -> AttributeValue:
        return self._values[name]

    def __delitem__(self, name: str) -> None:
        self._core.remove_attribute(name)
        self._values.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class StepBeingWritten(PublicNames):
    """One rank's part of the open step; made by :meth:`WritableStream.step`, used as a context manager.

    Leaving ``with`` commits the step for all ranks (``end``); leaving it by an exception aborts it: nobody ever sees
    it.
    """

    def __init__(self, stream: WritableStream, native: _core.Writer, number: int | None = None) -> None:
        self._stream = stream
        self._core = native
        self._allocations: list[tuple[_core.Memory, NDArray[Any]]] = []
        self._dims: dict[str, tuple[str, ...]] = {}  # that this rank gave in this step
        self._accepts_blocks = True
        self._over = False
        self.number = native.begin_step(number)
        stream._open_step = self.number

    @property
    def attributes(self) -> AttributesBeingWritten:
        """Attributes; see :class:`AttributesBeingWritten`."""
        return self._stream.attributes

    def __setitem__(self, name: str, value: ArrayLike) -> None:
        """Writes a str or a scalar as a single value, and an array as a global array of its own shape.

        In a group of several ranks an array is the *whole* variable: either one rank writes it, or each rank writes its
        block by :meth:`write`.

        Raises
        ------
        InvalidArgumentError
            This rank wrote the variable before in this step, or its type cannot be stored, or it is a masked array with
            masked elements.
        """
        self._check_open()
        text("the name of a variable", name)
        if isinstance(value, str):
            self._core.put_string(name, CODE_OF_KIND[ShapeKind.GLOBAL_VALUE], value)
            return
        array = plain_array(value, name)
        if array.ndim == 0:
            self._put(name, array, ShapeKind.GLOBAL_VALUE, (), ())
        else:
            self._put(name, array, ShapeKind.GLOBAL_ARRAY, array.shape, (0,) * array.ndim)

    @known_options
    def write(
        self,
        name: str,
        block: ArrayLike,
        *,
        shape: Sequence[int] | None = None,
        start: Sequence[int] | None = None,
        kind: ShapeKind | str | None = None,
        dims: Sequence[str] | None = None,
    ) -> None:
        """Writes one block of a variable. When it returns, the array may be reused.

        Parameters
        ----------
        name : str
            Name of the variable.
        block : array_like
            The block's elements. A C-contiguous array, or a slice of one with step 1 (ghost cells cut off), is written
            without an intermediate copy. An array of size 0 is an empty block.
        shape : sequence of int, optional
            The global shape; of a joined array with ``joined_dimension`` in place of the joined extent.
        start : sequence of int, optional
            Where the block lies in the global shape; zeros if not given.
        kind : ShapeKind or str, optional
            Not given: ``global_value`` for a scalar, ``joined_array`` if the shape has the joined dimension, else
            ``global_array`` (without ``shape``: of the block's own shape). ``local_array`` and ``joined_array`` take
            blocks that need no place; ``local_value`` takes one scalar or str per rank.
        dims : sequence of str, optional
            Names of the dimensions, slowest first, for example ``("z", "y", "x")``; readers get them as
            ``variable.dims``. They hold for later steps too, until others are given.

        Raises
        ------
        InvalidArgumentError
            Type, dimensions or their names that do not fit each other, or an earlier block of this step; or an element
            that this rank wrote before in this step. Cut ghost cells off: readers would not know which block is right.
        ArgumentTypeError
            An option has the wrong type, or there is none of that name.
        NoSpaceError
            The reservation is full and the stream's options say not to wait, or waiting did not help.
        GroupBrokenError, FencedError
            The step does not exist: a rank was lost, or a newer group writes.
        """
        self._check_open()
        text("the name of a variable", name)
        if isinstance(block, str):
            chosen = kind_of(kind) if kind is not None else ShapeKind.GLOBAL_VALUE
            if chosen not in (ShapeKind.GLOBAL_VALUE, ShapeKind.LOCAL_VALUE):
                raise InvalidArgumentError("a text is a global_value or a local_value", f"variable {name!r}")
            self._check_dims(name, dims, 0)
            self._core.put_string(name, CODE_OF_KIND[chosen], block)
            return
        array = plain_array(block, name)
        chosen, whole, place = placement(name, array.shape, shape, start, kind)
        names = self._check_dims(name, dims, array.ndim)
        self._put(name, array, chosen, whole, place)
        self._set_dims(name, names)

    @known_options
    def allocate(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DTypeLike = np.float64,
        *,
        start: Sequence[int] | None = None,
        count: Sequence[int] | None = None,
        kind: ShapeKind | str | None = None,
        dims: Sequence[str] | None = None,
    ) -> NDArray[Any]:
        """A block to compute in place: a writable, page-aligned array on the step's own storage, never copied.

        Parameters
        ----------
        shape : sequence of int
            The global shape; for local arrays the block's.
        dtype : dtype
            Element type.
        start, count : sequence of int, optional
            Which block of the shape this is; the whole shape if not given.
        dims : sequence of str, optional
            Names of the dimensions, as in :meth:`write`.

        Returns
        -------
        ndarray
            Its content is undefined until written. When the step ends it becomes read-only, and while it is held the
            step is pinned: its space is not used again, whatever retention drops, and a writer that finds the
            reservation full waits for it. The memory itself is protected: drop slices taken from it before, because a
            write through one of them after the end is a fault (SIGSEGV), not an exception.

        Raises
        ------
        InvalidArgumentError, NoSpaceError, GroupBrokenError, FencedError, ArgumentTypeError
            As in :meth:`write`.
        """
        self._check_open()
        text("the name of a variable", name)
        native_type = np.dtype(dtype)
        code = code_of(native_type, name)
        extents = _extents("shape", shape) if count is None else _extents("count", count)
        whole_given = None if kind is not None and kind_of(kind) is ShapeKind.LOCAL_ARRAY else shape
        chosen, whole, place = placement(name, extents, whole_given, start, kind)
        names = self._check_dims(name, dims, len(extents))
        memory = self._core.allocate(name, code, CODE_OF_KIND[chosen], whole, place, extents)
        self._set_dims(name, names)
        if 0 in extents:
            return np.empty(extents, dtype_of(code))
        array = array_over(memory, extents, dtype_of(code))
        self._allocations.append((memory, array))
        return array

    def end(self) -> None:
        """Publishes this rank's part; returns when the step has committed (or is durable) for all ranks.

        After an interrupt (Ctrl-C) it may be called again: it continues to wait.
        """
        if self._over:
            self._check_open()
        self._seal()
        try:
            self._core.end_step()
        except InvalidArgumentError as error:
            # Refused for all ranks: nothing is left that could be ended later.
            try:
                self.abort()
            except Exception as failure:  # the first error is the one to report
                error.add_note(f"and the step could not be aborted: {failure}")
            raise
        self._over = True
        self._stream._open_step = None

    def abort(self) -> None:
        """Gives the step up; all ranks of the group must. Its number is used again. Idempotent after ``end``."""
        if not self._over:
            self._seal()
            self._core.abort_step()
            self._over = True
            self._stream._open_step = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over:
            return
        if error is None:
            try:
                self.end()
            except UnavailableError as failure:
                # Some of it was lost with a member: nothing but another attempt will do, which begins with a step.
                self._abort_after(failure)
                raise
            return
        note_failure(self._core, error)
        self._abort_after(error)

    def _abort_after(self, error: BaseException) -> None:
        try:
            self.abort()
        except Exception as failure:  # the first error is the one to report
            error.add_note(f"and the step could not be aborted: {failure}")

    def __repr__(self) -> str:
        return f"<StepBeingWritten {self._stream.address}@{self.number}, {'open' if self._accepts_blocks else 'over'}>"

    def _put(self, name: str, array: NDArray[Any], kind: ShapeKind, shape: Sequence[int], start: Sequence[int]) -> None:
        code = code_of(array.dtype, name)
        if not array.dtype.isnative:
            array = array.astype(dtype_of(code))
        kind_code = CODE_OF_KIND[kind]
        if not self._core.put(name, code, kind_code, shape, start, array):
            # The strides are not those of a box in a C-ordered array.
            self._core.put(name, code, kind_code, shape, start, np.ascontiguousarray(array))

    def _check_dims(self, name: str, dims: Sequence[str] | None, dimensions: int) -> tuple[str, ...] | None:
        if dims is None:
            return None
        names = checked_dims(name, dims, dimensions)
        before = self._dims.get(name, names)
        if names != before:
            raise InvalidArgumentError(f"dims were {before!r} in an earlier block of this step", f"variable {name!r}")
        return names

    def _set_dims(self, name: str, names: tuple[str, ...] | None) -> None:
        if not names:
            return
        self._dims[name] = names
        attribute = attribute_of(name)
        if self.attributes.get(attribute) != names:
            self.attributes[attribute] = names

    def _seal(self) -> None:
        self._accepts_blocks = False
        for memory, array in self._allocations:
            array.flags.writeable = False
            memory.seal()
        self._allocations.clear()

    def _check_open(self) -> None:
        if not self._accepts_blocks:
            raise ValueError(f"step {self._stream.address}@{self.number} is over: open the next one with stream.step()")


def note_failure(native: _core.Writer, error: BaseException) -> None:
    """The reason that others read if the writer now ends without ``close``."""
    what = f"{type(error).__name__}: {error}".removesuffix(": ")
    # The exception itself is the one to report.
    with suppress(ForebayError):
        native.note_failure(what.encode("utf-8", "replace").decode())


def placement(
    name: str,
    count: tuple[int, ...],
    shape: Sequence[int] | None,
    start: Sequence[int] | None,
    kind: ShapeKind | str | None,
) -> tuple[ShapeKind, tuple[int, ...], tuple[int, ...]]:
    """Kind, shape and start of a block as the native side wants them; what was not given is derived."""
    whole = None if shape is None else _extents("shape", shape)
    place = None if start is None else _extents("start", start)
    if kind is not None:
        chosen = kind_of(kind)
    elif whole is not None and joined_dimension in whole:
        chosen = ShapeKind.JOINED_ARRAY
    elif not count and not whole:
        chosen = ShapeKind.GLOBAL_VALUE
    else:
        chosen = ShapeKind.GLOBAL_ARRAY
    if chosen is ShapeKind.GLOBAL_ARRAY:
        whole = count if whole is None else whole
        return chosen, whole, (0,) * len(whole) if place is None else place
    if place is not None:
        raise InvalidArgumentError(
            f"a {chosen} has no start: only blocks of global arrays have a place", f"variable {name!r}"
        )
    if chosen is ShapeKind.JOINED_ARRAY:
        return chosen, (joined_dimension, *count[1:]) if whole is None else whole, ()
    if whole:
        raise InvalidArgumentError(f"a {chosen} has no global shape", f"variable {name!r}")
    return chosen, (), ()


def _extents(option: str, extents: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(integer(f"each number of {option}", extent) for extent in extents)
    except ArgumentTypeError:
        raise
    except TypeError:
        raise ArgumentTypeError(f"{option} is a sequence of whole numbers, not {extents!r}") from None
