# SPDX-License-Identifier: Apache-2.0
"""A surrogate model that learns from a simulation while it runs: each step is a sample, and nothing waits for it.

Needs only Forebay, a running instance and a reservation. Where PyTorch is installed, ``StreamSamples`` is an
``IterableDataset`` for its ``DataLoader``; here a linear model is fitted by NumPy.

    forebay up && forebay create demo --capacity 256MiB
    python examples/14_training.py demo/oscillator
"""

import sys
import threading

import numpy as np

import forebay
from forebay.connectors.training import StreamSamples

STEPS = 20
#: What the simulation does in a step, and the model is to find out.
TURN = np.array([[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])


def simulate(address: str) -> None:
    """Writes states of 100 oscillators before and after a step."""
    chance = np.random.default_rng(1)
    with forebay.open(address, mode="w") as stream:
        for _ in range(STEPS):
            before = chance.normal(size=(100, 2))
            with stream.step() as step:
                step["before"] = before
                step["after"] = before @ TURN.T


def main() -> None:
    address = sys.argv[1]
    simulation = threading.Thread(target=simulate, args=(address,))
    simulation.start()

    model = np.zeros((2, 2))
    # With a consumer's name, training that is started again continues with the first sample that was not used.
    samples = StreamSamples(address, ["before", "after"], consumer="training", timeout=60)
    for sample in samples:
        predicted = sample["before"] @ model.T
        error = predicted - sample["after"]
        if sample["step"] % 5 == 0:
            print(f"step {sample['step']}: error {np.sqrt(np.mean(error**2)):.3f}")
        model -= 0.8 * error.T @ sample["before"] / len(error)
    simulation.join()
    print(f"learned a turn by {np.arctan2(model[1, 0], model[0, 0]):.2f}")


if __name__ == "__main__":
    main()
