# SPDX-License-Identifier: Apache-2.0
"""Metadata of many steps, read in one go: variables, blocks, attributes and single values, without a pin."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from forebay.closing import PublicNames
from forebay.datatypes import (
    CODE_OF_KIND,
    KINDS,
    STRING_DTYPE,
    AttributeValue,
    ShapeKind,
    attribute_from_native,
    dtype_of,
)
from forebay.dimensions import attribute_of, attributes_of, dims_of
from forebay.errors import InvalidArgumentError, VariableNotFoundError
from forebay.notebook import names_shown
from forebay.read_only_dict import ReadOnlyDict
from forebay.records import StepSummary
from forebay.variable import Block, extreme_of

__all__ = ["GatheredSteps", "StepMetadata", "StepsMetadata", "VariableLayout", "VariableMetadata"]

# The records of the native side (bindings/gathered_steps.cpp).
_SUMMARY = np.dtype(
    [
        ("number", np.uint64),
        ("epoch", np.uint32),
        ("incarnation", np.uint32),
        ("time_ns", np.int64),
        ("size_bytes", np.uint64),
        ("pins", np.uint32),
        ("durable", np.bool_),
        ("staged", np.bool_),
        ("precious", np.bool_),
        ("unused", np.uint8),
    ]
)
_BLOCK = np.dtype(
    [
        ("size_bytes", np.uint64),
        ("checksum", np.uint32),
        ("has_checksum", np.bool_),
        ("has_statistics", np.bool_),
        ("unused", np.uint16),
        ("min", "V16"),
        ("max", "V16"),
    ]
)
_SINGLE_VALUES = (CODE_OF_KIND[ShapeKind.GLOBAL_VALUE], CODE_OF_KIND[ShapeKind.LOCAL_VALUE])
_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class VariableLayout:
    """What a variable has in common in steps of one layout."""

    name: str
    dtype: np.dtype[Any]
    kind: ShapeKind
    shape: tuple[int, ...]  #: as :attr:`Variable.shape`
    blocks: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]  #: rank, start and count of each
    first_block: int  #: where its blocks begin among those of a step
    first_value: int  #: where its single values begin: bytes, or texts
    fault: str  #: as :attr:`Variable.fault`


def _layout_of(native: Sequence[tuple[Any, ...]]) -> dict[str, VariableLayout]:
    variables = {}
    first_block = value_bytes = texts = 0
    for name, code, kind, shape, blocks, fault in native:
        dtype = dtype_of(code)
        is_text = dtype is STRING_DTYPE
        variables[name] = VariableLayout(
            name, dtype, KINDS[kind], shape, blocks, first_block, texts if is_text else value_bytes, fault
        )
        first_block += len(blocks)
        if kind in _SINGLE_VALUES:
            if is_text:
                texts += len(blocks)
            else:
                value_bytes += len(blocks) * dtype.itemsize
    return variables


class GatheredSteps:
    """The tables that steps and their variables are rows of."""

    def __init__(
        self,
        summaries: bytes,
        layouts: Sequence[Any],
        attributes: Sequence[Any],
        layout_numbers: bytes,
        attribute_numbers: bytes,
        values: bytes,
        value_offsets: bytes,
        texts: Sequence[str],
        text_offsets: bytes,
        blocks: bytes,
        block_offsets: bytes,
        unreadable: Mapping[tuple[int, str], str],
    ) -> None:
        self.summaries = np.frombuffer(summaries, _SUMMARY)
        self.layouts = [ReadOnlyDict(_layout_of(native)) for native in layouts]
        self.layout_numbers = np.frombuffer(layout_numbers, np.uint32)
        self.attribute_numbers = np.frombuffer(attribute_numbers, np.uint32)
        self.values = np.frombuffer(values, np.uint8)
        self.value_offsets = np.frombuffer(value_offsets, np.uint64).astype(np.intp)
        self.texts = texts
        self.text_offsets = np.frombuffer(text_offsets, np.uint64).astype(np.intp)
        self.blocks = np.frombuffer(blocks, _BLOCK)
        self.block_offsets = np.frombuffer(block_offsets, np.uint64).astype(np.intp)
        self.unreadable = unreadable
        self._attributes = attributes
        self._decoded: dict[int, ReadOnlyDict[str, AttributeValue]] = {}

    def attributes(self, row: int) -> ReadOnlyDict[str, AttributeValue]:
        """The attributes of a step."""
        number = int(self.attribute_numbers[row])
        found = self._decoded.get(number)
        if found is None:
            found = ReadOnlyDict(
                {
                    name: attribute_from_native(code, is_array, data, texts)
                    for name, code, is_array, data, texts in self._attributes[number]
                }
            )
            self._decoded[number] = found
        return found

    def single_values(self, rows: NDArray[np.intp], variable: VariableLayout, position: int = 0) -> NDArray[Any]:
        """One value of this variable for each of these steps, which have its layout.

        ``position``: which of a step's values, where it has several.
        """
        for (row, name), why in self.unreadable.items():
            if name == variable.name and row in rows:
                raise InvalidArgumentError(why, f"step {self.summaries['number'][row]}, variable {name!r}")
        if variable.dtype.kind == "T":
            places = self.text_offsets[rows] + (variable.first_value + position)
            return np.array([self.texts[place] for place in places], STRING_DTYPE)
        size = variable.dtype.itemsize
        places = self.value_offsets[rows] + (variable.first_value + position * size)
        taken = self.values[places[:, np.newaxis] + np.arange(size)]
        result: NDArray[Any] = taken.view(variable.dtype)[:, 0]
        return result


class VariableMetadata(PublicNames):
    """A variable of one step without its data; single values have theirs."""

    __slots__ = ("_layout", "_row", "_tables")

    def __init__(self, tables: GatheredSteps, row: int, layout: VariableLayout) -> None:
        self._tables = tables
        self._row = row
        self._layout = layout

    @property
    def name(self) -> str:
        """Name of the variable."""
        return self._layout.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """As :attr:`Variable.dtype`."""
        return self._layout.dtype

    @property
    def kind(self) -> ShapeKind:
        """As :attr:`Variable.kind`."""
        return self._layout.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """As :attr:`Variable.shape`."""
        return self._layout.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._layout.shape)

    @property
    def dims(self) -> tuple[str, ...] | None:
        """As :attr:`Variable.dims`."""
        dimensions = self.ndim
        if self.kind is ShapeKind.LOCAL_ARRAY:
            dimensions = len(self._layout.blocks[0][2]) if self._layout.blocks else 0
        return dims_of(self._tables.attributes(self._row).get(attribute_of(self.name)), dimensions)

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """As :attr:`Variable.attributes`."""
        return attributes_of(self.name, self._tables.attributes(self._row), self.dims)

    @property
    def blocks(self) -> list[Block]:
        """The blocks in order of rank, then of writing."""
        first = int(self._tables.block_offsets[self._row]) + self._layout.first_block
        facts = self._tables.blocks[first : first + len(self._layout.blocks)].tolist()
        blocks = []
        for (rank, start, count), fact in zip(self._layout.blocks, facts, strict=True):
            size_bytes, checksum, has_checksum, has_statistics, _, low, high = fact
            blocks.append(
                Block(
                    rank,
                    start,
                    count,
                    size_bytes,
                    self._element(low) if has_statistics else None,
                    self._element(high) if has_statistics else None,
                    checksum if has_checksum else None,
                )
            )
        return blocks

    @property
    def fault(self) -> str:
        """As :attr:`Variable.fault`."""
        return self._layout.fault

    @property
    def min(self) -> Any:
        """As :attr:`Variable.min`."""
        return extreme_of(self.blocks, self.dtype, largest=False)

    @property
    def max(self) -> Any:
        """As :attr:`Variable.max`."""
        return extreme_of(self.blocks, self.dtype, largest=True)

    @property
    def value(self) -> Any:
        """The scalar or text of a single value; of local values an array with one for each block.

        Raises
        ------
        InvalidArgumentError
            It is an array, whose elements are not among the metadata: read ``stream[number][name]``.
        """
        rows = np.array([self._row])
        if self.kind is ShapeKind.GLOBAL_VALUE:
            return self._tables.single_values(rows, self._layout)[0]
        if self.kind is ShapeKind.LOCAL_VALUE:
            count = self._layout.shape[0]
            values = [self._tables.single_values(rows, self._layout, position)[0] for position in range(count)]
            return np.array(values, self.dtype)
        raise InvalidArgumentError(
            f"it is a {self.kind}, not a single value: its elements are read by stream[number][name]",
            f"variable {self.name!r}",
        )

    def _element(self, statistics: bytes) -> Any:
        return np.frombuffer(statistics, self.dtype, 1)[0]

    def __repr__(self) -> str:
        return f"<VariableMetadata {self.name!r}: {self.kind} of {self.dtype}, shape {self.shape}>"


class StepMetadata(PublicNames, Mapping[str, VariableMetadata]):
    """What one step says of itself: a mapping of variable names to :class:`VariableMetadata`. Holds no pin."""

    __slots__ = ("_row", "_tables")

    def __init__(self, tables: GatheredSteps, row: int) -> None:
        self._tables = tables
        self._row = row

    @property
    def number(self) -> int:
        """Number of the step."""
        return int(self._tables.summaries["number"][self._row])

    @property
    def epoch(self) -> int:
        """The stream's epoch that it belongs to."""
        return int(self._tables.summaries["epoch"][self._row])

    @property
    def summary(self) -> StepSummary:
        """Commit time, size and watermarks as they were when it was read."""
        fields = self._tables.summaries[self._row]
        return StepSummary(**{name: fields[name].item() for name in _SUMMARY.names or () if name != "unused"})

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        """Attributes as of this step."""
        return self._tables.attributes(self._row)

    def __getitem__(self, name: str) -> VariableMetadata:
        layout = self._variables.get(name)
        if layout is None:
            raise VariableNotFoundError(
                f"there is no variable {name!r}; the step has {names_shown(tuple(self._variables))}",
                f"step {self.number}",
            )
        return VariableMetadata(self._tables, self._row, layout)

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    # A mapping would compare by its items and be unhashable.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<StepMetadata of step {self.number}, epoch {self.epoch}: {names_shown(tuple(self))}>"

    @property
    def _variables(self) -> dict[str, VariableLayout]:
        return self._tables.layouts[int(self._tables.layout_numbers[self._row])]


