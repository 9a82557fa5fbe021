# SPDX-License-Identifier: Apache-2.0
"""Writes steps, and writes one again that was lost on its way: `redoing_writer.py ADDRESS STEPS`."""

import sys

import forebay
from tests.remote.blocks import temperature


def main() -> None:
    """Says each step that committed, and each loss."""
    with forebay.open(sys.argv[1], mode="w") as stream:
        number = 0
        while number < int(sys.argv[2]):
            try:
                with stream.step() as step:
                    step["T"] = temperature(number)
            except forebay.StorageError as error:
                if "abort_step, then write the step again" not in str(error):
                    raise
                print("lost", number, flush=True)
                continue
            print(number, flush=True)
            number += 1


if __name__ == "__main__":
    main()
