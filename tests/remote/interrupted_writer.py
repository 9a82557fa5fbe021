# SPDX-License-Identifier: Apache-2.0
"""A writer that is interrupted in the middle of a step's blocks and goes on: `interrupted_writer.py ADDRESS`.

It writes step 0, is interrupted in step 1, says what the step can still be used for, and writes steps 1 and 2.
"""

import sys

import numpy as np

import forebay
from forebay.errors import ForebayError
from tests.remote.blocks import small, temperature


def main() -> None:
    """Says each step, and the interruption."""
    # More than the sockets hold while the server stands still.
    large = np.concatenate([temperature(number) for number in range(100, 108)])
    with forebay.open(sys.argv[1], "w", reconnect_timeout=60) as stream:
        with stream.step() as step:
            step["T"] = temperature(0)
        print(0)
        sys.stdin.readline()
        try:
            with stream.step() as step:
                try:
                    step["T"] = large
                except KeyboardInterrupt:
                    print("interrupted")
                    sys.stdin.readline()
                    try:
                        step["T"] = large
                    except ForebayError as error:
                        print(error)
                    raise
        except KeyboardInterrupt:
            pass
        # A small step does not overtake what is left of the large one, whose space it may have.
        with stream.step() as step:
            step["few"] = small(1)
        print(1)
        with stream.step() as step:
            step["T"] = temperature(2)
        print(2)


if __name__ == "__main__":
    main()
