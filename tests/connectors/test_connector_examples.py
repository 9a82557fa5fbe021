# SPDX-License-Identifier: Apache-2.0
"""The examples of xarray, Dask, Arrow, Zarr and files run as their heads say."""

from __future__ import annotations

import pytest

from tests.support.example_programs import demo_reservation, lines_of

__all__ = ["demo_reservation"]

pytestmark = pytest.mark.usefixtures("demo_reservation")


@pytest.mark.timeout(240)
def test_xarray() -> None:
    assert lines_of("05_xarray.py", "demo/waves") == [
        "step 0, t = 0.0: highest 1.000",
        "step 10, t = 1.0: highest 1.000",
        "{'step': 20, 'dim_0_64': 64, 'dim_1_64': 64}, 80 chunks, m",
        "energy at t = 1.5: 0.2578",
    ]


@pytest.mark.timeout(240)
def test_dask_per_step() -> None:
    assert lines_of("06_dask_per_step.py", "demo/cells") == [
        *(f"step {number}: peak at {10 + number} Hz" for number in range(8)),
        "the consumer spectrum is 0 steps behind",
    ]


def test_arrow() -> None:
    assert lines_of("07_arrow.py", "demo/dust") == [
        "step 4: 10000 particles, True that some are far out",
        "density: [64] of float",
        *(f"step {number}: mass 5000" for number in range(5)),
        "(4, [10000], True)",
    ]


def test_training() -> None:
    lines = lines_of("14_training.py", "demo/oscillator")
    assert [line.partition(":")[0] for line in lines[:4]] == [f"step {number}" for number in range(0, 20, 5)]
    errors = [float(line.rpartition(" ")[2]) for line in lines[:4]]
    assert errors[0] > 0.5
    assert errors[3] < 0.01
    assert lines[4] == "learned a turn by 0.30"


def test_zarr_and_files() -> None:
    assert lines_of("08_zarr_and_files.py", "demo/field") == [
        "(4, 64, 64) in chunks of (1, 32, 32)",
        "kept: [0.0, 1.0, 2.0, 3.0]",
    ]


@pytest.mark.timeout(240)
def test_history() -> None:
    lines = lines_of("29_history.py", "demo")
    records = [line for line in lines if "degC at" in line]
    assert records[0] == "2026-11-01T00: 25.0 degC at 60 E"
    assert records[7] == "2026-11-02T18: 25.0 degC at 186 E"
    assert len(records) == 8
    assert sorted(set(lines) - set(records)) == [
        "8 records of 4 files are steps",
        "all.nc: int16 {'time': 8, 'lat': 60, 'lon': 120}",
        "{'step': 8, 'lat': 60, 'lon': 120}, bit by bit as in the files",
    ]
