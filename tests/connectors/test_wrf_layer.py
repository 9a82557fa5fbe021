# SPDX-License-Identifier: Apache-2.0
"""What WRF writes by its own ADIOS2 layer shows in xarray as its netCDF files do: names of dimensions, and times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import forebay
import forebay.connectors.xarray
from forebay.connectors import netcdf
from forebay.connectors.wrf_times import seconds_of, times_of
from forebay.dimensions import dims_of_wrf
from tests.support.adios2_programs import built, run
from tests.support.time_limits import seconds

HOURS = np.array(["2026-11-01T00", "2026-11-01T01", "2026-11-01T02"], "datetime64[ns]")
EXTENTS = {"bottom_top": 4, "south_north": 6, "west_east": 8, "west_east_stag": 9}


@pytest.fixture
def wrfout(reservation: str, tmp_path: Path) -> str:
    """The stream that the program's calls give."""
    address = f"{reservation}/wrfout"
    done = run(["--engine-for", "wrfout*"], [built("wrf_program")], tmp_path, {"FOREBAY_STREAM": address})
    assert done.returncode == 0, done.stderr
    return address


def test_xarray_shows_the_dimensions_and_times_of_wrf(wrfout: str) -> None:
    with xr.open_dataset(f"forebay://{wrfout}", engine="forebay") as dataset:
        assert dataset["T"].dims == ("step", "bottom_top", "south_north", "west_east")
        assert dataset["U"].dims == ("step", "bottom_top", "south_north", "west_east_stag")
        assert dataset["XLAT"].dims == ("step", "south_north", "west_east")
        assert {name: dataset.sizes[name] for name in EXTENTS} == EXTENTS
        assert dataset["T"].attrs["units"] == "K"
        assert dataset["T"].attrs["MemoryOrder"] == "XYZ"
        np.testing.assert_array_equal(dataset["time"].values, HOURS)
        assert dataset["Times"].values.tolist()[2] == "2026-11-01_02:00:00"
        assert dataset.attrs["TITLE"] == "OUTPUT FROM WRF V4.6.0 MODEL"
        expected = 2000 + np.arange(4 * 6 * 8, dtype=np.float32).reshape(4, 6, 8)
        np.testing.assert_array_equal(dataset["T"].isel(step=2), expected)
        at_noon = dataset.swap_dims(step="time").sel(time="2026-11-01T01:00")
        assert float(at_noon["T"][0, 0, 0]) == 1000.0


def test_each_step_has_them_while_wrf_runs(wrfout: str) -> None:
    steps = list(forebay.connectors.xarray.follow(wrfout, timeout=seconds(30)))
    assert [step["T"].dims for step in steps] == [("bottom_top", "south_north", "west_east")] * 3
    np.testing.assert_array_equal([step["time"].values for step in steps], HOURS)


def test_it_becomes_a_netcdf_file(wrfout: str, tmp_path: Path) -> None:
    assert netcdf.export(wrfout, tmp_path / "wrfout.nc") == 3
    with xr.open_dataset(tmp_path / "wrfout.nc") as dataset:
        assert dataset["T"].dims[1:] == ("bottom_top", "south_north", "west_east")
        assert dataset["Times"].values.tolist()[0] == "2026-11-01_00:00:00"


@pytest.mark.parametrize(
    ("value", "dimensions", "names"),
    [
        (("west_east", "south_north", "Time"), 2, ("south_north", "west_east")),
        (("west_east", "south_north", "Time"), 3, None),
        (("west_east", "south_north"), 2, None),
        (("DIM0005", "DIM0005", "Time"), 2, None),
        (("Time",), 1, None),
        ("Time", 1, None),
        (None, 1, None),
        (np.array([1.0]), 1, None),
    ],
    ids=str,
)
def test_only_dims_that_fit_are_taken_for_wrf_s(value: object, dimensions: int, names: object) -> None:
    assert dims_of_wrf(value, dimensions) == names


def test_only_times_of_wrf_are_taken_for_times() -> None:
    assert seconds_of("1970-01-02_00:00:01 ") == 86401
    for text in ("2026-02-30_00:00:00", "2026-11-01 00:00:00", "0000-00-00_00:00:00", "", "٢026-11-01_00:00:00"):
        assert seconds_of(text) is None
    assert times_of(["2026-11-01_00:00:00", "no time"]) is None
    assert times_of([3]) is None
