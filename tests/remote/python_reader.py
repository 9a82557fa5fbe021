# SPDX-License-Identifier: Apache-2.0
"""Follows a stream, compares every byte, waits for a line after each step: `python_reader.py ADDRESS CONSUMER`."""

import sys

import numpy as np

import forebay
from tests.remote.blocks import small, temperature
from tests.support.time_limits import seconds


def main() -> None:
    """Says each step that was right; it is acknowledged when the next one is asked for."""
    with forebay.open(sys.argv[1], verify="read") as stream:
        for step in stream.follow(consumer=sys.argv[2], timeout=seconds(60)):
            number = int(step["number"][()])
            np.testing.assert_array_equal(step["T"][...], temperature(number))
            np.testing.assert_array_equal(step["T"][10:20, 3:], temperature(number)[10:20, 3:])
            np.testing.assert_array_equal(step["small"][...], small(number))
            step["T"].verify()
            print(number)
            sys.stdin.readline()
            # It holds the step, whatever has happened meanwhile.
            np.testing.assert_array_equal(step["T"][5], temperature(number)[5])
        print("end")


if __name__ == "__main__":
    main()
