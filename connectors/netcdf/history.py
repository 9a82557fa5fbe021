# SPDX-License-Identifier: Apache-2.0
"""A netCDF history file: its records, what it has of each, and the time of each.

Elements stay as the file has them: packed data are packed, and attributes say how to unpack them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from forebay.connectors.netcdf.whole_file import NotNetcdfError, check_whole
from forebay.connectors.wrf_times import seconds_of
from forebay.datatypes import STRING_DTYPE, code_of
from forebay.errors import CorruptError, InvalidArgumentError, NotFoundError, PermissionDeniedError, UnsupportedError
from forebay.hdf5_reading import readable_path

if TYPE_CHECKING:
    import netCDF4

__all__ = ["CONSTANTS", "RECORD_DIMENSION", "TIME_SOURCE", "Field", "History", "import_netcdf4"]

#: Attributes of a step that tell what the records of the file were (docs/formats/conventions.md).
RECORD_DIMENSION, CONSTANTS, TIME_SOURCE = "record_dimension", "constant_variables", "time_variable"

_WRF_TIME_ATTRIBUTES = {"units": "seconds since 1970-01-01 00:00:00", "calendar": "proleptic_gregorian"}


def import_netcdf4() -> Any:
    """The module netCDF4; UnsupportedError where it is not installed."""
    try:
        import netCDF4
    except ImportError:
        raise UnsupportedError("netCDF files need netCDF4: pip install 'forebay[netcdf]'") from None
    return netCDF4


@dataclass(frozen=True)
class Field:
    """A variable of a file, as each step has it.

    Attributes
    ----------
    name : str
        With the groups that it lies in: ``GROUP/NAME``.
    dims : tuple of str, optional
        Names of its dimensions without that of the records; None: two of them share a name, which a stream cannot have.
    shape : tuple of int
        Likewise.
    dtype : dtype
        Element type; texts have that of a stream's texts.
    has_records : bool
        Whether it differs from record to record.
    """

    name: str
    dims: tuple[str, ...] | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    has_records: bool
    _variable: Any = field(repr=False, compare=False)
    _axis: int = field(repr=False, compare=False)


class History:
    """A history file, open for reading: ``with History(path) as history``.

    Attributes
    ----------
    path : Path
        The file.
    record_dimension : str
        The dimension whose places become steps.
    records : int
        Its length.
    fields : tuple of Field
        The variables.
    left_out : dict of str to str
        Variables and attributes that a stream cannot hold, with the reason.
    time_name : str
        The variable of a step that has the record's time; empty if none was wanted.
    time_attributes : dict
        ``units`` and ``calendar`` of the times, as far as the file has them.
    """

    def __init__(self, path: Path | str, *, dimension: str = "", time: str | None = "") -> None:
        """Opens the file and looks at its header and times.

        Parameters
        ----------
        dimension : str
            The dimension of the records; not given: the unlimited one, else the one with a time coordinate.
        time : str, optional
            The variable with the time of each record; not given: found. None: times are not wanted.

        Raises
        ------
        NotFoundError
            There is no such file.
        PermissionDeniedError
            It may not be read.
        CorruptError
            It is no netCDF file, or not whole.
        InvalidArgumentError
            It has no records or times, or several that could be; the text says how to choose.
        UnsupportedError
            netCDF4 is not installed.
        """
        netcdf4 = import_netcdf4()
        self.path = Path(path)
        self._seen = self._state()
        try:
            check_whole(self.path)
            with readable_path(self.path) as place:
                self._file: netCDF4.Dataset = netcdf4.Dataset(place, "r")
        except PermissionDeniedError:
            raise
        except IsADirectoryError:
            raise InvalidArgumentError("it is a folder: give netCDF files", str(path)) from None
        except PermissionError:
            raise PermissionDeniedError("you may not read it", str(path)) from None
        except NotNetcdfError as error:
            raise CorruptError(str(error), str(path)) from None
        except (OSError, ValueError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise CorruptError(
                f"it is damaged, not whole, or a program still writes it ({what}): give it when it is finished",
                str(path),
            ) from None
        try:
            # Elements and characters as they are stored.
            self._file.set_auto_maskandscale(False)
            self._file.set_auto_chartostring(False)
            self.left_out: dict[str, str] = {}
            self.record_dimension = self._found_dimension(dimension)
            self.records = len(self._file.dimensions[self.record_dimension])
            self.fields = tuple(self._fields())
            self._find_times(time)
        except BaseException:
            self.close()
            raise
        self._constants: dict[str, Any] = {}

    def close(self) -> None:
        """Closes the file; idempotent."""
        if self._file.isopen():
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def time(self, record: int) -> Any:
        """The time of a record, a NumPy scalar as the file has it.

        Raises
        ------
        CorruptError
            It has none.
        """
        value = self._times[record]
        if (value.dtype.kind == "f" and not np.isfinite(value)) or value == self._no_time:
            raise CorruptError(f"record {record} has no time in {self.time_name!r}", str(self.path))
        return value

    def read(self, chosen: Field, record: int) -> NDArray[Any] | str:
        """The elements of a record. What does not differ between records is read once.

        Raises
        ------
        CorruptError
            The file is damaged there.
        """
        if not chosen.has_records and chosen.name in self._constants:
            held: NDArray[Any] | str = self._constants[chosen.name]
            return held
        place = (*[slice(None)] * chosen._axis, record, ...) if chosen.has_records else ...
        with self._damage(chosen.name):
            value = chosen._variable[place]
        value = str(value) if chosen.dtype is STRING_DTYPE else np.asarray(value).reshape(chosen.shape)
        if not chosen.has_records:
            self._constants[chosen.name] = value
        return value

    def attributes(self, chosen: Sequence[Field]) -> dict[str, Any]:
        """What a step with these fields has as attributes."""
        found: dict[str, Any] = {}
        for path, group in _groups(self._file):
            for key, value in self._values(path, group):
                found[f"{path}{key}"] = value
        for one in chosen:
            for key, value in self._values(f"{one.name}/", one._variable):
                found[f"{one.name}/{key}"] = value
        for key, value in self._attributes_of_records(chosen).items():
            if key in found:
                self.left_out[f"attribute {key}"] = "a step's attribute of this name says what the records were"
            found[key] = value
        return found

    def check_unchanged(self) -> None:
        """CorruptError if the file was written, replaced or removed since it was opened."""
        if self._state() != self._seen:
            raise CorruptError(
                "it changed while it was read, so the record is not taken: give it when no program writes it",
                str(self.path),
            )

    def _attributes_of_records(self, chosen: Sequence[Field]) -> dict[str, Any]:
        found: dict[str, Any] = {RECORD_DIMENSION: self.record_dimension}
        if constants := tuple(one.name for one in chosen if not one.has_records):
            found[CONSTANTS] = constants
        if self.added_time:
            found |= {TIME_SOURCE: self._time_source}
            found |= {f"time/{key}": value for key, value in self.time_attributes.items()}
        return found

    def _state(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError("there is no such file", str(self.path)) from None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _found_dimension(self, wanted: str) -> str:
        dimensions = self._file.dimensions
        shown = ", ".join(f"{name} ({len(one)})" for name, one in list(dimensions.items())[:8]) or "none"
        if wanted:
            if wanted not in dimensions:
                raise InvalidArgumentError(f"it has no dimension {wanted!r}; it has {shown}", str(self.path))
            return wanted
        candidates = [name for name, one in dimensions.items() if one.isunlimited()]
        if len(candidates) != 1:
            candidates = [name for name in candidates or dimensions if self._has_time_coordinate(name)]
        if len(candidates) == 1:
            return str(candidates[0])
        what = "several dimensions have times" if candidates else "it has no time dimension"
        raise InvalidArgumentError(
            f"{what}: name the one whose places become steps (dimension=, --dimension); it has {shown}", str(self.path)
        )

    def _has_time_coordinate(self, dimension: str) -> bool:
        variable = self._file.variables.get(dimension)
        if variable is not None and variable.dimensions == (dimension,) and _is_time(variable):
            return True
        texts = self._file.variables.get("Times")
        return texts is not None and texts.dimensions[:1] == (dimension,)

    def _fields(self) -> Iterator[Field]:
        for path, group in _groups(self._file):
            for own_name, variable in group.variables.items():
                name = f"{path}{own_name}"
                dimensions = variable.get_dims()
                axes = [
                    axis
                    for axis, one in enumerate(dimensions)
                    if one.name == self.record_dimension and one.group().path == "/"
                ]
                others = [one for axis, one in enumerate(dimensions) if axis not in axes]
                reason, dtype = _stored_dtype(variable, name)
                if reason or (dtype is STRING_DTYPE and others):
                    self.left_out[name] = reason or "it is an array of texts, and a stream has single texts"
                    continue
                if len(axes) > 1:
                    self.left_out[name] = f"it has the dimension {self.record_dimension} twice"
                    continue
                dims: tuple[str, ...] | None = tuple(one.name for one in others)
                if len(set(dims or ())) < len(others):
                    self.left_out[f"dimensions of {name}"] = f"two of them have one name: {', '.join(dims or ())}"
                    dims = None
                shape = tuple(len(one) for one in others)
                yield Field(name, dims, shape, dtype, bool(axes), variable, axes[0] if axes else 0)

    def _find_times(self, wanted: str | None) -> None:
        self.time_name, self.time_attributes, self.added_time = "", {}, False
        self._times, self._time_source, self._no_time = np.empty(0), "", None
        if wanted is None:
            return
        source = self._time_variable(wanted)
        self._time_source = source.name
        has_time = any(one.name == "time" for one in self.fields)
        with self._damage(source.name):
            values = np.asarray(source._variable[...])
        if source.dtype.kind == "S":
            if has_time:
                raise InvalidArgumentError(
                    "its variable 'time' is no time of each record: name one that is (time=, --time)", str(self.path)
                )
            values = np.array([self._wrf_seconds(text, place) for place, text in enumerate(values)], np.int64)
            self.time_name, self.time_attributes = "time", dict(_WRF_TIME_ATTRIBUTES)
        else:
            self.time_name = source.name
            for key in ("units", "calendar"):
                if key in source._variable.ncattrs():
                    self.time_attributes[key] = source._variable.getncattr(key)
            self._no_time = getattr(source._variable, "_FillValue", None)
        self._times = values
        # Readers look for the name `time`.
        self.added_time = not has_time

    def _time_variable(self, wanted: str) -> Field:
        of_records = {one.name: one for one in self.fields if one.has_records}
        times = {name: one for name, one in of_records.items() if not one.shape and one.dtype.kind in "iuf"}
        if wanted:
            if wanted not in times and not (wanted in of_records and _has_characters(of_records[wanted])):
                raise InvalidArgumentError(
                    f"its variable {wanted!r} has not one number for each record; choose from "
                    f"{', '.join(list(times)[:8]) or 'none'}",
                    str(self.path),
                )
            return of_records[wanted]
        for name in (self.record_dimension, "time"):
            if name in times:
                return times[name]
        if "Times" in of_records and _has_characters(of_records["Times"]):
            return of_records["Times"]
        found = [one for one in times.values() if _is_time(one._variable)]
        if len(found) == 1:
            return found[0]
        what = (
            f"several variables are times ({', '.join(one.name for one in found[:8])})" if found else "none is a time"
        )
        raise InvalidArgumentError(
            f"of its variables along {self.record_dimension}, {what}: name it (time=, --time), or count steps "
            "(time=None, --count), which cannot tell what was written before",
            str(self.path),
        )

    def _wrf_seconds(self, text: NDArray[Any], record: int) -> int:
        """Seconds since 1970 of a date as WRF writes it, ``2026-11-01_06:00:00``."""
        told = text.tobytes().decode("ascii", "replace")
        seconds = seconds_of(told)
        if seconds is None:
            raise CorruptError(
                f"record {record} has no time: {self._time_source} is {told[:40]!r}, not as 2026-11-01_06:00:00",
                str(self.path),
            )
        return seconds

    def _values(self, owner: str, holder: Any) -> Iterator[tuple[str, Any]]:
        """The attributes of a group or variable that a stream can hold."""
        for key in holder.ncattrs():
            reason = "the dimensions have their names under it" if owner and key == "dims" else ""
            value = None
            try:
                value = holder.getncattr(key)
            except (KeyError, RuntimeError, ValueError, TypeError) as error:
                reason = f"it cannot be read: {str(error)[:80]}"
            if isinstance(value, list):
                value = tuple(value)
            if not reason and not isinstance(value, str) and not _is_storable(value):
                reason = "it is neither texts nor numbers"
            if reason:
                self.left_out[f"attribute {owner}{key}"] = reason
            else:
                yield key, value

    @contextmanager
    def _damage(self, name: str) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError) as error:
            raise CorruptError(f"variable {name!r} cannot be read: {str(error)[:120]}", str(self.path)) from None


def _groups(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each group with what stands in front of its names."""
    yield path, group
    for name, inner in group.groups.items():
        yield from _groups(inner, f"{path}{name}/")


def _stored_dtype(variable: Any, name: str) -> tuple[str, np.dtype[Any]]:
    """Why a stream cannot hold it, empty if it can; and the type of its elements there."""
    if variable.dtype is str:
        return "", STRING_DTYPE
    if not isinstance(variable.datatype, np.dtype):
        return f"its elements are of a type of its own, {getattr(variable.datatype, 'name', '')}", STRING_DTYPE
    native = variable.dtype.newbyteorder("=")
    try:
        code_of(native, name)
    except InvalidArgumentError as error:
        return error.what, native
    return "", native


def _is_storable(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(isinstance(item, str) for item in value)
    return np.ndim(value) <= 1 and np.asarray(value).dtype.kind in "iuf" and np.size(value) > 0


def _is_time(variable: Any) -> bool:
    units = getattr(variable, "units", "")
    return isinstance(units, str) and " since " in units


def _has_characters(one: Field) -> bool:
    return one.dtype.kind == "S" and len(one.shape) == 1 and one._axis == 0
