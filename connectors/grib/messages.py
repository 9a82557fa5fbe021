# SPDX-License-Identifier: Apache-2.0
"""What the heads of GRIB messages say, and their values: the only place where GRIB is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Protocol

import eccodes
import numpy as np
from numpy.typing import NDArray

from forebay.errors import CorruptError, InvalidArgumentError, NotFoundError, UnsupportedError

__all__ = ["FieldFiles", "GribFiles", "GridPoints", "Message", "get", "read_messages"]

# Grids as cfgrib shows them: with coordinates along the dimensions, with coordinates of two dimensions; and a row of
# points for all others.
_ALONG_DIMENSIONS = {"regular_ll", "regular_gg"}
_TWO_DIMENSIONS = {
    "rotated_ll",
    "rotated_gg",
    "lambert",
    "lambert_azimuthal_equal_area",
    "albers",
    "polar_stereographic",
    "mercator",
}
# Beyond all values that fields have, and of single precision, as cfgrib has it.
_MISSING = float(np.finfo(np.float32).max)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Message:
    """What the head of one message says.

    Attributes
    ----------
    path : Path
        The file.
    offset : int
        Where the message begins, in bytes.
    place : int
        Which of the fields in the message it is: 0, but for files with several fields in a message.
    name : str
        Of the variable: type of level and name, ``isobaricInhPa/t``.
    level, member : float, int
        Where the field lies along the vertical and in the ensemble; 0 where there is none.
    reference, period : int
        Reference time in seconds since 1970, and time of the forecast after it, in seconds.
    grid : str
        Fingerprint of the grid.
    keys : mapping
        What else is said of the parameter, by the names of ecCodes.
    """

    path: Path
    offset: int
    place: int
    name: str
    level: float
    member: int
    reference: int
    period: int
    grid: str
    keys: Mapping[str, Any]

    @property
    def valid_time(self) -> int:
        """Seconds since 1970."""
        return self.reference + self.period

    def __str__(self) -> str:
        return f"{self.path}, byte {self.offset}"


@dataclass(frozen=True)
class GridPoints:
    """The points of a grid, as its fields lie in a stream.

    Attributes
    ----------
    dims, shape : tuple
        Of a field: (latitude, longitude), (y, x) or (values,).
    latitude, longitude : array or None
        In degrees: along the dimensions, or for each point. None where there are no points, as of spherical harmonics.
    alternates : bool
        Every second row goes from east to west in the file.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    latitude: NDArray[np.float64] | None
    longitude: NDArray[np.float64] | None
    alternates: bool

    @property
    def by_points(self) -> bool:
        """Latitude and longitude are those of each point, not along the dimensions."""
        return self.dims != ("latitude", "longitude")


class FieldFiles(Protocol):
    """A format of files with fields."""

    def messages(self, path: Path | str, where: Mapping[str, Sequence[Any]] | None) -> list[Message]:
        """The heads of a file's fields; those that ``where`` chooses."""

    def grid(self, message: Message) -> tuple[GridPoints, dict[str, Any]]:
        """Where its values lie, and what is said of the grid beside."""

    def read(self, message: Message, points: GridPoints, out: NDArray[Any]) -> None:
        """Decodes a field into an array of the grid's shape; NaN where it has no value."""


class GribFiles:
    """Files of GRIB messages, of both editions. The newest grid is kept: steps after steps have the same."""

    def __init__(self) -> None:
        self._grid: tuple[str, tuple[GridPoints, dict[str, Any]]] | None = None

    def messages(self, path: Path | str, where: Mapping[str, Sequence[Any]] | None) -> list[Message]:
        """See :func:`read_messages`."""
        return read_messages(path, where)

    def grid(self, message: Message) -> tuple[GridPoints, dict[str, Any]]:
        """Its points, and the keys of ecCodes that say the grid.

        Raises
        ------
        UnsupportedError
            The values go along meridians, or the rows of a regular grid are not alike.
        """
        if self._grid is None or self._grid[0] != message.grid:
            with _opened(message) as handle:
                self._grid = message.grid, (_grid_points(handle), _keys_of_grid(handle))
        return self._grid[1]

    def read(self, message: Message, points: GridPoints, out: NDArray[Any]) -> None:
        """Decodes a field.

        Raises
        ------
        CorruptError
            ecCodes cannot decode it.
        """
        with _opened(message) as handle:
            eccodes.codes_set(handle, "missingValue", _MISSING)
            values = eccodes.codes_get_values(handle)
            if values.size != math.prod(points.shape):
                raise CorruptError(f"it has {values.size} values for {math.prod(points.shape)} points", str(message))
            if get(handle, "bitmapPresent", int, 0):
                values[values == _MISSING] = np.nan
        field = values.reshape(points.shape)
        out[...] = field
        if points.alternates:
            out[1::2] = field[1::2, ::-1]


