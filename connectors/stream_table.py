# SPDX-License-Identifier: Apache-2.0
"""The steps of a stream as one table, and its variables as arrays over them: what several connectors present.

A table is a snapshot. It knows each step by the stream's uuid, the epoch and the number, also in another process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import (
    Address,
    ShapeKind,
    StepNotFoundError,
    StepsMetadata,
    Stream,
    Variable,
    VariableMetadata,
)
from forebay.connectors.opening import kept_stream
from forebay.datatypes import attribute_to_native
from forebay.dimensions import dims_of_wrf
from forebay.instance import InstanceLike
from forebay.mesh_attributes import mesh_attributes
from forebay.step_selection import StepSelection
from forebay.step_table import StepTable

__all__ = [
    "COMMIT_TIME_ATTRIBUTES",
    "OWN_NAMES",
    "ArrayOverSteps",
    "StepTable",
    "StreamTable",
    "block_grid",
    "constant_names",
    "dimension_names",
    "group_of",
    "path_of",
]

Array = NDArray[Any]

#: What a table has of each step; a variable of such a name cannot lie beside it.
OWN_NAMES = {
    "step": "the numbers of the steps are called so: read the variable step by step",
    "commit_time": "the times of the commits are called so: read the variable step by step",
}

#: Of times of commits, as CF says it; the values are nanoseconds.
COMMIT_TIME_ATTRIBUTES = {"units": "nanoseconds since 1970-01-01", "calendar": "proleptic_gregorian"}

# Attributes that say what elements are. Without those of the first line nothing contradicts the ones that are there.
_NAMING = ("dims", "units", "calendar")
_DECODING = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")


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
        found: StepsMetadata,
    ) -> None:
        self.steps = steps
        self.arrays = arrays
        self.values = values
        self.value_attributes = value_attributes
        self.left_out = left_out
        self.attributes = attributes
        self._found = found

    def is_constant(self, array: ArrayOverSteps) -> bool:
        """Whether the checksums of its blocks say that the elements are the same in all steps. Reads none of them."""
        blocks = self._found[0][array.name].blocks
        return all(block.checksum is not None for block in blocks) and all(
            self._found[place][array.name].blocks == blocks for place in range(1, len(self.steps))
        )

    def constant(self, array: ArrayOverSteps) -> Array | None:
        """The elements of a variable that are the same in all steps; None where they are not.

        Steps whose blocks have the checksums of the first step's are not read.
        """
        whole = (slice(None),) * len(array.extents)
        first: Array = array.read([0], whole)[0]
        blocks = self._found[0][array.name].blocks
        known = all(block.checksum is not None for block in blocks)
        for place in range(1, len(self.steps)):
            if known and self._found[place][array.name].blocks == blocks:
                continue
            other = array.read([place], whole)[0]
            if not np.array_equal(first, other, equal_nan=array.dtype.kind in "fc"):
                return None
        return first

    @classmethod
    def read(
        cls,
        address: str | Address | Stream,
        instance: InstanceLike | None = None,
        opening: dict[str, Any] | None = None,
        chosen: StepSelection | None = None,
    ) -> StreamTable:
        """Looks at every step that a stream has now.

        Parameters
        ----------
        opening : dict
            Options of :func:`forebay.open`.
        chosen : StepSelection, optional
            Which of them; None: all.

        Raises
        ------
        StreamNotFoundError
            There is no such stream.
        StepNotFoundError
            It has no steps yet.
        """
        stream = kept_stream(address, instance, opening)
        numbers = None if chosen is None else [step.number for step in stream.steps() if step.number in chosen]
        found = stream.steps_at(numbers)
        gone = sorted(chosen.named.difference(found.numbers.tolist())) if chosen is not None else []
        if gone or (numbers is not None and not numbers and len(stream)):
            what = f"not keep step {gone[0]}" if gone else "keep none of the chosen steps"
            raise StepNotFoundError(f"the stream does {what}: choose others", f"stream {stream.address}")
        if not found:
            raise StepNotFoundError(
                "the stream has no steps yet, so its variables are not known: open it when a step has committed, or "
                "follow it",
                f"stream {stream.address}",
            )
        steps = StepTable(
            stream,
            stream.info.uuid,
            found.numbers.astype(np.int64),
            found.epochs.astype(np.int64),
            found.times_ns.astype(np.int64),
            owns_stream=stream is not address,
        )
        first, last = found[0], found[-1]
        names = list(dict.fromkeys([*last, *(name for layout in found.layouts for name in layout)]))
        of_variable: dict[str, dict[str, Any]] = {name: {} for name in names}
        attributes: dict[str, Any] = {}
        for name, value in last.attributes.items():
            owner = _owner(name, of_variable)
            if owner is None:
                attributes[name] = value
            elif (
                name != f"{owner}/dims" or owner not in last or last[owner].dims is None
            ):  # the dimensions have their names from it
                of_variable[owner][name[len(owner) + 1 :]] = value
        arrays: dict[str, ArrayOverSteps] = {}
        values: dict[str, Array] = {}
        left_out: dict[str, str] = {}
        changing = _changing_attributes(found, of_variable)
        for name in names:
            reason = _reason_to_leave_out(name, found) or changing.get(name)
            if reason:
                left_out[name] = reason
            elif last[name].shape:
                grid = block_grid(last[name])
                arrays[name] = ArrayOverSteps(
                    steps,
                    name,
                    last[name].shape,
                    last[name].dtype,
                    dimension_names(last[name], last.attributes),
                    grid if grid == block_grid(first[name]) else None,
                    of_variable[name],
                )
            else:
                column = found.values(name)
                values[name] = column.astype(object) if column.dtype.kind == "T" else column
        value_attributes = {name: of_variable[name] for name in values}
        return cls(steps, arrays, values, value_attributes, left_out, attributes, found)


def constant_names(attributes: Mapping[str, Any]) -> frozenset[str]:
    """The variables that do not depend on the step, as ``constant_variables`` says (docs/formats/conventions.md)."""
    told = attributes.get("constant_variables", ())
    return frozenset(told if isinstance(told, tuple) else [told] if isinstance(told, str) else [])


def _reason_to_leave_out(name: str, steps: StepsMetadata) -> str:
    """Why a variable is no array over all steps; empty where it is."""
    if name in OWN_NAMES:
        return OWN_NAMES[name]
    numbers, layouts = steps.layout_numbers, steps.layouts
    lacking = np.isin(numbers, [number for number, layout in enumerate(layouts) if name not in layout])
    if lacking.any():
        missing = steps.numbers[np.flatnonzero(lacking)[0]]
        return f"{lacking.sum()} of {len(steps)} steps do not have it, step {missing} first"
    expected = layouts[numbers[0]][name]
    if expected.kind is ShapeKind.LOCAL_ARRAY:
        return "a local array has no global shape: read its blocks by step[name].block(number)"
    for number, layout in enumerate(layouts):
        found = layout[name]
        if (found.kind, found.dtype, found.shape) != (expected.kind, expected.dtype, expected.shape):
            other = steps.numbers[np.flatnonzero(numbers == number)[0]]
            return (
                f"it is {expected.kind} of {expected.dtype} {expected.shape} in step {steps.numbers[0]}, but "
                f"{found.kind} of {found.dtype} {found.shape} in step {other}"
            )
    if expected.dtype.kind == "T" and expected.shape:
        return "it is an array of texts, one per rank: read it step by step"
    return ""


def _changing_attributes(steps: StepsMetadata, variables: Mapping[str, Any]) -> dict[str, str]:
    """The variables whose elements mean another thing in other steps, with the reason: one table has one meaning."""
    numbers, newest = steps.numbers, len(steps) - 1
    expected = _meanings(steps[newest].attributes)
    changing: dict[str, str] = {}
    for place in np.unique(steps.attribute_numbers, return_index=True)[1].tolist():
        found = _meanings(steps[place].attributes)
        for attribute in found.keys() | expected.keys():
            here, there = found.get(attribute), expected.get(attribute)
            missing = here is None or there is None
            owner = _owner(attribute, variables)
            if here == there or owner is None or (missing and attribute.rpartition("/")[2] in _NAMING):
                continue
            changing.setdefault(
                owner,
                f"its attribute {attribute!r} is another one in step {numbers[place]} than in step {numbers[newest]}: "
                "read it step by step",
            )
    return changing


def _meanings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that say what elements are, in a form that can be compared."""
    return {
        name: attribute_to_native(name, value)
        for name, value in attributes.items()
        if name.rpartition("/")[2] in _NAMING + _DECODING
    }


