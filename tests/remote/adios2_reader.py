# SPDX-License-Identifier: Apache-2.0
"""An ADIOS2 program that reads and compares every byte: `adios2_reader.py XML`. It waits for a line after each step."""

import sys

import adios2
import numpy as np

from tests.remote.blocks import small, temperature


def main() -> None:
    """Says each step that was right."""
    adios = adios2.Adios(sys.argv[1])
    io = adios.declare_io("analysis")
    with adios2.Stream(io, "flow", "r") as stream:
        for step in stream:
            number = int(step.read("number"))
            np.testing.assert_array_equal(step.read("T"), temperature(number))
            np.testing.assert_array_equal(step.read("small"), small(number))
            part = step.read("T", start=[5, 7], count=[3, 11])
            np.testing.assert_array_equal(part, temperature(number)[5:8, 7:18])
            print(number)
            sys.stdin.readline()
    print("end")


if __name__ == "__main__":
    main()