def get(handle: Any, key: str, kind: type | None = None, default: Any = None) -> Any:
    """A key's value; the default where the message has none."""
    try:
        return eccodes.codes_get(handle, key, kind)
    except (eccodes.KeyValueNotFoundError, eccodes.FunctionNotImplementedError):
        return default


def read_messages(path: Path | str, where: Mapping[str, Sequence[Any]] | None = None) -> list[Message]:
    """The heads of all messages of a file.

    Parameters
    ----------
    where : mapping, optional
        Keys of ecCodes, with the values of those that are wanted: ``{"typeOfLevel": ["isobaricInhPa"]}``.

    Raises
    ------
    NotFoundError
        There is no such file.
    CorruptError
        It is no GRIB file, or a message is damaged or cut off; the text says where.
    """
    path = Path(path)
    found: list[Message] = []
    try:
        size = path.stat().st_size
        with path.open("rb") as file, _several_fields(file):
            end, last, place = 0, -1, 0
            while True:
                try:
                    handle = eccodes.codes_grib_new_from_file(file)
                except eccodes.CodesInternalError as error:
                    raise CorruptError(
                        f"a message is damaged or cut off ({error}): give the file when it is whole",
                        f"{path}, message {len(found)}, after byte {end}",
                    ) from None
                if handle is None:
                    break
                try:
                    offset = int(eccodes.codes_get_long(handle, "offset"))
                    place = place + 1 if offset == last else 0
                    last, end = offset, offset + int(eccodes.codes_get_long(handle, "totalLength"))
                    if where is None or all(_matches(handle, key, values) for key, values in where.items()):
                        found.append(_message(handle, path, offset, place))
                except eccodes.CodesInternalError as error:
                    raise CorruptError(f"its head lacks what a step needs ({error})", f"{path}, byte {end}") from None
                finally:
                    eccodes.codes_release(handle)
            file.seek(end)
            rest = file.read(size - end)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError("there is no such file", str(path)) from None
    if not end:
        raise CorruptError("it has no GRIB message", str(path))
    if rest.endswith((b"G", b"GR", b"GRI")):
        raise CorruptError("it ends where a message begins: give the file when it is whole", f"{path}, byte {size}")
    return found


@contextmanager
def _opened(message: Message) -> Iterator[Any]:
    """The message's handle of ecCodes, for a while."""
    handle = None
    try:
        with message.path.open("rb") as file:
            file.seek(message.offset)
            if message.place:
                with _several_fields(file):
                    for _ in range(message.place):
                        eccodes.codes_release(eccodes.codes_grib_new_from_file(file))
                    handle = eccodes.codes_grib_new_from_file(file)
            else:
                handle = eccodes.codes_grib_new_from_file(file)
        if handle is None:
            raise CorruptError("the message is gone: somebody changed the file", str(message))
        yield handle
    except FileNotFoundError:
        raise NotFoundError("the file went while it was read", str(message)) from None
    except eccodes.CodesInternalError as error:
        raise CorruptError(f"the message cannot be decoded ({error})", str(message)) from None
    finally:
        if handle is not None:
            eccodes.codes_release(handle)


def _grid_points(handle: Any) -> GridPoints:
    kind = str(eccodes.codes_get(handle, "gridType"))
    try:
        latitude = eccodes.codes_get_array(handle, "latitudes")
        longitude = eccodes.codes_get_array(handle, "longitudes")
    except eccodes.CodesInternalError:
        latitude = longitude = None
    if kind not in _ALONG_DIMENSIONS | _TWO_DIMENSIONS or latitude is None:
        count = int(get(handle, "numberOfPoints", int) or eccodes.codes_get_size(handle, "values"))
        return GridPoints(("values",), (count,), latitude, longitude, False)
    if get(handle, "jPointsAreConsecutive", int, 0):
        raise UnsupportedError(
            "its values go along meridians: rewrite it by grib_set or cdo, so that they go along rows"
        )
    alternates = bool(get(handle, "alternativeRowScanning", int, 0))
    shape = (int(eccodes.codes_get_long(handle, "Ny")), int(eccodes.codes_get_long(handle, "Nx")))
    latitude, longitude = latitude.reshape(shape), longitude.reshape(shape)
    if alternates:
        for places in (latitude, longitude):
            places[1::2] = places[1::2, ::-1].copy()
    if kind in _TWO_DIMENSIONS:
        return GridPoints(("y", "x"), shape, latitude, longitude, alternates)
    along, across = latitude[:, 0].copy(), longitude[0].copy()
    if (latitude != along[:, np.newaxis]).any() or (longitude != across).any():
        raise UnsupportedError(f"the rows of its {kind} grid are not alike")
    return GridPoints(("latitude", "longitude"), shape, along, across, alternates)


