# SPDX-License-Identifier: Apache-2.0
"""Writes steps, some each second, until it is told that it cannot: `slow_writer.py ADDRESS STEPS`."""

import sys
import time

import forebay
from tests.remote.blocks import temperature


def main() -> None:
    """Says each step."""
    with forebay.open(sys.argv[1], "w", reconnect_timeout=60) as stream:
        for number in range(int(sys.argv[2])):
            with stream.step() as step:
                step["T"] = temperature(number)
                step["number"] = number
            print(number)
            # It paces itself; nobody waits for this.
            time.sleep(0.2)


if __name__ == "__main__":
    main()
