# SPDX-License-Identifier: Apache-2.0
"""What all extras bring can be installed together, and the wheel works with it: with Snakemake, which wants an older
SQLAlchemy than the manager takes by itself, with each NumPy, and with the oldest and a newer Python.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

#: All but Ray, which is large and has a suite of its own.
EXTRAS = "viz,hdf5,xarray,dask,arrow,zarr,fsspec,snakemake,tomography"


@pytest.mark.parametrize(
    ("python", "numpy"),
    [
        pytest.param("python3.11", "2.4", id="python3.11-numpy2.4"),
        # NumPy 2.5 wants Python 3.12 or newer.
        pytest.param("python3.13", "2.4", id="python3.13-numpy2.4"),
        pytest.param("python3.13", "2.5", id="python3.13-numpy2.5"),
    ],
)
@pytest.mark.timeout(1800)
def test_all_extras_work_together(python: str, numpy: str) -> None:
    if shutil.which(python) is None:
        pytest.skip(f"{python} is not installed (Debian 12 has python3.11 alone)")
    requirements = ["snakemake>=9.27", "sqlalchemy<2.1", f"numpy=={numpy}.*"]
    command = ["scripts/test-wheel", python, EXTRAS, *requirements]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("the wheel works\n")
