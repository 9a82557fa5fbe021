# SPDX-License-Identifier: Apache-2.0
"""Writes small history files as WRF, MOM and NEMO do, of known content, by netCDF4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

__all__ = ["FORMATS", "MODELS", "mom_file", "nemo_file", "wrf_file"]

FORMATS = ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4_CLASSIC", "NETCDF4")


def _field(shape: Sequence[int], record: int, name: str, dtype: str = "f4") -> Any:
    """Elements that no other record or variable has."""
    return np.random.default_rng([record, *name.encode()]).uniform(-50, 50, shape).astype(dtype)


def wrf_file(path: Path, records: Sequence[int], form: Any = "NETCDF4_CLASSIC", west_east: int = 8) -> Path:
    """As WRF: one record an hour, times as characters, coordinates that depend on time, staggered dimensions."""
    extents = {"bottom_top": 4, "south_north": 6, "west_east": west_east, "west_east_stag": west_east + 1}
    with netCDF4.Dataset(path, "w", format=form) as file:
        file.createDimension("Time", None)
        file.createDimension("DateStrLen", 19)
        for name, extent in extents.items():
            file.createDimension(name, extent)
        file.TITLE = " OUTPUT FROM WRF V4.6.0 MODEL"
        file.setncatts({"DX": np.float32(3000), "MAP_PROJ": np.int32(1), "history": f"of {path.name}"})
        file.createVariable("Times", "S1", ("Time", "DateStrLen"))
        minutes = file.createVariable("XTIME", "f4", ("Time",))
        minutes.setncatts({"units": "minutes since 2026-11-01 00:00:00", "description": "minutes since start"})
        for name, dims in {
            "XLAT": ("south_north", "west_east"),
            "XLONG": ("south_north", "west_east"),
            "T": ("bottom_top", "south_north", "west_east"),
            "U": ("bottom_top", "south_north", "west_east_stag"),
        }.items():
            variable = file.createVariable(name, "f4", ("Time", *dims))
            variable.setncatts({"FieldType": np.int32(104), "MemoryOrder": "XYZ"[: len(dims)], "stagger": ""})
            variable.units = "m s-1" if name == "U" else "K"
            variable.coordinates = "XLONG XLAT XTIME"
        for place, hour in enumerate(records):
            date = datetime(2026, 11, 1) + timedelta(hours=hour)
            file["Times"][place] = np.array(list(f"{date:%Y-%m-%d_%H:%M:%S}"), "S1")
            minutes[place] = 60 * hour
            for name in ("XLAT", "XLONG"):
                file[name][place] = _field((6, west_east), 0, name)
            for name in ("T", "U"):
                file[name][place] = _field(file[name].shape[1:], hour, name)
    return path


def mom_file(path: Path, records: Sequence[int], form: Any = "NETCDF4", units: str = "days since 1900-01-01") -> Path:
    """As MOM: a mean for each day of a calendar without leap days, bounds of time, packed and filled elements."""
    with netCDF4.Dataset(path, "w", format=form) as file:
        for name, extent in {"time": None, "st_ocean": 3, "yt_ocean": 5, "xt_ocean": 7, "nv": 2}.items():
            file.createDimension(name, extent)
        file.filename = path.name
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts({"units": units, "calendar": "noleap", "bounds": "time_bnds", "axis": "T"})
        file.createVariable("time_bnds", "f8", ("time", "nv"))
        for name in ("st_ocean", "yt_ocean", "xt_ocean"):
            axis = file.createVariable(name, "f8", (name,))
            axis.units = "meters" if name == "st_ocean" else "degrees"
            axis[:] = _field(axis.shape, 0, name, "f8")
        file.createVariable("geolat_t", "f4", ("yt_ocean", "xt_ocean"))[:] = _field((5, 7), 0, "geolat_t")
        dims = ("time", "st_ocean", "yt_ocean", "xt_ocean")
        temperature = file.createVariable("temp", "f4", dims, fill_value=np.float32(-1e20))
        temperature.setncatts({"units": "degrees C", "missing_value": np.float32(-1e20), "coordinates": "geolat_t"})
        salt = file.createVariable("salt", "i2", dims, fill_value=np.int16(-32768))
        salt.setncatts({"units": "psu", "scale_factor": 0.001, "add_offset": 30.0})
        salt.set_auto_maskandscale(False)
        for place, day in enumerate(records):
            time[place] = day + 0.5
            file["time_bnds"][place] = [day, day + 1]
            values = _field((3, 5, 7), day, "temp")
            values[0, 0] = -1e20
            temperature[place] = values
            packed = (_field((3, 5, 7), day, "salt") * 100).astype("i2")
            packed[1, 1] = -32768
            salt[place] = packed
    return path


def nemo_file(path: Path, records: Sequence[int], form: Any = "NETCDF4") -> Path:
    """As NEMO by XIOS: ``time_counter``, two-dimensional coordinates without time, bounds."""
    with netCDF4.Dataset(path, "w", format=form) as file:
        for name, extent in {"time_counter": None, "deptht": 3, "y": 5, "x": 7, "axis_nbounds": 2}.items():
            file.createDimension(name, extent)
        file.setncatts({"Conventions": "CF-1.6", "description": "ocean T grid variables"})
        for name in ("nav_lat", "nav_lon"):
            variable = file.createVariable(name, "f4", ("y", "x"))
            variable.setncatts({"standard_name": "latitude", "units": "degrees_north"})
            variable[:] = _field((5, 7), 0, name)
        file.createVariable("deptht", "f4", ("deptht",)).units = "m"
        file["deptht"][:] = np.array([0.5, 1.6, 2.8], "f4")
        file.createVariable("rho0", "f8", ())[...] = 1026.0
        for name in ("time_counter", "time_centered"):
            variable = file.createVariable(name, "f8", ("time_counter",))
            variable.setncatts({"units": "seconds since 1900-01-01 00:00:00", "calendar": "gregorian"})
            variable.bounds = f"{name}_bounds"
            file.createVariable(f"{name}_bounds", "f8", ("time_counter", "axis_nbounds"))
        heat = file.createVariable("thetao", "f4", ("time_counter", "deptht", "y", "x"), fill_value=np.float32(1e20))
        heat.setncatts({"units": "degC", "coordinates": "time_centered nav_lat nav_lon", "cell_methods": "time: mean"})
        for place, day in enumerate(records):
            for name in ("time_counter", "time_centered"):
                file[name][place] = 3.9e9 + 86400 * day
                file[f"{name}_bounds"][place] = 3.9e9 + 86400 * np.array([day - 0.5, day + 0.5])
            values = _field((3, 5, 7), day, "thetao")
            values[:, 2, 2] = 1e20
            heat[place] = values
    return path


#: How to write a file, and what its dimension of records is called.
MODELS: dict[str, tuple[Callable[..., Path], str]] = {
    "wrf": (wrf_file, "Time"),
    "mom": (mom_file, "time"),
    "nemo": (nemo_file, "time_counter"),
}
