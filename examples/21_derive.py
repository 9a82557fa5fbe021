# SPDX-License-Identifier: Apache-2.0
"""A simulation writes three components of a velocity; a stream with their magnitude is derived while it runs.

Needs ``forebay[derive]``, a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/21_derive.py demo/flow demo/speed

The same as a command: ``forebay derive demo/flow demo/speed --expr 'speed = sqrt(u*u + v*v + w*w)'``.
"""

import sys
import threading

import numpy as np

import forebay
from forebay.connectors.derive import derive

STEPS = 8


def simulate(address: str) -> None:
    z, y, x = np.mgrid[:32, :32, :64].astype(np.float32)
    with forebay.open(address, mode="w") as stream:
        for number in range(STEPS):
            phase = 0.2 * number
            with stream.step() as step:
                step["u"] = np.sin(0.1 * x + phase)
                step["v"] = np.cos(0.1 * y + phase)
                step["w"] = 0.1 * np.sin(0.1 * z)


def main() -> None:
    source, output = sys.argv[1:]
    simulation = threading.Thread(target=simulate, args=(source,))
    simulation.start()
    derivation = threading.Thread(
        target=derive, args=(source, output), kwargs={"expressions": "speed = sqrt(u*u + v*v + w*w)"}
    )
    derivation.start()

    # A consumer of the derived stream reads a third of the bytes.
    with forebay.open(output) as stream:
        for step in stream.follow():
            origin = step.attributes["derived_source"]
            print(f"step {step.number} of {origin}: fastest {step['speed'].max:.3f}")
    simulation.join()
    derivation.join()


if __name__ == "__main__":
    main()
