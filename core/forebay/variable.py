# SPDX-License-Identifier: Apache-2.0
"""A variable of one step: what it is, its blocks, and its data by NumPy's basic indexing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.array_operators import ArrayOperators
from forebay.array_selection import ArraySelection, Index, select
from forebay.arrow_export import array_capsules
from forebay.datatypes import CODE_OF_KIND, KINDS, STRING_DTYPE, AttributeValue, ShapeKind, dtype_of
from forebay.dimensions import attribute_of, attributes_of, dims_of
from forebay.errors import CopyNeededError, FaultyVariableWarning, ForebayError, InvalidArgumentError
from forebay.memory import array_over
from forebay.notebook import value_shown, variable_html

if TYPE_CHECKING:
    from forebay.step import Step

__all__ = ["Block", "Variable", "extreme_of"]

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Block:
    """What one rank wrote of a variable in one step."""

    rank: int
    start: tuple[int, ...]  #: in the global shape; empty for local arrays and values
    count: tuple[int, ...]
    size_bytes: int
    min: Any  #: smallest element (a NumPy scalar), or None without statistics
    max: Any  #: largest element, or None
    checksum: int | None  #: CRC-32C of the block's bytes in C order, or None


class Variable(ArrayOperators):
    """A variable of one step. Obtained by ``step["name"]``; usable from any thread; pickles by address.

    ``variable[index]`` takes ints, slices (with steps, also negative) and Ellipsis, as NumPy does. Where one block
    covers the selection the result is a read-only view of the step's bytes - no copy, whatever its size - that keeps
    the step pinned until it dies; else it is a new array, in which parts that no block covers are zero.
    ``variable[...]`` is always an array, ``variable[()]`` of a single value the scalar itself.

    A single value behaves as its number or text: ``step["n"] == 5``, ``if step["converged"]``,
    ``f"{step['time']:.3f}"``. With dimensions, arithmetic, comparison and NumPy's functions act on the elements and
    give NumPy arrays; each such use reads the variable, so take ``variable[...]`` once where it is used often.
    Variables are no keys of a dict: use :attr:`identity`.
    """

    __slots__ = ("_code", "_index", "_kind", "_name", "_shape", "_step")

    def __init__(self, step: Step, index: int, name: str, code: int, kind: int, shape: tuple[int, ...]) -> None:
        self._step = step
        self._index = index
        self._name = name
        self._code = code
        self._kind = kind
        self._shape = shape

    @property
    def name(self) -> str:
        """Name of the variable."""
        return self._name

    @property
    def step(self) -> Step:
        """The step that it belongs to."""
        return self._step

    @property
    def identity(self) -> tuple[str, str, int, str]:
        """Of the step (:attr:`Step.identity`), and the name: a key for dicts and caches."""
        return (*self._step.identity, self._name)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type; ``StringDType`` for strings and ``S1`` for C++ char."""
        return dtype_of(self._code)

    @property
    def kind(self) -> ShapeKind:
        """How the blocks make up the whole."""
        return KINDS[self._kind]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, slowest dimension first.

        ``()`` for single values and local arrays, ``(blocks,)`` for local values.
        """
        return self._shape

    @property
    def dims(self) -> tuple[str, ...] | None:
        """Names of the dimensions, slowest first; None where the writer gave none.

        For local arrays those of each block.
        """
        dimensions = self.ndim
        if self.kind is ShapeKind.LOCAL_ARRAY:
            dimensions = len(self.blocks[0].count) if self.blocks else 0
        return dims_of(self._step.attributes.get(attribute_of(self._name)), dimensions)

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """The variable's attributes by name, ``units`` for example: the step's ``VARIABLE/units``. Read-only.

        The names of its dimensions are not among them: :attr:`dims`.
        """
        return attributes_of(self._name, self._step.attributes, self.dims)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Number of elements; for local arrays the sum over the blocks."""
        if self.kind is ShapeKind.LOCAL_ARRAY:
            return sum(_product(block.count) for block in self.blocks)
        return _product(self._shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; for strings the bytes of the texts."""
        if self.dtype is STRING_DTYPE:
            return sum(block.size_bytes for block in self.blocks)
        return self.size * self.dtype.itemsize

    @property
    def blocks(self) -> list[Block]:
        """The blocks in order of rank, then of writing."""
        return [self._block_of(*fields) for fields in self._step._native().blocks(self._index)]

    @property
    def fault(self) -> str:
        """What is wrong with it, or "".

        Blocks of a global array overlap, or leave elements out. Or ranks wrote things under this name that do not go
        together, so that it cannot be read.
        """
        return self._step._native().fault(self._index)

    @property
    def min(self) -> Any:
        """Smallest element of all blocks; None where a block has no statistics or there is no element."""
        return extreme_of(self.blocks, self.dtype, largest=False)

    @property
    def max(self) -> Any:
        """Largest element of all blocks; None where a block has no statistics or there is no element."""
        return extreme_of(self.blocks, self.dtype, largest=True)

    def __getitem__(self, index: Index) -> Any:
        selection = select(index, self._whole())
        array = self._view(selection)
        if array is None:
            array = self._copy(selection)
        if self._shape and self._name not in self._step._stream._looked_at:
            self._tell_fault()
        return array[()] if selection.is_scalar else array

    def view(self, index: Index = ...) -> Array:
        """The selection as a read-only view without a copy.

        Raises
        ------
        CopyNeededError
            No single block covers the selection, or the step is not pinned: use ``variable[index]``.
        """
        array = self._view(select(index, self._whole()))
        if array is None:
            raise CopyNeededError(
                "a view needs one block that covers the selection, in a pinned step: variable[index] copies if need be",
                f"{self._step.address}, variable {self._name!r}",
            )
        return array

    def read(self, index: Index = ..., *, out: Array | None = None) -> Array:
        """Copies the selection into ``out`` or into a new array.

        Parameters
        ----------
        out : ndarray, optional
            Writable, of the variable's dtype and the selection's shape. Parts of the selection that no
            block covers keep what they held.

        Returns
        -------
        ndarray
            ``out``, or a new array that has zeros where no block covers it.

        Raises
        ------
        InvalidArgumentError
            ``out`` does not fit.
        CorruptError
            A block that was to be checked, as ``verify`` says, does not match its checksum.
        StepGoneError
            The step was not pinned and has been dropped meanwhile.
        """
        selection = select(index, self._whole())
        if self._shape and self._name not in self._step._stream._looked_at:
            self._tell_fault()
        if out is None:
            return self._copy(selection)
        if out.shape != selection.shape or out.dtype != self.dtype or not out.flags.writeable:
            raise InvalidArgumentError(
                f"out must be a writable array of shape {selection.shape} and type {self.dtype}",
                f"variable {self._name!r}",
            )
        if not self._shape or self.dtype is STRING_DTYPE:
            out[...] = self._copy(selection)
        elif out.size:
            native = self._step._native()
            if selection.rest is not None or not native.read(self._index, selection.start, selection.count, out):
                rest = ... if selection.rest is None else selection.rest
                box = np.empty(selection.count, self.dtype)
                box[rest] = out
                native.read(self._index, selection.start, selection.count, box)
                out[...] = box[rest]
        return out

    def block(self, number: int, index: Index = ...) -> Any:
        """One block's elements, indexed relative to the block's own start; a read-only view where the step is pinned.

        Raises
        ------
        IndexError
            There is no such block, or the index lies outside it.
        """
        native = self._step._native()
        count = native.block_count(self._index, number)
        if self.dtype is STRING_DTYPE:
            text: str = native.read_string(self._index, number)
            return np.array(text, STRING_DTYPE)[index]
        selection = select(index, count)
        array: Array | None = None
        if 0 in selection.count:
            array = np.empty(selection.count, self.dtype)
        elif (found := native.view_block(self._index, number, selection.start, selection.count)) is not None:
            memory, strides = found
            array = array_over(memory, selection.count, self.dtype, strides)
        else:
            array = np.empty(selection.count, self.dtype)
            native.read_block(self._index, number, selection.start, selection.count, array)
        result = array if selection.rest is None else array[selection.rest]
        return result[()] if selection.is_scalar else result

    def verify(self) -> None:
        """Checks the CRC-32C of every block.

        Raises
        ------
        CorruptError
            Names the block and its place.
        UnsupportedError
            A block was written without a checksum.
        """
        self._step._native().verify(self._index)

    def item(self) -> Any:
        """The only element as a plain Python number or str."""
        return self[...].item()

    def _seen_without_a_copy(self) -> Array:
        return self.view()

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The elements for ``from_dlpack`` of another library: the step's own bytes where one block covers them.

        They are flagged as read-only, which takes DLPack 1.0: a consumer that does not ask for it gets BufferError, and
        so does one that refuses a copy where several blocks have to be put together.
        """
        try:
            array = self.view() if copy is False else self[...]
        except CopyNeededError as error:
            raise BufferError(str(error)) from None
        return array.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the processor's memory

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """The elements along the first dimension for Polars and others: numbers, or tensors of the other dimensions.

        They are the step's own bytes where one block covers the variable, and keep the step pinned. Needs
        ``forebay[arrow]``.
        """
        return array_capsules(self, requested_schema)

    def __repr__(self) -> str:
        text = f"<Variable {self._name!r} of {self._step.address}: "
        try:
            if self._has_one_value():
                return f"{text}{self.kind} of {self.dtype}, {value_shown(self[()])}>"
            blocks, dims = self.blocks, self.dims
        except (ForebayError, ValueError) as error:  # it was not pinned and is gone, or the step was released
            return f"{text}{error}>"
        named = "" if dims is None else f" ({', '.join(dims)})"
        low, high = (extreme_of(blocks, self.dtype, largest=largest) for largest in (False, True))
        extremes = "" if low is None else f", from {value_shown(low)} to {value_shown(high)}"
        counted = "1 block" if len(blocks) == 1 else f"{len(blocks)} blocks"
        return f"{text}{self.kind} of {self.dtype}, shape {self._shape}{named}, {counted}{extremes}>"

    def _repr_html_(self) -> str:
        """For notebooks: type, shape, dimensions, extremes, and the blocks."""
        try:
            return variable_html(self)
        except ValueError:  # the step was released
            return escape(repr(self))

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("forebay", *self.identity)

    def _tell_fault(self) -> None:
        """Once for each stream and name."""
        self._step._stream._looked_at.add(self._name)
        if fault := self.fault:
            warnings.warn(f"variable {self._name[:64]!r} of {self._step.address}: {fault}", FaultyVariableWarning, 3)

    def _has_one_value(self) -> bool:
        return not self._shape and self._kind != _LOCAL_ARRAY

    def __reduce__(self) -> tuple[Any, ...]:
        return _variable_of, (self._step, self._name)

    def _whole(self) -> tuple[int, ...]:
        if self._kind == _LOCAL_ARRAY:
            raise InvalidArgumentError(
                "a local array has no global shape: read its blocks one by one, variable.block(number)",
                f"variable {self._name!r}",
            )
        return self._shape

    def _view(self, selection: ArraySelection) -> Array | None:
        dtype = dtype_of(self._code)
        if 0 in selection.count:
            array = np.empty(selection.count, dtype)
            array.flags.writeable = False
        elif not self._shape or dtype is STRING_DTYPE:
            return None
        else:
            found = self._step._native().view(self._index, selection.start, selection.count)
            if found is None:
                return None
            memory, strides = found
            array = array_over(memory, selection.count, dtype, strides)
        return array if selection.rest is None else array[selection.rest]

    def _copy(self, selection: ArraySelection) -> Array:
        native = self._step._native()
        dtype = dtype_of(self._code)
        if dtype is STRING_DTYPE:
            if not self._shape:
                return np.array(native.read_string(self._index, 0), STRING_DTYPE)
            texts = np.array(
                [native.read_string(self._index, number) for number in range(self._shape[0])], STRING_DTYPE
            )
            box: Array = texts[selection.start[0] : selection.start[0] + selection.count[0]]
            return box if selection.rest is None else box[selection.rest]
        if not self._shape:
            value = np.empty((), dtype)
            native.read_value(self._index, 0, value)
            return value
        array = np.zeros(selection.count, dtype)
        if array.size:
            native.read(self._index, selection.start, selection.count, array)
        if selection.rest is None:
            return array
        # A copy, so that a sparse selection does not keep its whole box alive.
        return np.array(array[selection.rest])

    def _block_of(
        self,
        rank: int,
        start: tuple[int, ...],
        count: tuple[int, ...],
        size_bytes: int,
        statistics: tuple[bytes, bytes] | None,
        checksum: int | None,
    ) -> Block:
        if statistics is None:
            return Block(rank, start, count, size_bytes, None, None, checksum)
        low, high = (np.frombuffer(data, self.dtype, 1)[0] for data in statistics)
        return Block(rank, start, count, size_bytes, low, high, checksum)


def extreme_of(blocks: Sequence[Block], dtype: np.dtype[Any], *, largest: bool) -> Any:
    """Smallest or largest element of these blocks; None where one has no statistics or there is no element."""
    values = []
    for block in blocks:
        if 0 in block.count:
            continue
        if block.min is None:
            return None
        values.append(block.max if largest else block.min)
    if not values:
        return None
    if dtype.kind == "S":
        return max(values) if largest else min(values)
    # fmax and fmin pass over NaN, as the blocks' own statistics do.
    return np.fmax.reduce(values) if largest else np.fmin.reduce(values)


_LOCAL_ARRAY = CODE_OF_KIND[ShapeKind.LOCAL_ARRAY]


def _product(extents: Sequence[int]) -> int:
    result = 1
    for extent in extents:
        result *= extent
    return result


def _variable_of(step: Step, name: str) -> Variable:
    return step[name]
