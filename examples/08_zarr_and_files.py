# SPDX-License-Identifier: Apache-2.0
"""A stream read as a Zarr store, and a result kept beside it in the reservation's files by fsspec.

Needs ``forebay[zarr,fsspec]``, a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/08_zarr_and_files.py demo/field
"""

import json
import sys

import fsspec
import numpy as np
import zarr

import forebay
from forebay.connectors.zarr import StreamStore


def produce(address: str) -> None:
    """Writes a field in four blocks."""
    with forebay.open(address, mode="w") as stream:
        for number in range(4):
            field = np.full((64, 64), float(number))
            with stream.step() as step:
                for row in (0, 32):
                    for column in (0, 32):
                        block = field[row : row + 32, column : column + 32]
                        step.write("field", block, shape=field.shape, start=(row, column))


def main() -> None:
    address = sys.argv[1]
    produce(address)

    # No file is made: a chunk is the block that a rank wrote.
    field = zarr.open_array(StreamStore(address), path="field", mode="r")
    print(f"{field.shape} in chunks of {field.chunks}")
    means = [float(np.mean(np.asarray(field[index]))) for index in range(field.shape[0])]

    # Files of the reservation have addresses, too.
    reservation = address.split("/")[0]
    with fsspec.open(f"forebay://{reservation}/files/results/means.json", "w") as file:
        json.dump(means, file)
    with fsspec.open(f"forebay://{reservation}/files/results/means.json") as file:
        print(f"kept: {json.load(file)}")


if __name__ == "__main__":
    main()
