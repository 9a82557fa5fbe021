# SPDX-License-Identifier: Apache-2.0
"""Reads step 0 whole, unchecked, and says whether it got its bytes, others, or an error: `whole_reader.py ADDRESS`."""

import sys

import forebay
from forebay.errors import ForebayError
from tests.remote.blocks import temperature


def main() -> None:
    """One line."""
    with forebay.open(sys.argv[1], verify="none") as stream:
        try:
            read = stream[0]["T"].read()
        except ForebayError as error:
            print(type(error).__name__)
        else:
            print("right" if (read == temperature(0)).all() else "wrong")


if __name__ == "__main__":
    main()
