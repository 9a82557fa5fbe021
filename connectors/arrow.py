# SPDX-License-Identifier: Apache-2.0
"""Steps as Arrow data: blocks as tensors, particles as record batches - without a copy - and lists as tables.

What these functions return has Arrow's PyCapsule interface (``__arrow_c_array__``, ``__arrow_c_stream__``), so Polars,
DuckDB and pandas take it as it is. Needs the extra ``forebay[arrow]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import forebay
from forebay import Address, ShapeKind, Step, Stream, Variable
from forebay.arrow_export import check_arrow_type
from forebay.connectors.opening import kept_stream
from forebay.errors import InvalidArgumentError, StepGoneError, UnsupportedError
from forebay.instance import InstanceLike
from forebay.openpmd import find_species

__all__ = ["blocks", "particle_reader", "particles", "steps", "tensor"]


def tensor(variable: Variable, block: int | None = None) -> pa.FixedShapeTensorArray:
    """A variable, or one of its blocks, as an Arrow array of one tensor.

    The buffer is the step's own bytes where one block covers the variable: nothing is copied, and the step stays pinned
    as long as the array lives. Else it is a copy.

    Parameters
    ----------
    variable : Variable
        An array of numbers.
    block : int, optional
        Number of the block; None: the whole variable.

    Raises
    ------
    UnsupportedError
        Arrow has no tensors of complex numbers, long double and char, and none without dimensions.
    """
    data = variable[...] if block is None else variable.block(block)
    if not data.ndim:
        raise UnsupportedError(
            "a single value is no tensor: take variable.item()", f"{variable.step.address}, variable {variable.name!r}"
        )
    check_arrow_type(variable.dtype, f"{variable.step.address}, variable {variable.name!r}")
    # Arrow wants the first stride to be the largest, which that of data[None] is not.
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(data).reshape((1, *data.shape)))


def particles(
    step: Step, names: Sequence[str] | None = None, *, species: str | None = None, si: bool = False
) -> pa.RecordBatch:
    """Particles as a record batch: one-dimensional variables of equal length, or a species of openPMD's.

    Columns share memory with the step where one block covers them.

    Parameters
    ----------
    step : Step
        Stays pinned as long as the batch lives.
    names : sequence of str, optional
        The variables; None: all one-dimensional variables of numbers, which must then be of one length. Of a species:
        records (``position``) or components (``position_x``, or ``position/x``); None: all.
    species : str, optional
        Name of the species, ``electrons``, or its path, if the step has several iterations:
        ``/data/100/particles/electrons``. Columns are then called as openPMD-api's ``to_df`` calls them. Positions are
        the sum of ``position`` and ``positionOffset``, in the unit of ``position``, as ``float64``; these are copies
        unless the offset is constantly 0. Constant components are columns, too.
    si : bool
        All columns of the species in SI units, as ``float64``: copies where ``unitSI`` is not 1. Else the unit is each
        field's metadata ``unitSI``; beside it are ``unitDimension``, ``macroWeighted``, ``weightingPower`` and
        ``timeOffset``, if the stream has them.

    Raises
    ------
    InvalidArgumentError
        The variables are not one-dimensional, or of different lengths: name those that belong together.
    VariableNotFoundError
        There is no such species, record or component.
    """
    if species is not None:
        return _of_species(step, species, names, si)
    if si:
        raise InvalidArgumentError("si goes with species: other variables have no unitSI", str(step.address))
    chosen = _columns(step) if names is None else list(names)
    variables = [step[name] for name in chosen]
    shapes = {variable.name: variable.shape for variable in variables}
    if not variables or len(set(shapes.values())) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise InvalidArgumentError(
            f"particles are one-dimensional variables of one length, not {shapes or 'none'}: give the names that "
            "belong together",
            str(step.address),
        )
    for variable in variables:
        check_arrow_type(variable.dtype, f"{variable.step.address}, variable {variable.name!r}")
    return pa.record_batch([pa.array(variable[...]) for variable in variables], names=chosen)


def particle_reader(
    address: str | Address | Stream,
    names: Sequence[str] | None = None,
    *,
    species: str | None = None,
    si: bool = False,
    instance: InstanceLike | None = None,
    **opening: Any,
) -> pa.RecordBatchReader:
    """The particles of all steps that a stream has now, one batch per step, read as the reader is asked for them.

    The first column, ``step``, is the step's number.

    Parameters
    ----------
    names, species, si
        As in :func:`particles`.
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    **opening
        Other options of :func:`forebay.open`, for example ``run`` and ``wait_for_writer``.

    Raises
    ------
    StreamNotFoundError, StepNotFoundError
    UnsupportedError
        A later step has other units; ask for ``si=True``.
    """
    stream = kept_stream(address, instance, opening)
    numbers = stream.steps().numbers
    if not numbers:
        raise forebay.StepNotFoundError(
            "the stream has no steps yet, so its columns are not known", f"stream {stream.address}"
        )
    first = _numbered(stream[numbers[0]], names, species, si)
    columns = first.schema.names[1:]

    def batches() -> Iterator[pa.RecordBatch]:
        for number in numbers:
            batch = _numbered(stream[number], columns, species, si)
            if not batch.schema.equals(first.schema, check_metadata=True):
                raise UnsupportedError(
                    f"step {number} has columns of other types or units than step {numbers[0]}: ask for si=True, or "
                    "take the steps one by one by particles()",
                    f"stream {stream.address}",
                )
            yield batch

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def steps(address: str | Address | Stream, *, instance: InstanceLike | None = None, **opening: Any) -> pa.Table:
    """The kept steps as a table: number, epoch, commit time, size, watermarks, pins.

    Parameters
    ----------
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    **opening
        Other options of :func:`forebay.open`, for example ``run`` and ``wait_for_writer``.
    """
    stream = kept_stream(address, instance, opening)
    summaries = list(stream.steps())
    columns: dict[str, tuple[str, Any]] = {
        "step": ("number", pa.int64()),
        "epoch": ("epoch", pa.int64()),
        "commit_time": ("time_ns", pa.timestamp("ns", "UTC")),
        "size_bytes": ("size_bytes", pa.int64()),
        "durable": ("durable", pa.bool_()),
        "staged": ("staged", pa.bool_()),
        "precious": ("precious", pa.bool_()),
        "pins": ("pins", pa.int64()),
    }
    return pa.table(
        {
            name: pa.array([getattr(summary, field) for summary in summaries], kind)
            for name, (field, kind) in columns.items()
        }
    )


def blocks(
    address: str | Address | Stream, variable: str, *, instance: InstanceLike | None = None, **opening: Any
) -> pa.Table:
    """The blocks of a variable in all kept steps that have it: place, size, and the statistics taken at writing.

    Parameters
    ----------
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    **opening
        Other options of :func:`forebay.open`, for example ``run`` and ``wait_for_writer``.
    """
    stream = kept_stream(address, instance, opening)
    rows: list[dict[str, Any]] = []
    for summary in stream.steps():
        try:
            step = stream[summary.number]
        except StepGoneError:
            continue  # dropped since the list was made
        with step:
            if variable not in step:
                continue
            for number, block in enumerate(step[variable].blocks):
                rows.append(
                    {
                        "step": step.number,
                        "block": number,
                        "rank": block.rank,
                        "start": list(block.start),
                        "count": list(block.count),
                        "size_bytes": block.size_bytes,
                        "min": _plain(block.min),
                        "max": _plain(block.max),
                    }
                )
    kind = pa.from_numpy_dtype(np.asarray([row["min"] for row in rows if row["min"] is not None]).dtype)
    extents = pa.list_(pa.int64())
    schema = pa.schema(
        [
            ("step", pa.int64()),
            ("block", pa.int64()),
            ("rank", pa.int64()),
            ("start", extents),
            ("count", extents),
            ("size_bytes", pa.int64()),
            ("min", kind),
            ("max", kind),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def _of_species(step: Step, name: str, names: Sequence[str] | None, si: bool) -> pa.RecordBatch:
    species = find_species(step, name)
    arrays, fields = [], []
    for part in species.chosen(names):
        values = species.values(part, si=si)
        check_arrow_type(values.dtype, f"{species.where}, {part.column}")
        arrays.append(pa.array(values))
        fields.append(pa.field(part.column, arrays[-1].type, metadata=species.facts(part, si=si)))
    facts = {"species": species.path}
    if species.time_s is not None:
        facts["time_s"] = repr(species.time_s)
    return pa.record_batch(arrays, schema=pa.schema(fields, facts))


def _numbered(step: Step, names: Sequence[str] | None, species: str | None, si: bool) -> pa.RecordBatch:
    batch = particles(step, names, species=species, si=si)
    number = pa.array(np.full(batch.num_rows, step.number, np.int64))
    return pa.record_batch([number, *batch.columns], schema=pa.schema([pa.field("step", pa.int64()), *batch.schema]))


def _columns(step: Step) -> list[str]:
    return [
        name
        for name, variable in step.items()
        if len(variable.shape) == 1
        and variable.kind in (ShapeKind.GLOBAL_ARRAY, ShapeKind.JOINED_ARRAY)
        and variable.dtype.kind in "iuf"
        and variable.dtype != np.longdouble
    ]


def _plain(value: NDArray[Any] | None) -> Any:
    return None if value is None else value.item()
