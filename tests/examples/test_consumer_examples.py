# SPDX-License-Identifier: Apache-2.0
"""The examples of consumers run as their heads say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.support.staging_server import StagingServer

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server with the reservation `demo`."""
    with StagingServer(tmp_path / "root") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("demo", "256MiB")
        yield


def lines_of(example: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, EXAMPLES / example, *arguments], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


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


def test_zarr_and_files() -> None:
    assert lines_of("08_zarr_and_files.py", "demo/field") == [
        "(4, 64, 64) in chunks of (1, 32, 32)",
        "kept: [0.0, 1.0, 2.0, 3.0]",
    ]


@pytest.mark.timeout(240)
def test_tomography(tmp_path: Path) -> None:
    lines = lines_of("09_tomography.py", "demo/scan", "--out", str(tmp_path / "slices"))
    assert [line.partition(",")[0] for line in lines] == [f"{angles} projections" for angles in range(30, 181, 30)]
    assert lines[-1].endswith("at column 80.0")
    assert len(list((tmp_path / "slices").glob("after_*.png"))) == 6


def test_publish_for_paraview(tmp_path: Path) -> None:
    lines = lines_of("10_publish_for_paraview.py", "demo/bump", str(tmp_path / "plots"))
    assert lines == [
        f"6 steps published; open {tmp_path / 'plots' / 'bump.pvd'}",
        "27648 cells from 0 to 4.8: at most 1.00",
    ]


@pytest.mark.timeout(240)
def test_view(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    assert lines_of("11_view.py", "demo/waves", str(folder)) == [
        f"12 steps drawn; {folder / 'waves.mp4'}",
        f"1 steps drawn; {folder / 'last.png'}",
    ]
    assert (folder / "waves.mp4").stat().st_size > 10_000
