# SPDX-License-Identifier: Apache-2.0
"""The steps of a stream as one table, and its variables as arrays over them: what several connectors present.

A table is a snapshot. It knows each step by the stream's uuid, the epoch and the number, also in another process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay import Address, ShapeKind, Step, StepGoneError, StepNotFoundError, Stream, Variable

__all__ = ["ArrayOverSteps", "StepTable", "StreamTable", "block_grid", "dimension_names", "group_of"]

Array = NDArray[Any]


class StepTable:
    """The steps that a table is of. Pickles by identity; the other process opens the stream for itself.

    Attributes
    ----------
    stream : Stream
        Where steps are taken from.
    uuid : str
        Of the stream.
    numbers, epochs, times_ns : array of int64
        Number, epoch and commit time (nanoseconds since the Unix epoch) of each step.
    """

    def __init__(self, stream: Stream, uuid: str, numbers: Array, epochs: Array, times_ns: Array) -> None:
        self.stream = stream
        self.uuid = uuid
        self.numbers = numbers
        self.epochs = epochs
        self.times_ns = times_ns

    def __len__(self) -> int:
        return len(self.numbers)

    def step(self, index: int) -> Step:
        """The step at a place in the table.

        Raises
        ------
        StepGoneError
            It was dropped, withdrawn or replaced since the table was made.
        """
        number, epoch = int(self.numbers[index]), int(self.epochs[index])
        try:
            step = self.stream[number]
        except (StepGoneError, StepNotFoundError) as error:
            raise StepGoneError(f"{error.what}; {self._advice()}", f"{self.stream.address}@{number}") from None
        if step.epoch != epoch:
            raise StepGoneError(
                f"the step of epoch {epoch} was withdrawn or replaced; the stream now has one of epoch {step.epoch}: "
                "open the stream again",
                str(step.address),
            )
        return step

    def close(self) -> None:
        """Closes the stream's handle. Arrays that were read stay."""
        self.stream.close()

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return ("forebay", self.uuid, self.numbers.tobytes(), self.epochs.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened_table, (self.stream.address.path, self.uuid, self.numbers, self.epochs, self.times_ns)

    def _advice(self) -> str:
        retention = self.stream.info.retention
        return (
            f"the stream's retention is {str(retention)!r}: to keep steps while they are read, set one that waits for "
            "a consumer (consumers:NAME) or keeps more of them (last:N), then open the stream again"
        )


# Streams that unpickled tables brought to this process: those of one stream share one connection.
_streams: WeakValueDictionary[tuple[str, str, str], Stream] = WeakValueDictionary()


def _reopened_table(path: str, uuid: str, numbers: Array, epochs: Array, times_ns: Array) -> StepTable:
    key = (forebay.server_socket(), path, uuid)
    stream = _streams.get(key)
    if stream is None:
        stream = forebay.open(path, timeout=0)
        found = stream.info.uuid
        if found != uuid:
            raise StepGoneError(
                f"the stream of uuid {uuid} was removed; another one of that name exists now (uuid {found}): open the "
                "stream again",
                f"stream {path}",
            )
        _streams[key] = stream
    return StepTable(stream, uuid, numbers, epochs, times_ns)


@dataclass(frozen=True)
class ArrayOverSteps:
    """A variable of all steps of a table as one array, read when it is indexed.

    Attributes
    ----------
    steps : StepTable
        The first dimension.
    name : str
        Of the variable.
    extents : tuple of int
        Shape in each step.
    dtype : dtype
        Element type.
    dims : tuple of str
        Names of the variable's own dimensions.
    grid : tuple of tuple of int, optional
        Extents of the blocks along each dimension, where they make up a grid in the first and the last step.
    attributes : mapping
        Attributes of the variable: the stream's ``NAME/...`` without the prefix.
    """

    steps: StepTable
    name: str
    extents: tuple[int, ...]
    dtype: np.dtype[Any]
    dims: tuple[str, ...]
    grid: tuple[tuple[int, ...], ...] | None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Steps first, then the extents in each step."""
        return (len(self.steps), *self.extents)

    def read(self, steps: Sequence[int], box: tuple[int | slice, ...]) -> Array:
        """The box of each of these steps, stacked along a first dimension.

        Of one step it is a read-only view where one block covers the box; else a new array, with zeros where no block
        covers it.
        """
        if len(steps) == 1:
            one: Array = self._variable(steps[0])[(*box, ...)]
            return one[np.newaxis]
        probe = np.broadcast_to(np.empty((), np.bool_), self.extents)[(*box, ...)]
        result = np.zeros((len(steps), *probe.shape), self.dtype)
        for place, index in enumerate(steps):
            self._variable(index).read((*box, ...), out=result[place])
        return result

    def _variable(self, index: int) -> Variable:
        return self.steps.step(index)[self.name]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return (*self.steps.__dask_tokenize__(), self.name, self.extents, str(self.dtype))


class StreamTable:
    """What the steps of a stream have in common: made by :meth:`read`.

    Attributes
    ----------
    steps : StepTable
        The steps that were there.
    arrays : dict of str to ArrayOverSteps
        Variables with dimensions that have one shape and type in all steps.
    values : dict of str to array
        Single values, one element per step; texts are Python strings.
    left_out : dict of str to str
        The other variables, with the reason.
    attributes : dict
        The newest step's attributes that belong to no variable.
    """

    def __init__(
        self,
        steps: StepTable,
        arrays: dict[str, ArrayOverSteps],
        values: dict[str, Array],
        value_attributes: dict[str, dict[str, Any]],
        left_out: dict[str, str],
        attributes: dict[str, Any],
    ) -> None:
        self.steps = steps
        self.arrays = arrays
        self.values = values
        self.value_attributes = value_attributes
        self.left_out = left_out
        self.attributes = attributes

    @classmethod
    def read(cls, address: str | Address | Stream) -> StreamTable:
        """Looks at every step that a stream has now.

        Raises
        ------
        StreamNotFoundError
            There is no such stream.
        StepNotFoundError
            It has no steps yet.
        """
        stream = address if isinstance(address, Stream) else forebay.open(address, timeout=0)
        looks = []
        for summary in stream.steps():
            try:
                looks.append(_Look(stream[summary.number]))
            except StepGoneError:
                continue  # dropped since the list was made
        if not looks:
            raise StepNotFoundError(
                "the stream has no steps yet, so its variables are not known: open it when a step has committed, or "
                "follow it",
                f"stream {stream.address}",
            )
        return cls._of_looks(stream, looks)

    @classmethod
    def _of_looks(cls, stream: Stream, looks: list[_Look]) -> StreamTable:
        steps = StepTable(
            stream,
            stream.info.uuid,
            np.array([look.number for look in looks], np.int64),
            np.array([look.epoch for look in looks], np.int64),
            np.array([look.time_ns for look in looks], np.int64),
        )
        newest, last = looks[-1], steps.step(len(looks) - 1)
        of_variable: dict[str, dict[str, Any]] = {name: {} for look in looks for name in look.variables}
        attributes: dict[str, Any] = {}
        for name, value in last.attributes.items():
            owner = _owner(name, of_variable)
            if owner is None:
                attributes[name] = value
            else:
                of_variable[owner][name[len(owner) + 1 :]] = value
        arrays: dict[str, ArrayOverSteps] = {}
        values: dict[str, Array] = {}
        left_out: dict[str, str] = {}
        first = steps.step(0)
        for name in of_variable:
            reason = _reason_to_leave_out(name, looks)
            if reason:
                left_out[name] = reason
            elif newest.variables[name].shape:
                facts = newest.variables[name]
                arrays[name] = ArrayOverSteps(
                    steps,
                    name,
                    facts.shape,
                    facts.dtype,
                    dimension_names(last[name]),
                    _common_grid(first[name], last[name]),
                    of_variable[name],
                )
            else:
                values[name] = np.array([look.values[name] for look in looks], newest.value_dtype(name))
        value_attributes = {name: of_variable[name] for name in values}
        return cls(steps, arrays, values, value_attributes, left_out, attributes)


@dataclass(frozen=True)
class _Facts:
    """What must be the same in all steps."""

    kind: ShapeKind
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class _Look:
    """What one step has: a plain record, so that the step is let go."""

    def __init__(self, step: Step) -> None:
        with step:
            self.number, self.epoch, self.time_ns = step.number, step.epoch, step.time_ns
            self.variables = {
                name: _Facts(variable.kind, variable.dtype, variable.shape) for name, variable in step.items()
            }
            self.values = {
                name: step[name].item()
                for name, facts in self.variables.items()
                if not facts.shape and facts.kind is not ShapeKind.LOCAL_ARRAY
            }

    def value_dtype(self, name: str) -> np.dtype[Any]:
        dtype = self.variables[name].dtype
        return np.dtype(object) if dtype.kind == "T" else dtype


def _reason_to_leave_out(name: str, looks: list[_Look]) -> str:
    """Why a variable is no array over all steps; empty where it is."""
    having = [look for look in looks if name in look.variables]
    if len(having) < len(looks):
        missing = next(look.number for look in looks if name not in look.variables)
        return f"{len(looks) - len(having)} of {len(looks)} steps do not have it, step {missing} first"
    expected = having[0].variables[name]
    if expected.kind is ShapeKind.LOCAL_ARRAY:
        return "a local array has no global shape: read its blocks by step[name].block(number)"
    for look in having:
        facts = look.variables[name]
        if facts != expected:
            return (
                f"it is {expected.kind} of {expected.dtype} {expected.shape} in step {having[0].number}, but "
                f"{facts.kind} of {facts.dtype} {facts.shape} in step {look.number}"
            )
    if expected.dtype.kind == "T" and expected.shape:
        return "it is an array of texts, one per rank: read it step by step"
    return ""


def _owner(attribute: str, variables: Mapping[str, Any]) -> str | None:
    """The variable that an attribute ``VARIABLE/NAME`` belongs to; the longest name that fits."""
    owner = attribute
    while "/" in owner:
        owner = owner.rpartition("/")[0]
        if owner in variables:
            return owner
    return None


def group_of(name: str) -> tuple[str, str]:
    """A variable's name as group and name in it: ``"mesh/T"`` is ``("mesh", "T")``."""
    group, _, own = name.strip("/").rpartition("/")
    return group, own


def dimension_names(variable: Variable) -> tuple[str, ...]:
    """The variable's dimensions; one without a name is called by its place and extent, for example ``dim_0_64``.

    So variables of one shape share their dimensions and can be computed with each other.
    """
    return tuple(f"dim_{axis}_{extent}" for axis, extent in enumerate(variable.shape))


def block_grid(variable: Variable) -> tuple[tuple[int, ...], ...] | None:
    """Extents of the blocks along each dimension, if they cover the variable as a grid without gap and overlap."""
    blocks = [block for block in variable.blocks if 0 not in block.count]
    if variable.kind is not ShapeKind.GLOBAL_ARRAY or not blocks:
        return None
    extents: list[dict[int, int]] = [{} for _ in variable.shape]
    for block in blocks:
        for axis, (start, count) in enumerate(zip(block.start, block.count, strict=True)):
            if extents[axis].setdefault(start, count) != count:
                return None
    number = 1
    for axis, extent in enumerate(variable.shape):
        end = 0
        for start in sorted(extents[axis]):
            if start != end:
                return None
            end += extents[axis][start]
        if end != extent:
            return None
        number *= len(extents[axis])
    # Each cell of the grid is one block.
    if number != len(blocks) or len({block.start for block in blocks}) != number:
        return None
    return tuple(tuple(along[start] for start in sorted(along)) for along in extents)


def _common_grid(first: Variable, last: Variable) -> tuple[tuple[int, ...], ...] | None:
    grid = block_grid(last)
    return grid if grid == block_grid(first) else None
