# SPDX-License-Identifier: Apache-2.0
"""Two ranks, as two processes without MPI, write one array: each its own half, computed in place.

    forebay up && forebay create demo --capacity 256MiB
    python examples/03_python_ranks.py demo/waves

A step appears when both ranks have ended it, not before. Under mpiexec or srun, rank and size come from the launcher.
"""

import argparse
import multiprocessing

import numpy as np

import forebay

SHAPE = (200, 300)
STEPS = 20


def write_half(address: str, rank: int) -> None:
    """One rank: its rows of the wave, straight into the memory that readers will see."""
    rows = SHAPE[0] // 2
    y = np.arange(rank * rows, (rank + 1) * rows)[:, None]
    x = np.arange(SHAPE[1])
    with forebay.open(address, mode="w", rank=rank, ranks=2) as stream:
        for number in range(STEPS):
            with stream.step() as step:
                block = step.allocate("height", SHAPE, "float32", start=(rank * rows, 0), count=(rows, SHAPE[1]))
                np.sin(0.1 * (x + y - number), out=block, dtype="float32", casting="unsafe")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write one stream from two processes and look at it.")
    parser.add_argument("address", metavar="RES/STREAM")
    address = parser.parse_args().address

    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=write_half, args=(address, rank)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
        if process.exitcode != 0:
            raise SystemExit(f"a rank ended with status {process.exitcode}")

    with forebay.open(address) as stream:
        print(stream.info.status, "after", len(stream), "steps")
        height = stream.latest["height"]
        for block in height.blocks:
            print(f"rank {block.rank}: rows from {block.start[0]}, {block.min:.3f} to {block.max:.3f}")
        # Ten rows on each side of the seam lie in two blocks: this is a copy. One rank's rows alone would be a view.
        seam = height[90:110, ::50]
        print("across the seam:", seam.shape, "without a copy:", bool(height.view(np.s_[:100]).size))


if __name__ == "__main__":
    main()
