# SPDX-License-Identifier: Apache-2.0
"""A field at four resolutions while the simulation runs: look at 1/512 of the bytes first, and finer where it is worth.

Needs ``forebay[derive]``, a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/25_multiresolution.py demo/field

Each level is a stream of its own, derived from the field with a stride of 2, 4 or 8. The same as a command:
``forebay derive demo/field demo/field-8 --stride 8``. A consumer on another node reads as little as it asks for.
"""

import sys
import threading

import numpy as np

import forebay
from forebay.connectors.derive import derive

STEPS = 6
SIZE = 128
STRIDES = (8, 4, 2)


def simulate(address: str) -> None:
    """A ball that moves along x."""
    z, y, x = np.mgrid[:SIZE, :SIZE, :SIZE].astype(np.float32) / SIZE
    with forebay.open(address, mode="w") as stream:
        for number in range(STEPS):
            with stream.step() as step:
                step["T"] = np.exp(-40 * ((x - 0.2 - 0.1 * number) ** 2 + (y - 0.5) ** 2 + (z - 0.5) ** 2))


def main() -> None:
    (field,) = sys.argv[1:]
    levels = {f"{field}-{stride}": stride for stride in STRIDES}
    work = [threading.Thread(target=simulate, args=(field,))]
    work += [
        threading.Thread(target=derive, args=(field, level), kwargs={"stride": stride})
        for level, stride in levels.items()
    ]
    for thread in work:
        thread.start()

    # The coarsest level of each step, as it comes.
    coarsest = f"{field}-{STRIDES[0]}"
    with forebay.open(coarsest) as stream:
        for step in stream.follow():
            values = step["T"][...]
            place = np.unravel_index(values.argmax(), values.shape)
            share = SIZE**3 * 4 // values.nbytes
            at = tuple(int(index) * STRIDES[0] for index in place)
            print(f"step {step.number}: 1/{share} of the bytes; warmest near {at}")
    for thread in work:
        thread.join()

    # Finer and finer around the warmest place of the last step, a box of 16 cells at each level.
    for address, stride in [*levels.items(), (field, 1)]:
        with forebay.open(address) as stream, stream.latest as step:
            start = [max(0, index // stride - 8) for index in at]
            box = step["T"][tuple(slice(first, first + 16) for first in start)]
            place = np.unravel_index(box.argmax(), box.shape)
            at = tuple((first + int(index)) * stride for first, index in zip(start, place, strict=True))
            print(f"stride {stride}: {box.nbytes} bytes, {box.max():.4f} at {at}")


if __name__ == "__main__":
    main()
