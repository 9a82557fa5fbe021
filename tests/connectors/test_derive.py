# SPDX-License-Identifier: Apache-2.0
"""Derived streams with xarray: functions that take and give datasets, and packed elements that it unpacks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import forebay
from forebay.connectors.derive import derive

SHAPE = (4, 5)

MODULE = """
import xarray as xr

def anomaly(fields: xr.Dataset) -> xr.Dataset:
    made = xr.Dataset({"anomaly": fields["T"] - fields["T"].mean("x")})
    made["anomaly"].attrs["units"] = fields["T"].attrs["units"]
    return made

def one(fields: "xr.Dataset"):
    return fields["T"].max("y").rename("top")
"""


@pytest.fixture
def flow(reservation: str) -> str:
    """Three steps of ``T`` in two blocks."""
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        for number in range(3):
            with stream.step() as step:
                values = np.arange(20.0).reshape(SHAPE) + 100 * number
                step.write("T", values[:1], shape=SHAPE, start=(0, 0), dims=("y", "x"))
                step.write("T", values[1:], shape=SHAPE, start=(1, 0), dims=("y", "x"))
                step.attributes["T/units"] = "K"
    return address


def test_a_function_takes_and_gives_datasets(flow: str, tmp_path: Path) -> None:
    module = tmp_path / "anomalies.py"
    module.write_text(MODULE)
    derive(flow, f"{flow}-anomaly", function=f"{module}:anomaly")
    with forebay.open(f"{flow}-anomaly", timeout=0) as stream:
        found = stream[2]["anomaly"]
        np.testing.assert_array_equal(found[...], np.tile(np.arange(5.0) - 2, (4, 1)))
        assert found.dims == ("y", "x")
        assert found.attributes["units"] == "K"
        assert [block.count for block in found.blocks] == [(1, 5), (3, 5)]
    derive(flow, f"{flow}-top", function=f"{module}:one")
    with forebay.open(f"{flow}-top", timeout=0) as stream:
        assert stream[1]["top"].dims == ("x",)
        assert stream[1]["top"][...].tolist() == [115, 116, 117, 118, 119]


def test_packed_elements_of_one_range_are_unpacked_over_all_steps(flow: str) -> None:
    derive(flow, f"{flow}-packed", precision="bits=12:0:300")
    with xr.open_dataset(f"forebay://{flow}-packed", engine="forebay") as unpacked:
        expected = np.arange(20.0).reshape(1, *SHAPE) + 100 * np.arange(3).reshape(3, 1, 1)
        np.testing.assert_allclose(unpacked["T"].values, expected, atol=300 / 4094 / 2)
    derive(flow, f"{flow}-own", precision="bits=12")
    with xr.open_dataset(f"forebay://{flow}-own", engine="forebay") as left_out:
        assert "T" not in left_out
        assert "scale_factor" in left_out.attrs["forebay_left_out"][0] or "add_offset" in str(left_out.attrs)
