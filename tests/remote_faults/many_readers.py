# SPDX-License-Identifier: Apache-2.0
"""Many readers of a stream in one process, each with a connection and a data path: `many_readers.py ADDRESS COUNT`.

All ask for a large variable at once. A fail point stops the process before it takes what comes.
"""

import sys
import threading

import numpy as np

import forebay
from tests.remote.blocks import temperature

#: 6 MiB: more than sockets take that nobody reads.
_ROWS = 512


def main() -> None:
    """Says `open` when all are, reads after a line, and says how many read the right bytes."""
    count = int(sys.argv[2])
    streams = [forebay.open(sys.argv[1]) for _ in range(count)]
    print("open")
    sys.stdin.readline()
    right = []

    def read(stream: forebay.Stream) -> None:
        with stream:
            np.testing.assert_array_equal(stream[0]["T"][:_ROWS], temperature(0)[:_ROWS])
            right.append(True)

    threads = [threading.Thread(target=read, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(len(right))


if __name__ == "__main__":
    main()
