# SPDX-License-Identifier: Apache-2.0
"""Steps become GRIB files: a GRIB2 message for each field, packed or as IEEE numbers, on the step's own grid."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import eccodes
import numpy as np
from numpy.typing import NDArray

from forebay import Step, Variable
from forebay.connectors.grib.layout import level_kind_of
from forebay.datatypes import AttributeValue
from forebay.errors import InvalidArgumentError, UnsupportedError
from forebay.new_output import new_output

__all__ = ["FilesOfSteps", "Packing", "write_file"]

Packing: TypeAlias = Literal["simple", "ieee"]

BITS_DEFAULT = 16
_MISSING = float(np.finfo(np.float32).max)
# Degrees by which points may lie beside those that the stream has: GRIB2 keeps a millionth.
_APART_MAX = 2e-6
# Of the grid, and set before the others, on which they depend.
_FIRST = ("gridType", "shapeOfTheEarth", "N", "Ni", "Nj", "Nx", "Ny", "pl")
_PARAMETER_NUMBERS = ("discipline", "parameterCategory", "parameterNumber")


class FilesOfSteps:
    """A folder with a GRIB file for each step, ``NAME.000006.grib2``, each of which appears whole.

    Parameters
    ----------
    folder : Path
        Made if need be.
    name : str
        Of the stream.
    bits, packing
        As in :func:`write_file`.
    """

    def __init__(self, folder: Path | str, name: str, *, bits: int | None = None, packing: Packing = "simple") -> None:
        self._folder, self._name, self._bits, self._packing = Path(folder), name, bits, packing
        self._folder.mkdir(parents=True, exist_ok=True)

    def path(self, number: int) -> Path:
        """The file of a step."""
        return self._folder / f"{self._name}.{number:06d}.grib2"

    def write(self, step: Step) -> dict[str, str]:
        """Writes a step's file; returns the variables that are not in it, with the reason."""
        return write_file(step, self.path(step.number), bits=self._bits, packing=self._packing)


def write_file(step: Step, path: Path | str, *, bits: int | None = None, packing: Packing = "simple") -> dict[str, str]:
    """Writes a step's fields as GRIB2 messages, field by field. The file appears whole, on disk.

    Parameters
    ----------
    bits : int, optional
        Bits a value for ``simple`` packing, 1 to 32. A value is off by at most (max - min) / (2**bits - 1) of its
        field. None: as many as the variable's attribute ``GRIB_bitsPerValue`` says, else 16.
    packing : "simple" or "ieee"
        ``ieee``: floating-point numbers of the variable's own size, without loss.

    Returns
    -------
    dict of str to str
        The variables that are not in the file, with the reason.

    Raises
    ------
    InvalidArgumentError
        No variable says which parameter it is, or the step has no forecast time.
    UnsupportedError
        The grid cannot be said in GRIB2 so that readers find the points where the stream has them.
    """
    if bits is not None and not 1 <= bits <= 32:
        raise InvalidArgumentError(f"bits are 1 to 32, not {bits}")
    if packing not in ("simple", "ieee"):
        raise InvalidArgumentError(f"packing is simple or ieee, not {packing!r}")
    path = Path(path)
    left_out: dict[str, str] = {}
    chosen: list[Variable] = []
    described = {"time", "forecast_reference_time", "forecast_period", "latitude", "longitude", "number"}
    for name, variable in step.items():
        if name in described or (variable.dims == (name.rpartition("/")[2],)):
            continue
        if reason := _reason_to_leave_out(variable, step):
            left_out[name] = reason
        else:
            chosen.append(variable)
    if not chosen:
        name, reason = next(iter(left_out.items()), ("", "it has no field"))
        raise InvalidArgumentError(f"there is no field for a GRIB file: {name}: {reason}", str(step.address))
    try:
        with _head(step, chosen[0]) as head, new_output(path) as hidden, hidden.open("wb") as file:
            for variable in chosen:
                for message in _messages(step, variable, head, bits, packing):
                    eccodes.codes_write(message, file)
            file.flush()
            os.fsync(file.fileno())
    except eccodes.CodesInternalError as error:
        raise UnsupportedError(f"ecCodes cannot say it in GRIB2: {error}", str(step.address)) from None
    return left_out


def _reason_to_leave_out(variable: Variable, step: Step) -> str:
    attributes = step.attributes
    if not any(f"{variable.name}/GRIB_{key}" in attributes for key in ("paramId", "shortName")):
        return f"no attribute {variable.name}/GRIB_shortName says which parameter it is"
    if variable.dims is None or variable.dims[-1] not in ("longitude", "x", "values"):
        return "its last dimension is not longitude, x or values"
    if variable.dtype.kind not in "fiu":
        return f"{variable.dtype} is no type of GRIB"
    return ""


