# SPDX-License-Identifier: Apache-2.0
"""xarray on files that a stream was staged out to: dimensions, coordinates and units, as in the stream."""

from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr

from tests.integration.test_stage_kinds import named, stage

__all__ = ["named"]


@pytest.mark.parametrize("form", ["hdf5", "all.h5"])
def test_xarray_opens_staged_hdf5_with_dimensions_and_units(named: str, tmp_path: Path, form: str) -> None:
    output = stage(named, tmp_path, form)
    steps = () if form == "hdf5" else ("forebay_step",)
    with xr.open_dataset(output, engine="h5netcdf", phony_dims="sort") as dataset:
        assert dataset["T"].attrs["units"] == "K"
        assert dataset["T"].dims == (*steps, "y", "x")
        assert dataset["x"].dims == ("x",)
        assert dataset["T"].sel(x=1 / 3, method="nearest").isel(y=0).values.tolist() == (
            1.0 if not steps else [1.0, 2.0]
        )
        assert "y" not in dataset.variables
        if steps:
            assert dataset["forebay_step"].values.tolist() == [0, 1]
            assert dataset["plain"].dims == ("forebay_step", "dim_0_3")
        else:
            assert dataset.attrs["forebay_step"] == 0
