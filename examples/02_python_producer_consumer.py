# SPDX-License-Identifier: Apache-2.0
"""A producer and a consumer in Python: a temperature field cools down while another process watches it.

Needs a running instance and a reservation; then start both sides, in any order, each in a shell of its own:

    forebay up && forebay create demo --capacity 256MiB
    python examples/02_python_producer_consumer.py produce demo/cooling
    python examples/02_python_producer_consumer.py consume demo/cooling

The consumer has a name, so its position is kept: stop it with Ctrl-C, start it again, and it continues where it was.
"""

import argparse

import numpy as np

import forebay


def produce(address: str, steps: int) -> None:
    """Writes the field of each time step; whoever reads it costs this loop nothing."""
    field = np.full((64, 64), 20.0)
    field[24:40, 24:40] = 400.0
    with forebay.open(address, mode="w", retention="consumers:watch,last:10") as stream:
        stream.attributes["T/units"] = "degC"
        for number in range(steps):
            field[1:-1, 1:-1] += 0.2 * (
                field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:] - 4 * field[1:-1, 1:-1]
            )
            with stream.step() as step:
                step["T"] = field
                step["time"] = number * 0.1


def consume(address: str) -> None:
    """Follows the stream as steps commit, from the oldest step that this consumer has not seen."""
    for step in forebay.open(address).follow(consumer="watch"):
        # A view of the step's bytes: nothing is copied, and minimum and maximum were taken when the step was written.
        temperature = step["T"]
        centre = temperature[32, 32]
        units = step.attributes["T/units"]
        print(
            f"step {step.number}, t = {step['time']:.1f} s: centre {centre:.2f} {units}, "
            f"highest {temperature.max:.2f} {units}, mean {np.mean(temperature[...]):.2f} {units}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Produce or consume a stream of steps.")
    parser.add_argument("role", choices=["produce", "consume"])
    parser.add_argument("address", metavar="RES/STREAM")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    if options.role == "produce":
        produce(options.address, options.steps)
    else:
        consume(options.address)


if __name__ == "__main__":
    main()
