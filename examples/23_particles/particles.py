# SPDX-License-Identifier: Apache-2.0
"""Builds the program, writes particles from two ranks in both ways, copies both out and prints the ratio.

    forebay up
    python examples/23_particles/particles.py

It needs CMake, MPICH and its HDF5 (Debian: mpich, libmpich-dev, libhdf5-mpich-dev).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import forebay
from forebay.cxx_package import cxx_package

HERE = Path(__file__).parent
RANKS = 2
BYTES_OF_A_PARTICLE = 32


def build(folder: Path) -> Path:
    """Compiles ``particles.cpp`` against this Forebay."""
    subprocess.run(
        ["cmake", "-S", HERE, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", f"-Dforebay_DIR={cxx_package().cmake_dir}"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    subprocess.run(["cmake", "--build", folder], check=True, stdout=subprocess.DEVNULL)
    return folder / "particles"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--particles", type=int, default=1 << 20, help="of each rank; 32 bytes each")
    parser.add_argument("--reservation", default="particles")
    parser.add_argument("--output", type=Path, default=Path("particles-out"), help="folder for the copies")
    chosen = parser.parse_args()
    # Everything is there twice: as files and as steps.
    size = 2 * RANKS * chosen.steps * chosen.particles * BYTES_OF_A_PARTICLE
    name = chosen.reservation
    command = [sys.executable, "-P", "-m", "forebay"]
    with tempfile.TemporaryDirectory() as scratch:
        program = build(Path(scratch))
        # The manager's: a reservation that lasts until it is destroyed, from which it can stage out.
        subprocess.run([*command, "create", name, "--capacity", str(size + (128 << 20))], check=True)
        with forebay.Admin() as admin:
            folder = Path(admin.reservation(name).files_path) / "vpic"
        folder.mkdir(exist_ok=True)
        ranks = ["mpiexec.mpich", "-n", str(RANKS), str(program), f"{name}/particles", str(folder)]
        subprocess.run([*ranks, str(chosen.steps), str(chosen.particles)], check=True)
    chosen.output.mkdir(parents=True, exist_ok=True)
    # Verified copies: of the last step of the stream, and of all files.
    last = str(chosen.steps - 1)
    subprocess.run([*command, "stage-out", f"{name}/particles", chosen.output / "steps", "--steps", last], check=True)
    subprocess.run([*command, "stage-out", f"{name}:vpic", chosen.output / "vpic"], check=True)


if __name__ == "__main__":
    main()
