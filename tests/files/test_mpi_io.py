# SPDX-License-Identifier: Apache-2.0
"""MPI-IO and parallel HDF5 in the files of a job on two nodes: they lock, so blocks of any size are right.

One rank on each node: ranks wait in a loop, and a guest has one processor.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.files.guest_centre import CAPACITY, GuestCentre
from tests.support.guests import why_no_guests

_COMPILER = "h5pcc.mpich"

pytestmark = [
    pytest.mark.skipif(bool(why_no_guests()), reason=why_no_guests()),
    pytest.mark.skipif(shutil.which("slurmctld") is None, reason="needs Slurm; ./run test files installs it"),
    pytest.mark.skipif(shutil.which("ganesha.nfsd") is None, reason="needs Ganesha; ./run test files installs it"),
    pytest.mark.skipif(shutil.which(_COMPILER) is None, reason="needs HDF5 for MPICH; ./run test files installs it"),
    pytest.mark.timeout(600),
]

_SCRIPT = f"""\
#!/bin/bash
#DW jobdw capacity={CAPACITY} access_mode=striped type=scratch
#DW stage_out type=file source=$DW_JOB_STRIPED/said destination={{destination}}/said
export FI_PROVIDER=tcp UCX_TLS=tcp,self HYDRA_IFACE=vec0
srun --mpi=pmi2 --ntasks-per-node=1 {{program}} "$DW_JOB_STRIPED" > "$DW_JOB_STRIPED/said" 2>&1
"""


def test_mpi_io_and_parallel_hdf5_write_no_wrong_block(centre: GuestCentre, destination: Path) -> None:
    program = destination / "mpi_io"
    source = Path(__file__).with_name("mpi_io.c")
    subprocess.run([_COMPILER, "-O1", "-o", str(program), str(source)], check=True, cwd=destination)
    program.chmod(0o755)
    job = centre.submit(_SCRIPT.format(destination=destination, program=program), "--ntasks-per-node=1")
    centre.wait_until_gone(job)
    said = (destination / "said").read_text()
    wanted = [f"{name} 0 of 32" for name in ("independent", "collective", "view", "sieving", "hdf5")]
    assert said.splitlines() == wanted, said + centre.story(job)
    centre.must_be_clean()
