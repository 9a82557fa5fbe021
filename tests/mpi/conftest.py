# SPDX-License-Identifier: Apache-2.0
"""A server, and what is built against an ADIOS2 with MPI where ``ADIOS2_DIR`` names one."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.conftest import reservation, server

__all__ = ["MpiBuild", "reservation", "server"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class MpiBuild:
    """Where the plugin and the programs lie that were built against a site's ADIOS2 with MPI."""

    plugin: Path
    examples: Path
    programs: Path


def _cmake(source: Path, build: Path, *options: str, targets: tuple[str, ...] = ("all",)) -> None:
    for command in (
        ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options],
        ["cmake", "--build", str(build), "--target", *targets],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


@pytest.fixture(scope="session")
def mpi_build() -> MpiBuild:
    """Built in build/mpi as docs/adios2.md says, and kept for the next time.

    Where ``FOREBAY_ADIOS2_LIBRARY`` names a plugin for that ADIOS2 already, only the programs are built.
    """
    adios2_dir = os.environ.get("ADIOS2_DIR")
    if not adios2_dir:
        pytest.skip("ADIOS2_DIR names no ADIOS2 with MPI")
    build = ROOT / "build" / "mpi"
    found = f"-DADIOS2_DIR={adios2_dir}"
    mpich = "-DMPI_EXECUTABLE_SUFFIX=.mpich"
    chosen = os.environ.get("FOREBAY_ADIOS2_LIBRARY")
    plugin = Path(chosen or build / "plugin" / "engines" / "adios2" / "libforebay_adios2.so")
    if not chosen:
        off = [f"-DFOREBAY_BUILD_{part}=OFF" for part in ("PYTHON", "TESTS", "BENCHMARKS", "EXAMPLES")]
        _cmake(ROOT, build / "plugin", found, *off, targets=("forebay_adios2", "forebay_adios2_hook"))
    _cmake(ROOT / "examples" / "20_mpi", build / "examples", found, mpich)
    _cmake(ROOT / "tests" / "mpi", build / "programs", found, mpich)
    return MpiBuild(plugin, build / "examples", build / "programs")