def _owner(attribute: str, variables: Mapping[str, Any]) -> str | None:
    """The variable that an attribute ``VARIABLE/NAME`` belongs to; the longest name that fits."""
    owner = attribute
    while "/" in owner:
        owner = owner.rpartition("/")[0]
        if owner in variables:
            return owner
    return None


def path_of(name: str) -> str:
    """A variable's name as a path in a hierarchy: openPMD's ``"/data/0/rho"`` is ``"data/0/rho"``."""
    return "/".join(part for part in name.split("/") if part)


def group_of(name: str) -> tuple[str, str]:
    """A variable's name as group and name in it: ``"mesh/T"`` is ``("mesh", "T")``."""
    group, _, own = path_of(name).rpartition("/")
    return group, own


def dimension_names(variable: Variable | VariableMetadata, attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """The variable's dimensions (docs/formats/conventions.md): its own names, else those of WRF, openPMD, VTK or Fides.

    Without those, names are made of place and extent, for example ``dim_0_64``, so that variables of one shape share
    their dimensions and can be computed with each other.

    Parameters
    ----------
    attributes : mapping
        Of the variable's step.
    """
    if variable.dims is not None:
        return variable.dims
    of_wrf = dims_of_wrf(attributes.get(f"{variable.name}/Dims"), len(variable.shape))
    if of_wrf is not None:
        return of_wrf
    # openPMD has them at the mesh, which is the variable itself or what its components lie below.
    for mesh in (variable.name, variable.name.rpartition("/")[0]):
        labels = attributes.get(f"{mesh}/axisLabels")
        if isinstance(labels, tuple) and len(labels) == len(set(labels)) == len(variable.shape) and all(labels):
            return labels
    of_mesh = mesh_attributes(attributes).dimension_names(variable.name, len(variable.shape))
    if of_mesh is not None:
        return of_mesh
    return tuple(f"dim_{axis}_{extent}" for axis, extent in enumerate(variable.shape))


def block_grid(variable: Variable | VariableMetadata) -> tuple[tuple[int, ...], ...] | None:
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
