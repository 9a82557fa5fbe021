# SPDX-License-Identifier: Apache-2.0
"""Steering: the analysis finds a feature, and the simulation changes how often it writes.

Needs a running instance and a reservation; then start both sides, in any order, each in a shell of its own:

    forebay up && forebay create demo --capacity 256MiB
    python examples/16_steering.py simulate demo/plume
    python examples/16_steering.py analyse demo/plume

Two streams couple them. `demo/plume` has the fields. `demo/plume-steering` goes the other way: a step of it is one
order, here how many iterations lie between two outputs. The simulation asks for orders between two iterations, and
never waits for one. So it runs as well without an analysis.
"""

import argparse
import time

import numpy as np

import forebay
from forebay.errors import StepTimeoutError, StreamNotFoundError

ITERATIONS = 400
#: The plume is there when a cell is hotter than this.
HOT = 320.0


class Orders:
    """The newest order of a steering stream; the stream may come late, or never."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._follower: forebay.Follower | None = None

    def newest(self) -> int | None:
        """How many iterations are to lie between two outputs; None: no new order."""
        try:
            if self._follower is None:
                self._follower = forebay.open(self._address, timeout=0).follow(timeout=0, latest_only=True)
            return int(next(self._follower)["iterations_per_output"])
        except (StreamNotFoundError, StepTimeoutError, StopIteration):
            return None


def simulate(address: str, pause: float) -> None:
    """A plume rises after a while. Written every 20 iterations, unless somebody orders otherwise."""
    field = np.full((64, 64), 300.0)
    orders = Orders(f"{address}-steering")
    iterations_per_output = 20
    with forebay.open(address, mode="w") as stream:
        stream.attributes["T/units"] = "K"
        for iteration in range(ITERATIONS):
            if iteration >= 100:
                field[0, 28:36] = 600.0
            field[1:] += 0.45 * (field[:-1] - field[1:])
            field[:, 1:-1] += 0.1 * (field[:, :-2] - 2 * field[:, 1:-1] + field[:, 2:])
            order = orders.newest()
            if order is not None and order != iterations_per_output:
                iterations_per_output = order
                print(f"iteration {iteration}: now every {order} iterations", flush=True)
            if iteration % iterations_per_output == 0:
                with stream.step() as step:
                    step["T"] = field
                    step["iteration"] = iteration
            time.sleep(pause)


def analyse(address: str) -> None:
    """Looks for the plume. Once it is there, orders every second iteration; above the middle, every tenth."""
    ordered = 20
    with forebay.open(f"{address}-steering", mode="w") as orders:
        for step in forebay.open(address).follow(consumer="analysis"):
            hot = np.flatnonzero((step["T"][...] > HOT).any(axis=1))
            height = 0 if hot.size == 0 else int(hot[-1]) + 1
            wanted = 20 if height == 0 else 2 if height < 32 else 10
            if wanted != ordered:
                ordered = wanted
                orders.write("iterations_per_output", wanted)
            print(f"iteration {int(step['iteration'])}: plume of {height} cells", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A simulation, and an analysis that steers it.")
    parser.add_argument("role", choices=["simulate", "analyse"])
    parser.add_argument("address", metavar="RES/STREAM")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds that an iteration takes beside its work")
    options = parser.parse_args()
    if options.role == "simulate":
        simulate(options.address, options.pause)
    else:
        analyse(options.address)


if __name__ == "__main__":
    main()