class StepsMetadata(PublicNames, Sequence[StepMetadata]):
    """The metadata of many steps, in the order asked for; made by :meth:`Stream.steps_at`. Holds no pin; pickles.

    >>> steps = stream.steps_at()
    >>> time = steps.values("time")  # one number for each step
    >>> shapes = [step["T"].shape for step in steps]
    """

    __slots__ = ("_rows", "_tables")

    def __init__(self, tables: GatheredSteps, rows: NDArray[np.intp] | None = None) -> None:
        self._tables = tables
        self._rows = np.arange(len(tables.summaries)) if rows is None else rows

    @property
    def numbers(self) -> NDArray[np.uint64]:
        """Number of each step."""
        return self._column("number")

    @property
    def epochs(self) -> NDArray[np.uint32]:
        """Epoch of each step."""
        return self._column("epoch")

    @property
    def times_ns(self) -> NDArray[np.int64]:
        """When each step committed, nanoseconds since the Unix epoch."""
        return self._column("time_ns")

    @property
    def layouts(self) -> tuple[Mapping[str, VariableLayout], ...]:
        """What variables and blocks there are, once for all steps that agree in it; :attr:`layout_numbers` says which.

        A stream whose variables keep their shapes has one layout, however many steps.
        """
        return tuple(self._tables.layouts)

    @property
    def layout_numbers(self) -> NDArray[np.uint32]:
        """Position in :attr:`layouts` of each step's layout."""
        return self._tables.layout_numbers[self._rows]

    @property
    def attribute_numbers(self) -> NDArray[np.uint32]:
        """A number for each step that is the same for steps whose attributes are all the same."""
        return self._tables.attribute_numbers[self._rows]

    def values(self, name: str, *, missing: Any = _REQUIRED) -> NDArray[Any]:
        """The single value ``name`` of each step, as one array.

        Parameters
        ----------
        missing : optional
            What stands for steps without the variable. Not given: every step must have it.

        Raises
        ------
        VariableNotFoundError
            A step does not have it; the text names the first.
        InvalidArgumentError
            It is no global single value in every step, or its type changes.
        """
        numbers = self.layout_numbers
        parts: list[tuple[NDArray[np.intp], NDArray[Any]]] = []
        for number in np.unique(numbers):
            positions = np.flatnonzero(numbers == number)
            variable = self._tables.layouts[number].get(name)
            first = f"step {self.numbers[positions[0]]}"
            if variable is None:
                if missing is _REQUIRED:
                    raise VariableNotFoundError(
                        f"there is no variable {name!r}; give missing= for steps without it", first
                    )
                continue
            if variable.kind is not ShapeKind.GLOBAL_VALUE:
                raise InvalidArgumentError(f"variable {name!r} is a {variable.kind}, not a single value", first)
            if parts and parts[0][1].dtype != variable.dtype:
                raise InvalidArgumentError(
                    f"variable {name!r} is {variable.dtype} here and {parts[0][1].dtype} in other steps", first
                )
            parts.append((positions, self._tables.single_values(self._rows[positions], variable)))
        if not parts:
            return np.full(len(self), missing) if len(self) else np.empty(0)
        result = np.empty(len(self), parts[0][1].dtype)
        if sum(len(positions) for positions, _ in parts) < len(self):
            result[...] = missing
        for positions, values in parts:
            result[positions] = values
        return result

    @overload
    def __getitem__(self, index: SupportsIndex) -> StepMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> StepsMetadata: ...
    def __getitem__(self, index: SupportsIndex | slice) -> StepMetadata | StepsMetadata:
        if isinstance(index, slice):
            return StepsMetadata(self._tables, self._rows[index])
        return StepMetadata(self._tables, int(self._rows[operator.index(index)]))

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<StepsMetadata of {len(self)} steps>"

    def _column(self, name: str) -> NDArray[Any]:
        column: NDArray[Any] = self._tables.summaries[name][self._rows]
        return column
