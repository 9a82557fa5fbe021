# SPDX-License-Identifier: Apache-2.0
"""A stream as one netCDF-4 file, a record for each step: what `ingest` reads, and xarray, ncdump and NCO."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forebay import Address, Stream
from forebay.connectors.netcdf.history import CONSTANTS, RECORD_DIMENSION, TIME_SOURCE, import_netcdf4
from forebay.connectors.stream_table import ArrayOverSteps, StreamTable, constant_names
from forebay.errors import AlreadyExistsError, ForebayError, InvalidArgumentError, StorageError, UnsupportedError
from forebay.instance import InstanceLike
from forebay.step_selection import StepSelection
from forebay.visible_text import visible

__all__ = ["STEP_NUMBERS", "export"]

#: The variable with the steps' numbers, as stage-out calls it in HDF5 files.
STEP_NUMBERS = "forebay_step"

# Attributes that tell of the records; the file shows that by itself.
_OF_RECORDS = (RECORD_DIMENSION, CONSTANTS, TIME_SOURCE)


@dataclass(frozen=True)
class _Column:
    """A variable of the file."""

    name: str
    dims: tuple[str, ...]  # without that of the records
    extents: tuple[int, ...]
    dtype: Any
    attributes: Mapping[str, Any]
    is_constant: bool
    read: Callable[[int], Any]  # the elements of a step, by its place


def export(
    address: str | Address | Stream,
    path: Path | str,
    *,
    variables: Sequence[str] | None = None,
    steps: str = "",
    instance: InstanceLike | None = None,
    on_notice: Callable[[str], object] | None = None,
    **opening: Any,
) -> int:
    """Writes the steps that a stream has now to a new netCDF-4 file; returns how many.

    The first dimension of the variables is unlimited: the one that :func:`ingest` read, else ``time`` where the stream
    has a single value ``time``, else ``step``. Variables that a file had without it, and coordinates that stay the same
    in all steps, have no such dimension. ``forebay_step`` has the steps' numbers. The file appears under its name when
    it is whole.

    Parameters
    ----------
    address : str, Address or Stream
        What to read.
    path : path
        Must not exist.
    variables : sequence of str, optional
        Which; None: all that every step has in one shape and type.
    steps : str
        ``"0,5,10:20"``: numbers, and ranges without their ends. Not given: all kept ones.
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    on_notice : callable, optional
        Called with a text about what is left out; otherwise it is a warning.
    **opening
        Of :func:`forebay.open`.

    Raises
    ------
    AlreadyExistsError
        There is a file of this name.
    StreamNotFoundError, StepNotFoundError
        There is no such stream, or it has no such steps.
    InvalidArgumentError
        A variable was asked for that the steps do not have in common; the text says why.
    UnsupportedError
        netCDF cannot hold a name, which the text tells; or netCDF4 is not installed.
    StorageError
        The file cannot be written, for example because the disk is full.
    """
    netcdf4 = import_netcdf4()
    target = Path(path)
    if target.exists():
        raise AlreadyExistsError("there is a file of this name: choose another one, or remove it", str(path))
    table = StreamTable.read(address, instance, opening, StepSelection.parse(None, steps))
    try:
        left_out = dict(table.left_out)
        dimension = _record_dimension(table)
        columns = _chosen(list(_columns(table, dimension, left_out)), variables, left_out, dimension)
        _tell(left_out if variables is None else {}, on_notice)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with netcdf4.Dataset(os.fspath(temporary), "w", format="NETCDF4", clobber=False) as file:
                _fill(table, columns, _define(file, table, dimension, columns))
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
            os.link(temporary, target)  # never onto a file that has come meanwhile
        except FileExistsError:
            raise AlreadyExistsError(
                "there is a file of this name: choose another one, or remove it", str(path)
            ) from None
        except ForebayError:
            raise
        except RuntimeError as error:  # from netCDF
            raise StorageError(f"the file cannot be written: {str(error)[:160]}", str(path)) from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        return len(table.steps)
    finally:
        table.steps.close()


def _record_dimension(table: StreamTable) -> str:
    told = table.attributes.get(RECORD_DIMENSION)
    names = [told] if isinstance(told, str) and told else []
    names += ["time"] if "time" in table.values else []
    # A dimension of a variable cannot be that of the steps as well.
    taken = {name for array in table.arrays.values() for name in array.dims}
    return next(name for name in [*names, "step", STEP_NUMBERS, f"{STEP_NUMBERS}s"] if name not in taken)


def _columns(table: StreamTable, dimension: str, left_out: dict[str, str]) -> Iterator[_Column]:
    constants = constant_names(table.attributes)
    extents: dict[str, int] = {}
    # `time` is there twice where a variable of another name has it.
    hidden = {STEP_NUMBERS, "time"} if TIME_SOURCE in table.attributes else {STEP_NUMBERS}
    for name, array in table.arrays.items():
        if name in hidden:
            continue
        if not _is_known(array.dtype):
            left_out[name] = f"netCDF has no elements of type {array.dtype}"
            continue
        dims = tuple(_dimension(one, axis, array, extents) for axis, one in enumerate(array.dims))
        is_constant = (name in constants or array.dims == (name,)) and table.constant(array) is not None
        yield _Column(name, dims, array.extents, array.dtype, array.attributes, is_constant, _reader(array))
    for name, values in table.values.items():
        if name in hidden:
            continue
        is_text = values.dtype.kind == "O"
        if not is_text and not _is_known(values.dtype):
            left_out[name] = f"netCDF has no elements of type {values.dtype}"
            continue
        dtype, attributes = str if is_text else values.dtype, table.value_attributes[name]
        is_constant = name in constants and len(np.unique(values)) == 1
        yield _Column(name, (), (), dtype, attributes, is_constant, values.__getitem__)


def _is_known(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "iufS" and dtype.itemsize <= 8


def _reader(array: ArrayOverSteps) -> Callable[[int], Any]:
    whole = (slice(None),) * len(array.extents)
    return lambda place: array.read([place], whole)[0]


def _dimension(name: str, axis: int, array: ArrayOverSteps, extents: dict[str, int]) -> str:
    """The dimension's name in the file, where each has one extent."""
    extent = array.extents[axis]
    if extents.setdefault(name, extent) == extent and "/" not in name:
        return name
    other = f"dim_{axis}_{extent}"
    extents[other] = extent
    return other


