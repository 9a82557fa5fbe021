# SPDX-License-Identifier: Apache-2.0
"""Steps that fit into a message: `small_blocks.py write|read ADDRESS STEPS`. A writer waits for a line after each."""

import sys

import numpy as np
from numpy.typing import NDArray

import forebay


def block(step: int) -> NDArray[np.float64]:
    """4 KiB, no two elements of which are alike, nor two steps."""
    return np.arange(512, dtype=np.float64).reshape(16, 32) + step * 1e6


def write(address: str, steps: int) -> None:
    """Says each step that has committed."""
    with forebay.open(address, "w", reconnect_timeout=60) as stream:
        for number in range(steps):
            with stream.step() as step:
                step["T"] = block(number)
                step["few"] = np.full(3, number, dtype=np.int16)
                step["number"] = number
            print(number)
            sys.stdin.readline()


def read(address: str, steps: int) -> None:
    """Says each step that was right."""
    with forebay.open(address, verify="read", reconnect_timeout=60) as stream:
        for step in stream.follow(consumer="render", timeout=60):
            number = int(step["number"][()])
            np.testing.assert_array_equal(step["T"][...], block(number))
            np.testing.assert_array_equal(step["T"][3:7, 5:9], block(number)[3:7, 5:9])
            np.testing.assert_array_equal(step["few"].view(), np.full(3, number))
            step["T"].verify()
            print(number)
            if number + 1 == steps:
                return


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
