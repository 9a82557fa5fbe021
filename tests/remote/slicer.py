# SPDX-License-Identifier: Apache-2.0
"""Reads parts of a large variable, without checksums: `slicer.py ADDRESS`. Says when it is open, and at the end."""

import sys

import numpy as np

import forebay
from tests.remote.blocks import temperature

PARTS = (
    np.s_[10:12],
    np.s_[100:140, 7],
    np.s_[::200, 3:9],
    np.s_[5, 5],
    np.s_[200:264, 100:164],
)


def main() -> None:
    """Compares each part with the whole."""
    with forebay.open(sys.argv[1]) as stream:
        step = stream[0]
        print(step["T"].shape)
        sys.stdin.readline()
        for part in PARTS:
            np.testing.assert_array_equal(step["T"][part], temperature(0)[part])
        print("right")


if __name__ == "__main__":
    main()
