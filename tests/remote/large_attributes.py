# SPDX-License-Identifier: Apache-2.0
"""Steps with large attributes: `large_attributes.py write|read ADDRESS STEPS`. A writer waits for a line after each."""

import sys

import numpy as np
from numpy.typing import NDArray

import forebay

#: With so many steps the table changes once.
CHANGE_AT = 5


def table(step: int, elements: int = 2**18) -> NDArray[np.float64]:
    """2 MiB."""
    return np.arange(elements, dtype=np.float64) + (1e6 if step >= CHANGE_AT else 0.0)


def write(address: str, steps: int) -> None:
    """Says each step that has committed."""
    with forebay.open(address, "w", reconnect_timeout=60) as stream:
        for number in range(steps):
            with stream.step() as step:
                step.attributes["table"] = table(number)
                step["number"] = number
            print(number)
            sys.stdin.readline()


def read(address: str, steps: int) -> None:
    """Says each step that was right, then reads some at random."""
    with forebay.open(address, reconnect_timeout=60) as stream:
        for step in stream.follow(timeout=60):
            number = int(step["number"][()])
            np.testing.assert_array_equal(step.attributes["table"], table(number))
            print(number)
            if number + 1 == steps:
                break
        for number in (0, steps - 1, 1):
            np.testing.assert_array_equal(stream[number].attributes["table"], table(number))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
