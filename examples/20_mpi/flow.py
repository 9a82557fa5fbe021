# SPDX-License-Identifier: Apache-2.0
"""The same program in Python, with mpi4py: ``mpiexec -n 2 python flow.py adios2.xml``.

With the ``adios2`` wheel, which has no MPI, ADIOS2 gets no communicator: Forebay finds the ranks by the launcher.
"""

import sys

import adios2
import numpy as np
from mpi4py import MPI

CELLS = 4

world = MPI.COMM_WORLD
configuration = sys.argv[1] if len(sys.argv) > 1 else "adios2.xml"
adios = adios2.Adios(configuration, world if adios2.is_built_with_mpi else None)
with adios2.Stream(adios.declare_io("simulation"), "flow.bp", "w") as stream:
    start = CELLS * world.rank
    for step in range(5):
        stream.begin_step()
        stream.write("T", 100.0 * step + start + np.arange(CELLS), [CELLS * world.size], [start], [CELLS])
        stream.end_step()
