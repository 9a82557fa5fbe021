# SPDX-License-Identifier: Apache-2.0
"""FA and LFI files (Arome, Aladin, Harmonie, Arpège, Méso-NH) of a forecast cycle as steps of a stream, by epygram.

Steps are as those of GRIB files (`forebay.connectors.grib`), with the files' own names of fields:
``hybrid/TEMPERATURE`` for S001TEMPERATURE, S002TEMPERATURE, …, and ``FA/CLSTEMPERATURE``. Needs epygram.

>>> from forebay.connectors import fa
>>> fa.ingest(sorted(Path("run").glob("ICMSHAROM+????")), "run1/fc")
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from types import TracebackType
from typing import Any, Self

# pyproj comes before ecCodes: both bring PROJ, and in the other order the process crashes at its end.
if [name for name in sys.modules if name in ("eccodes", "pyproj")][:1] == ["eccodes"]:
    warnings.warn(
        "ecCodes was imported before pyproj, so this process may crash at its end: import forebay.connectors.fa first",
        RuntimeWarning,
        stacklevel=2,
    )
import pyproj  # noqa: F401, I001
import eccodes
import epygram
import numpy as np
from numpy.typing import NDArray

from forebay import WritableStream
from forebay.connectors.grib.ingesting import Files, Ingested
from forebay.connectors.grib.ingesting import ingest as ingest_fields
from forebay.connectors.grib.messages import GridPoints, Message, get
from forebay.errors import CorruptError, NotFoundError

__all__ = ["FaFiles", "ingest"]

# Of FA: levels of the model, of pressure in Pa, of height in metres, each with its number.
_LEVELS = {"S": "hybrid", "P": "isobaricInPa", "H": "heightAboveGround"}
_LEVEL_NAME = re.compile(r"([SPH])([0-9]{3,5})([A-Z].*)")
_GENERIC = (
    "discipline",
    "parameterCategory",
    "parameterNumber",
    "typeOfFirstFixedSurface",
)


@dataclass(frozen=True)
class _Field(Message):
    """A field of a file, by the identifier that epygram reads it with."""

    identifier: Any = None

    def __str__(self) -> str:
        return f"{self.path}, field {self.identifier}"


def ingest(files: Files, address: str | WritableStream, **options: Any) -> Ingested:
    """Writes a stream with a step for each valid time of FA or LFI files.

    Parameters and errors are those of :func:`forebay.connectors.grib.ingest`. ``where`` takes the keys ``name`` (of
    the file, ``S001TEMPERATURE``), ``format`` (FA or LFI) and ``position`` (on the grid's cell, as epygram says).
    """
    with FaFiles() as source:
        return ingest_fields(files, address, source=source, **options)


class FaFiles:
    """Reads FA and LFI files; one is open at a time. Use it by ``with``."""

    def __init__(self) -> None:
        epygram.init_env()
        self._path: Path | None = None
        self._file: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def messages(self, path: Path | str, where: Mapping[str, Sequence[Any]] | None) -> list[Message]:
        """The fields of a file that lie on its grid.

        Raises
        ------
        NotFoundError
            There is no such file.
        CorruptError
            epygram does not take it for FA or LFI.
        """
        path = Path(path)
        file = self._open(path)
        names = file.listfields()
        if file.format == "LFI":
            levels = {name: sum(other[0] == name for other in names) for name, _ in names}
        found: list[Message] = []
        for identifier in names:
            if file.format == "FA" and file.field_type(identifier) not in ("H2D", "?"):
                continue
            try:
                field = file.readfield(identifier, getdata=False)
            except Exception as error:  # epygram has many
                raise CorruptError(f"epygram cannot read it: {error}", f"{path}, field {identifier}") from None
            if not isinstance(field, epygram.fields.H2DField):
                continue
            if file.format == "FA":
                match = _LEVEL_NAME.fullmatch(identifier)
                kind, level = (_LEVELS[match[1]], float(match[2])) if match else ("FA", 0.0)
                name, full = (match[3] if match else identifier), identifier
                if match and match[1] == "P" and level == 0:
                    level = 100000.0  # of which the file's names have the last five digits
            else:
                full, number = identifier
                kind, level = ("modelLevel" if levels[full] > 1 else "LFI"), float(number or 0)
                name = full
            position = str(field.geometry.position_on_horizontal_grid)
            choice = {"name": full, "format": file.format, "position": position}
            if where is not None and any(choice.get(key) not in values for key, values in where.items()):
                continue
            validity = field.validity[0]
            basis, term = validity.getbasis(), validity.term()
            keys = _parameter(field.fid.get("generic", {})) | {"typeOfLevel": kind, "stepType": "instant"}
            duration = validity.cumulativeduration()
            if duration:
                keys |= {"stepType": "accum", "startStep": int((term - duration).total_seconds())}
            found.append(
                _Field(
                    path=path,
                    offset=0,
                    place=0,
                    name=f"{kind}/{re.sub('[^A-Za-z0-9_]', '_', name)}",
                    level=level,
                    member=0,
                    reference=int(basis.replace(tzinfo=UTC).timestamp()),
                    period=int(term.total_seconds()),
                    grid=f"{field.geometry.name} {sorted(field.geometry.dimensions.items())} {position}",
                    keys=keys,
                    identifier=identifier,
                )
            )
        if not found and where is None:
            raise CorruptError("it has no field on a grid", str(path))
        return found

    def grid(self, message: Message) -> tuple[GridPoints, dict[str, Any]]:
        """The points without the extension zone, each with latitude and longitude."""
        field = self._field(message, values=False)
        longitude, latitude = field.geometry.get_lonlat_grid(**_inner(field))
        shape = tuple(int(extent) for extent in np.shape(latitude))
        # Of reduced grids epygram masks what is beside a row's points.
        if np.ma.isMaskedArray(latitude) and latitude.mask.any():
            inside = ~np.ma.getmaskarray(latitude)
            latitude, longitude = latitude.data[inside], longitude.data[inside]
            return GridPoints(("values",), latitude.shape, latitude, longitude, False), {"gridType": "reduced_gg"}
        arrays = (np.ma.getdata(latitude).astype(np.float64), np.ma.getdata(longitude).astype(np.float64))
        return GridPoints(("y", "x"), shape, *arrays, False), {"gridType": str(field.geometry.name)}

    def read(self, message: Message, points: GridPoints, out: NDArray[Any]) -> None:
        """Reads a field; spectral ones are transformed to the grid first."""
        field = self._field(message, values=True)
        if field.spectral:
            field.sp2gp()
        values = field.getdata(**_inner(field))
        if points.dims == ("values",):
            values = np.ma.getdata(values)[~np.ma.getmaskarray(values)]
        out[...] = np.ma.filled(values.astype(np.float64), np.nan) if np.ma.isMaskedArray(values) else values

    def _field(self, message: Message, *, values: bool) -> Any:
        assert isinstance(message, _Field)
        try:
            return self._open(message.path).readfield(message.identifier, getdata=values)
        except Exception as error:
            raise CorruptError(f"epygram cannot read it: {error}", str(message)) from None

    def _open(self, path: Path) -> Any:
        if self._path != path:
            self._close()
            _check_whole(path)
            try:
                self._file = epygram.formats.resource(os.fspath(path), "r")
            except Exception as error:
                raise CorruptError(f"it is no FA or LFI file, or not whole: {str(error)[:120]}", str(path)) from None
            self._path = path
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._path = None, None


def _check_whole(path: Path) -> None:
    """Refuses what the library under epygram would end the process for.

    A file is made up of records of one length. Its first words say that length in words, the length of names, whether
    the file was left open (0: it was closed), the number of words of this kind, and the number of records.
    """
    try:
        size = path.stat().st_size
        words = np.fromfile(path, ">i8", 5)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise NotFoundError("there is no such file", str(path)) from None
    if words.size < 5 or words[1] != 16 or words[3] != 22 or not 0 < words[0] < 1 << 40 or words[4] <= 0:
        raise CorruptError("it is no FA or LFI file", str(path))
    if words[2] != 0 or size < 8 * int(words[0]) * int(words[4]):
        raise CorruptError("it is cut off, or its program has not closed it: give it when it is whole", str(path))


def _inner(field: Any) -> dict[str, str]:
    """Without the rows and columns that make a field of a limited area periodic."""
    return {"subzone": "CI"} if field.geometry.grid.get("LAMzone") == "CIE" else {}


def _parameter(generic: Mapping[str, Any]) -> dict[str, Any]:
    """What ecCodes says of the parameter, if it knows it."""
    handle = eccodes.codes_grib_new_from_samples("GRIB2")
    try:
        for key in _GENERIC:
            if key in generic:
                eccodes.codes_set(handle, key, int(generic[key]))
        if str(get(handle, "shortName", str, "unknown")) == "unknown":
            return {}
        return {
            key: value
            for key in ("paramId", "shortName", "name", "units", "cfName")
            if (value := get(handle, key)) not in (None, "unknown", "undef")
        }
    except eccodes.CodesInternalError:
        return {}
    finally:
        eccodes.codes_release(handle)