def _keys_of_grid(handle: Any) -> dict[str, Any]:
    """What the message says of its grid, by the names of ecCodes and in its order; without what is not set."""
    keys: dict[str, Any] = {"gridType": eccodes.codes_get(handle, "gridType")}
    if (shape := get(handle, "shapeOfTheEarth", int)) is not None:
        keys["shapeOfTheEarth"] = shape
    iterator = eccodes.codes_keys_iterator_new(handle, "geography")
    try:
        while eccodes.codes_keys_iterator_next(iterator):
            name = eccodes.codes_keys_iterator_get_name(iterator)
            if name == "pl":
                keys[name] = eccodes.codes_get_array(handle, name)
            elif name not in keys and not eccodes.codes_is_missing(handle, name):
                value = get(handle, name)
                if isinstance(value, str | int) or (isinstance(value, float) and abs(value) < 1e99):
                    keys[name] = value
    finally:
        eccodes.codes_keys_iterator_delete(iterator)
    return keys


@contextmanager
def _several_fields(file: IO[bytes]) -> Iterator[None]:
    """Fields that share a message, as u and v of NCEP's files do, come one by one."""
    eccodes.codes_grib_multi_support_on()
    eccodes.codes_grib_multi_support_reset_file(file)
    try:
        yield
    finally:
        eccodes.codes_grib_multi_support_off()


def _matches(handle: Any, key: str, values: Sequence[Any]) -> bool:
    found = get(handle, key)
    return found is not None and any(str(found) == str(value) or found == value for value in values)


def _message(handle: Any, path: Path, offset: int, place: int) -> Message:
    level_kind = str(get(handle, "typeOfLevel", str, "unknown"))
    name = str(get(handle, "cfVarName", str, "unknown"))
    unknown: dict[str, int] = {}
    if name == "unknown" or not _VARIABLE.fullmatch(name):
        # Its tables are not those of ecCodes: its numbers are its name.
        edition = int(eccodes.codes_get_long(handle, "edition"))
        numbers = (
            ("table2Version", "indicatorOfParameter")
            if edition == 1
            else ("discipline", "parameterCategory", "parameterNumber")
        )
        unknown = {key: int(eccodes.codes_get_long(handle, key)) for key in numbers}
        name = "_".join(["param", *map(str, unknown.values())])
    date, time = int(eccodes.codes_get_long(handle, "dataDate")), int(eccodes.codes_get_long(handle, "dataTime"))
    try:
        reference = datetime(
            date // 10000, date // 100 % 100, date % 100, time // 100, time % 100, get(handle, "second", int, 0), 0, UTC
        )
    except ValueError:
        raise InvalidArgumentError(
            f"its reference time is {date} {time:04d}, which is no time of a calendar", f"{path}, byte {offset}"
        ) from None
    keys = {
        key: value
        for key in ("paramId", "shortName", "name", "units", "cfName", "typeOfLevel", "stepType", "dataType", "centre")
        if (value := get(handle, key)) not in (None, "unknown", "undef")
    }
    keys |= unknown
    for key in ("edition", "subCentre", "bitsPerValue", "totalNumber"):
        if (number := get(handle, key, int)) is not None:
            keys[key] = number
    eccodes.codes_set(handle, "stepUnits", "s")
    period = int(eccodes.codes_get_long(handle, "endStep"))
    if keys.get("stepType", "instant") != "instant":
        keys["startStep"] = int(eccodes.codes_get_long(handle, "startStep"))  # in seconds
    return Message(
        path=path,
        offset=offset,
        place=place,
        name=f"{level_kind}/{name}",
        level=float(get(handle, "level", float, 0.0)),
        member=int(get(handle, "number", int, 0)),
        reference=int(reference.timestamp()),
        period=period,
        grid=str(eccodes.codes_get(handle, "md5GridSection")),
        keys=keys,
    )
