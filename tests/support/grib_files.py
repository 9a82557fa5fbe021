# SPDX-License-Identifier: Apache-2.0
"""Makes small GRIB files of known content with ecCodes: messages of a forecast cycle on grids of several kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import eccodes
import numpy as np
from numpy.typing import NDArray

__all__ = ["GRIDS", "content", "message", "write_cycle", "write_file"]

#: Keys of ecCodes by the name of a grid. What each needs is set in this order.
GRIDS: dict[str, dict[str, Any]] = {
    "regular": {
        "Ni": 12,
        "Nj": 7,
        "latitudeOfFirstGridPointInDegrees": 50.0,
        "latitudeOfLastGridPointInDegrees": 47.0,
        "longitudeOfFirstGridPointInDegrees": 2.0,
        "longitudeOfLastGridPointInDegrees": 7.5,
        "iDirectionIncrementInDegrees": 0.5,
        "jDirectionIncrementInDegrees": 0.5,
    },
    "northwards": {
        "Ni": 12,
        "Nj": 7,
        "jScansPositively": 1,
        "latitudeOfFirstGridPointInDegrees": 47.0,
        "latitudeOfLastGridPointInDegrees": 50.0,
        "longitudeOfFirstGridPointInDegrees": 2.0,
        "longitudeOfLastGridPointInDegrees": 7.5,
        "iDirectionIncrementInDegrees": 0.5,
        "jDirectionIncrementInDegrees": 0.5,
    },
    "lambert": {
        "gridType": "lambert",
        "Nx": 9,
        "Ny": 6,
        "DxInMetres": 2500,
        "DyInMetres": 2500,
        "LaDInDegrees": 46.7,
        "LoVInDegrees": 2.0,
        "Latin1InDegrees": 46.7,
        "Latin2InDegrees": 46.7,
        "latitudeOfFirstGridPointInDegrees": 45.0,
        "longitudeOfFirstGridPointInDegrees": 1.0,
        "jScansPositively": 1,
    },
}
#: Samples of ecCodes, which have a grid.
_SAMPLES = {"gaussian": "regular_gg_pl_grib2", "reduced": "reduced_gg_pl_32_grib2", "edition 1": "regular_ll_pl_grib1"}


def message(
    parameter: int,
    *,
    level: tuple[str, float] | None = None,
    step: int | str = 6,
    number: int | None = None,
    grid: str = "regular",
    bits: int = 16,
    scale: float = 1.0,
    missing: Sequence[int] = (),
    keys: Mapping[str, Any] | None = None,
) -> bytes:
    """A message whose values are those of :func:`content`.

    Parameters
    ----------
    parameter : int
        ECMWF's number: 130 for temperature, 167 at 2 m, 228 for precipitation.
    level : pair, optional
        Type of level, and level.
    step : int or str
        Hours, or as ecCodes takes it: "90m", "0-6".
    missing : sequence of int
        Points without a value.
    """
    handle = eccodes.codes_grib_new_from_samples(_SAMPLES.get(grid, "GRIB2"))
    try:
        for key, value in GRIDS.get(grid, {}).items():
            eccodes.codes_set(handle, key, value)
        if number is not None:
            eccodes.codes_set(handle, "productDefinitionTemplateNumber", 1)
        eccodes.codes_set(handle, "paramId", parameter)
        kind, place = level or ("surface", 0)
        eccodes.codes_set(handle, "typeOfLevel", kind)
        eccodes.codes_set(handle, "level", place)
        if number is not None:
            eccodes.codes_set(handle, "number", number)
        settings = {"dataDate": 20261127, "dataTime": 1200, "stepRange": str(step), "bitsPerValue": bits}
        for key, value in {**settings, **(keys or {})}.items():
            eccodes.codes_set(handle, key, value)
        points = eccodes.codes_get_long(handle, "numberOfPoints") if grid in _SAMPLES else _points(GRIDS[grid])
        values = content(parameter, place, str(step), number or 0, points) * scale
        if missing:
            eccodes.codes_set(handle, "bitmapPresent", 1)
            eccodes.codes_set(handle, "missingValue", 9999.0)
            values[list(missing)] = 9999.0
        eccodes.codes_set_values(handle, values)
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)


def content(parameter: int, level: float, step: str, number: int, points: int) -> NDArray[np.float64]:
    """What is packed: other numbers for each message."""
    seed = np.random.SeedSequence([parameter, int(level * 100), sum(map(ord, step)), number])
    return 250.0 + 20 * np.random.default_rng(seed).random(points)


def _points(keys: Mapping[str, Any]) -> int:
    return int(keys.get("Ni", keys.get("Nx", 0))) * int(keys.get("Nj", keys.get("Ny", 0)))


def write_file(path: Path, *messages: bytes) -> Path:
    """Writes messages one behind another."""
    path.write_bytes(b"".join(messages))
    return path


def write_cycle(path: Path, step: int, *, members: Sequence[int | None] = (None,), without: Sequence[int] = ()) -> Path:
    """A file as a model writes it: temperature on three levels of pressure, and at 2 m, precipitation since the start.

    Parameters
    ----------
    without : sequence of int
        Places in the file of messages that are left out.
    """
    found = [
        message(130, level=("isobaricInhPa", level), step=step, number=number)
        for number in members
        for level in (850, 500, 1000)
    ]
    found += [message(167, level=("heightAboveGround", 2), step=step, number=number) for number in members]
    if step:
        found += [message(228, step=f"0-{step}", number=number, scale=0.01) for number in members]
    return write_file(path, *(one for place, one in enumerate(found) if place not in without))
