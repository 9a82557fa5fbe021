# SPDX-License-Identifier: Apache-2.0
"""Opens a stream, waits for a line, and says which error a server that answers nothing ends in."""

import sys

import forebay
from forebay.errors import ForebayError


def main() -> None:
    """Reads one step."""
    with forebay.open(sys.argv[1], reconnect_timeout=1) as stream:
        print("open")
        sys.stdin.readline()
        try:
            stream[0]["T"].read()
        except ForebayError as error:
            print(type(error).__name__)


if __name__ == "__main__":
    main()