def _chosen(
    columns: list[_Column], wanted: Sequence[str] | None, left_out: Mapping[str, str], dimension: str
) -> list[_Column]:
    if wanted is None:
        return columns
    known = {column.name for column in columns}
    if missing := [name for name in wanted if name not in known]:
        reason = left_out.get(missing[0], f"the steps have {', '.join(sorted(known)[:10])}")
        raise InvalidArgumentError(f"variable {missing[0]!r} cannot be written: {reason}")
    # Times and coordinates come along: without them the others mean little.
    names = {*wanted, dimension, "time", *(one for column in columns if column.name in wanted for one in column.dims)}
    return [column for column in columns if column.name in names]


def _define(file: Any, table: StreamTable, dimension: str, columns: Sequence[_Column]) -> list[Any]:
    """Makes dimensions, variables and attributes; returns the variables of the columns."""
    file.createDimension(dimension, None)
    made = []
    for column in columns:
        try:
            for name, extent in zip(column.dims, column.extents, strict=True):
                if name not in file.dimensions:
                    file.createDimension(name, extent)
            dims = column.dims if column.is_constant else (dimension, *column.dims)
            variable = file.createVariable(column.name, column.dtype, dims, fill_value=_fill_value(column))
            _set_attributes(variable, {key: value for key, value in column.attributes.items() if key != "_FillValue"})
        except (RuntimeError, ValueError, TypeError) as error:
            raise UnsupportedError(
                f"netCDF cannot hold this variable ({str(error)[:120]}): choose others", f"variable {column.name!r}"
            ) from None
        made.append(variable)
    for name, value in table.attributes.items():
        group, _, key = name.rpartition("/")
        # Of a group, or of a variable that is left out.
        holder = file if not group else file[group] if group in _groups(file) else None
        if holder is not None and name not in _OF_RECORDS:
            _set_attributes(holder, {key: value})
    numbers = file.createVariable(STEP_NUMBERS, "i8", (dimension,))
    numbers.long_name = "number of the step in the stream"
    numbers[:] = table.steps.numbers
    file.set_auto_maskandscale(False)
    file.set_auto_chartostring(False)
    return made


def _fill(table: StreamTable, columns: Sequence[_Column], variables: Sequence[Any]) -> None:
    """Writes the elements, step by step."""
    for place in range(len(table.steps)):
        for column, variable in zip(columns, variables, strict=True):
            if not column.is_constant:
                variable[place] = column.read(place)
            elif place == 0:
                variable[...] = column.read(place)


def _fill_value(column: _Column) -> Any:
    """False where there is none: then netCDF need not fill the variable first."""
    told = column.attributes.get("_FillValue")
    if column.dtype is str:
        return None
    if told is None:
        return False
    if column.dtype.kind == "S":
        return told
    number = np.asarray(told).reshape(-1)[0]
    cast = number.astype(column.dtype)
    if cast == number or (cast != cast and number != number):
        return cast
    return False  # No element can have this value.


def _set_attributes(holder: Any, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        holder.setncattr(name, list(value) if isinstance(value, tuple) else value)


def _groups(file: Any) -> set[str]:
    return {one.path.strip("/") for one in _walk(file)}


def _walk(group: Any) -> Iterator[Any]:
    for inner in group.groups.values():
        yield inner
        yield from _walk(inner)


def _tell(left_out: Mapping[str, str], on_notice: Callable[[str], object] | None) -> None:
    for name, reason in left_out.items():
        text = f"{name} is left out: {reason}"
        if on_notice is not None:
            on_notice(text)
        else:
            warnings.warn(visible(text), stacklevel=3)