@contextmanager
def _head(step: Step, variable: Variable) -> Iterator[Any]:
    """A message with grid and times, without parameter and values."""
    handle = eccodes.codes_grib_new_from_samples("GRIB2")
    try:
        if centre := step.attributes.get("GRIB_centre"):
            eccodes.codes_set(handle, "centre", centre)
        if "GRIB_subCentre" in step.attributes:
            eccodes.codes_set(handle, "subCentre", int(step.attributes["GRIB_subCentre"]))
        _set_grid(handle, step, variable)
        yield handle
    finally:
        eccodes.codes_release(handle)


def _set_grid(handle: Any, step: Step, variable: Variable) -> None:
    """Says the grid, and checks that the points lie where the stream has them."""
    attributes = step.attributes
    dims = tuple(variable.dims or ())
    shape = variable.shape
    if dims[-2:] == ("latitude", "longitude") and attributes.get("GRIB_gridType", "regular_ll") == "regular_ll":
        keys = _regular_keys(step)
    else:
        keys = {
            name.removeprefix("GRIB_"): value
            for name, value in attributes.items()
            if name.startswith("GRIB_") and name.count("/") == 0
        }
        if "gridType" not in keys:
            raise UnsupportedError(
                "only fields of (latitude, longitude) need no attributes GRIB_gridType, GRIB_Nx, …", str(step.address)
            )
    geography = {name: keys[name] for name in _FIRST if name in keys} | {
        name: value for name, value in keys.items() if name not in _NO_GEOGRAPHY and name not in _FIRST
    }
    for name, value in geography.items():
        if name == "pl":
            eccodes.codes_set_array(handle, name, np.asarray(value, np.int64))
        elif name == "gridType" and value != "regular_ll":
            eccodes.codes_set(handle, name, str(value))
        elif name != "gridType":
            eccodes.codes_set(handle, name, value.item() if isinstance(value, np.generic) else value)
    points = math.prod(shape[-2:] if dims[-1] != "values" else shape[-1:])
    eccodes.codes_set_values(handle, np.zeros(points))
    if "latitude" not in step or "longitude" not in step:
        return
    latitude, longitude = step["latitude"][...], step["longitude"][...]
    if latitude.ndim == longitude.ndim == 1 and dims[-1] == "longitude":
        latitude, longitude = np.meshgrid(latitude, longitude, indexing="ij")
    for name, wanted in (("latitudes", latitude), ("longitudes", longitude)):
        found = eccodes.codes_get_array(handle, name)
        apart = np.abs(found - np.asarray(wanted, np.float64).reshape(-1)) if found.size == wanted.size else np.inf
        apart = np.minimum(apart, np.abs(apart - 360)) if name == "longitudes" else apart
        if np.max(apart) > _APART_MAX:
            raise UnsupportedError(
                f"the {keys['gridType']} grid's {name} would be off by {np.max(apart):g} degrees in GRIB2: its points "
                "are not evenly spaced, or its attributes GRIB_… are those of another grid",
                str(step.address),
            )


def _regular_keys(step: Step) -> dict[str, Any]:
    keys: dict[str, Any] = {"gridType": "regular_ll"}
    if "GRIB_shapeOfTheEarth" in step.attributes:
        keys["shapeOfTheEarth"] = step.attributes["GRIB_shapeOfTheEarth"]
    missing = [name for name in ("latitude", "longitude") if name not in step or step[name].shape == ()]
    if missing:
        raise InvalidArgumentError(f"there are no coordinates {missing[0]!r} along the fields", str(step.address))
    for name, axis, count in (("longitude", "i", "Ni"), ("latitude", "j", "Nj")):
        places = np.asarray(step[name][...], np.float64)
        keys[count] = int(places.size)
        keys[f"{name}OfFirstGridPointInDegrees"] = float(places[0])
        keys[f"{name}OfLastGridPointInDegrees"] = float(places[-1])
        if places.size > 1:
            keys[f"{axis}DirectionIncrementInDegrees"] = float(abs(places[-1] - places[0]) / (places.size - 1))
        grows = bool(places[-1] >= places[0])
        keys["jScansPositively" if axis == "j" else "iScansNegatively"] = int(grows == (axis == "j"))
    return keys


