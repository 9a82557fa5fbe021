# SPDX-License-Identifier: Apache-2.0
"""One rank of a coupled pair of programs: `rank_program.py write|read|share ADDRESS RANK RANKS STEPS`.

Writers cut an array into rows, readers into columns, each into uneven pieces. Readers that share are one consumer.
"""

import sys

import numpy as np
from numpy.typing import NDArray

import forebay

ROWS, COLUMNS = 211, 173


def whole(step: int) -> NDArray[np.float64]:
    """What all ranks write together."""
    return np.arange(ROWS * COLUMNS, dtype=np.float64).reshape(ROWS, COLUMNS) + step * 1e6


def piece(length: int, rank: int, ranks: int) -> slice:
    """The share of a rank: the later, the larger."""
    total = ranks * (ranks + 1) // 2
    return slice(length * (rank * (rank + 1) // 2) // total, length * ((rank + 1) * (rank + 2) // 2) // total)


def write(address: str, rank: int, ranks: int, steps: int) -> None:
    """Says each step that has committed."""
    own = piece(ROWS, rank, ranks)
    with forebay.open(address, "w", rank=rank, ranks=ranks, group="pair", rendezvous_readers=2) as stream:
        for number in range(steps):
            with stream.step() as step:
                step.write("T", whole(number)[own], shape=(ROWS, COLUMNS), start=(own.start, 0))
            print(number)


def read(address: str, rank: int, ranks: int, steps: int) -> None:
    """Says each step of which its columns were right."""
    own = piece(COLUMNS, rank, ranks)
    with forebay.open(address, verify="read", timeout=60) as stream:
        for step in stream.follow(start="oldest", timeout=60):
            np.testing.assert_array_equal(step["T"][:, own], whole(step.number)[:, own])
            print(step.number)
            if step.number + 1 == steps:
                return


def share(address: str, rank: int, ranks: int, steps: int) -> None:
    """Says each step that it was given, of those that its consumer's readers share."""
    with forebay.open(address, verify="read", timeout=60) as stream:
        for step in stream.follow(consumer="pool", distribution="round_robin", timeout=60):
            np.testing.assert_array_equal(step["T"][...], whole(step.number))
            print(step.number)
    assert steps > 0


if __name__ == "__main__":
    {"write": write, "read": read, "share": share}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:6]))
