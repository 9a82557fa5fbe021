# SPDX-License-Identifier: Apache-2.0
"""Plotfiles of an AMReX or Chombo code as a stream: levels of refinement, each with a block for each box.

Needs a running instance, a reservation and plotfiles (those of Chombo end with .hdf5):

    forebay up && forebay create demo --capacity 256MiB
    python examples/22_plotfiles.py demo/plots run/plt*

Then all levels as pictures and a movie, and back to files that yt, VisIt and ParaView open:

    forebay render demo/plots --out pictures
    forebay publish demo/plots out --for amrex
"""

import sys

import numpy as np

import forebay
from forebay.connectors import amrex


def main() -> None:
    address, *plotfiles = sys.argv[1:]
    if all(name.endswith(".hdf5") for name in plotfiles):
        from forebay.connectors import chombo  # needs the extra hdf5

        written = chombo.ingest(sorted(plotfiles), address)
    else:
        written = amrex.ingest(sorted(plotfiles), address)
    print(f"{written} plotfiles written")

    with forebay.open(address) as stream, stream.latest as step:
        for level in range(step.attributes["levels"]):
            names = [name for name in step if name.startswith(f"level_{level}/")]
            variable = step[names[0]]
            # Cells that no box covers have no block: sums go over blocks, not over the whole array.
            cells = sum(int(np.prod(block.count)) for block in variable.blocks)
            print(
                f"step {step.number}, level {level}: {len(names)} fields of {variable.shape}, "
                f"{len(variable.blocks)} boxes cover {cells / variable.size:.0%}"
            )


if __name__ == "__main__":
    main()