def _messages(step: Step, variable: Variable, head: Any, bits: int | None, packing: Packing) -> Iterator[Any]:
    """A message for each member and level of a variable."""
    own = {
        name.removeprefix(f"{variable.name}/"): value
        for name, value in step.attributes.items()
        if name.startswith(f"{variable.name}/")
    }
    dims = tuple(variable.dims or ())
    horizontal = 1 if dims[-1] == "values" else 2
    if variable.shape[-horizontal:] != _shape_of(head, horizontal):
        raise UnsupportedError(
            f"{variable.name} has a grid of {variable.shape[-horizontal:]}: a GRIB file has one grid", str(step.address)
        )
    members: tuple[int, ...] | None = None
    if "GRIB_number" in step.attributes:
        members = (int(step.attributes["GRIB_number"]),)
    levels: tuple[float, ...] | None = (float(own["level"]),) if "level" in own else None
    for dim in dims[:-horizontal]:
        if dim in step and dim.startswith("number"):
            members = tuple(int(place) for place in step[dim][...])
        elif (full := f"{level_kind_of(variable.name)}/{dim}") in step:
            levels = tuple(float(place) for place in step[full][...])
        else:
            raise UnsupportedError(
                f"{variable.name} has the dimension {dim}, which is neither members nor levels", str(step.address)
            )
    handle = eccodes.codes_clone(head)
    try:
        _set_parameter(handle, step, own, ensemble=members is not None)
        _set_packing(handle, own, variable.dtype, bits, packing)
        values = variable[...].reshape(len(members or (0,)), len(levels or (0,)), *variable.shape[-horizontal:])
        for along, member in enumerate(members or (0,)):
            if members is not None:
                eccodes.codes_set(handle, "number", member)
                eccodes.codes_set(handle, "totalNumber", int(step.attributes.get("GRIB_totalNumber", len(members))))
            for across, level in enumerate(levels or (0.0,)):
                if levels is not None:
                    eccodes.codes_set(handle, "typeOfLevel", str(own["GRIB_typeOfLevel"]))
                    eccodes.codes_set(handle, "level", int(level) if level.is_integer() else level)
                _set_values(handle, np.asarray(values[along, across], np.float64))
                yield handle
    finally:
        eccodes.codes_release(handle)


def _shape_of(handle: Any, horizontal: int) -> tuple[int, ...]:
    if horizontal == 1:
        return (int(eccodes.codes_get_size(handle, "values")),)
    return int(eccodes.codes_get_long(handle, "Ny")), int(eccodes.codes_get_long(handle, "Nx"))


def _set_parameter(handle: Any, step: Step, own: Mapping[str, AttributeValue], *, ensemble: bool) -> None:
    if "forecast_reference_time" not in step or "time" not in step:
        raise InvalidArgumentError(
            "the step has no single values time and forecast_reference_time (seconds since 1970-01-01), which a GRIB "
            "file needs",
            str(step.address),
        )
    reference = int(step["forecast_reference_time"])
    period = int(step["time"]) - reference
    when = datetime.fromtimestamp(reference, UTC)
    if ensemble:
        eccodes.codes_set(handle, "productDefinitionTemplateNumber", 1)
    if int(own.get("GRIB_paramId", -1)) > 0:
        eccodes.codes_set(handle, "paramId", int(own["GRIB_paramId"]))
    elif all(f"GRIB_{key}" in own for key in _PARAMETER_NUMBERS):
        for key in _PARAMETER_NUMBERS:
            eccodes.codes_set(handle, key, int(own[f"GRIB_{key}"]))
    elif "GRIB_shortName" in own:
        eccodes.codes_set(handle, "shortName", str(own["GRIB_shortName"]))
    else:
        raise UnsupportedError(
            "a parameter of GRIB1 that ecCodes does not know has no name in GRIB2", str(step.address)
        )
    if "GRIB_typeOfLevel" in own and own["GRIB_typeOfLevel"] != "unknown":
        eccodes.codes_set(handle, "typeOfLevel", str(own["GRIB_typeOfLevel"]))
    eccodes.codes_set(handle, "dataDate", when.year * 10000 + when.month * 100 + when.day)
    eccodes.codes_set(handle, "dataTime", when.hour * 100 + when.minute)
    eccodes.codes_set(handle, "second", when.second)
    kind = str(own.get("GRIB_stepType", "instant"))
    if kind != "instant":
        if eccodes.codes_get(handle, "stepType") != kind:
            eccodes.codes_set(handle, "stepType", kind)
        eccodes.codes_set(handle, "stepRange", f"{_duration(int(own.get('GRIB_startStep', 0)))}-{_duration(period)}")
    else:
        eccodes.codes_set(handle, "stepRange", _duration(period))


def _set_packing(
    handle: Any, own: Mapping[str, AttributeValue], dtype: np.dtype[Any], bits: int | None, packing: Packing
) -> None:
    if packing == "ieee":
        eccodes.codes_set(handle, "packingType", "grid_ieee")
        eccodes.codes_set(handle, "precision", 2 if dtype.itemsize > 4 else 1)
        return
    chosen = bits if bits is not None else int(own.get("GRIB_bitsPerValue", 0)) or BITS_DEFAULT
    eccodes.codes_set(handle, "bitsPerValue", min(chosen, 32))


def _set_values(handle: Any, values: NDArray[np.float64]) -> None:
    missing = np.isnan(values)
    eccodes.codes_set(handle, "bitmapPresent", int(missing.any()))
    if missing.any():
        eccodes.codes_set(handle, "missingValue", _MISSING)
        values = np.where(missing, _MISSING, values)
    eccodes.codes_set_values(handle, values.reshape(-1))


def _duration(seconds: int) -> str:
    """As ecCodes takes it: hours without a unit, else minutes or seconds."""
    if seconds % 3600 == 0:
        return str(seconds // 3600)
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"


_NO_GEOGRAPHY = {"md5GridSection", "centre", "subCentre", "edition", "totalNumber", "number", "missing"}
