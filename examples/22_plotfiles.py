# SPDX-License-Identifier: Apache-2.0
"""Plotfiles of an AMReX code as a stream: levels of refinement, each with a block for each box.

Needs a running instance, a reservation and plotfiles:

    forebay up && forebay create demo --capacity 256MiB
    python examples/22_plotfiles.py demo/plots run/plt*
"""

import sys

import numpy as np

import forebay
from forebay.connectors import amrex


def main() -> None:
    address, *plotfiles = sys.argv[1:]
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
