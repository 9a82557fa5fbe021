# SPDX-License-Identifier: Apache-2.0
"""An ADIOS2 program that writes: `adios2_writer.py XML STEPS MODE`. It knows nothing of Forebay but through the XML."""

import sys

import adios2

from tests.remote.blocks import small, temperature


def main() -> None:
    """Writes the steps, and says each one."""
    adios = adios2.Adios(sys.argv[1])
    io = adios.declare_io("simulation")
    with adios2.Stream(io, "flow", sys.argv[3]) as stream:
        for number in range(int(sys.argv[2])):
            stream.begin_step()
            block = temperature(number)
            stream.write("T", block, list(block.shape), [0, 0], list(block.shape))
            stream.write("small", small(number), [11], [0], [11])
            stream.write("number", number)
            stream.end_step()
            print(number)


if __name__ == "__main__":
    main()
