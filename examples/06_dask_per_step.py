# SPDX-License-Identifier: Apache-2.0
"""A function for each step of a running stream on a Dask cluster; the cursor remembers how far it got.

Needs ``forebay[dask]``, a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/06_dask_per_step.py demo/cells
"""

import sys
import threading

import numpy as np
from distributed import Client, LocalCluster

import forebay
from forebay.connectors.dask import map_steps


def spectrum_peak(step: forebay.Step) -> tuple[int, int]:
    """Runs in a worker process, which reads the step for itself. Results travel back, data do not."""
    power = np.abs(np.fft.rfft(step["signal"][...]))
    return step.number, int(power[1:].argmax()) + 1


def produce(address: str) -> None:
    """Writes a tone that gets higher with each step."""
    t = np.arange(4096) / 4096
    with forebay.open(address, mode="w") as stream:
        for number in range(8):
            with stream.step() as step:
                step["signal"] = np.sin(2 * np.pi * (10 + number) * t)


def main() -> None:
    address = sys.argv[1]
    producer = threading.Thread(target=produce, args=(address,))
    producer.start()
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        for future in map_steps(client, address, spectrum_peak, consumer="spectrum"):
            number, peak = future.result()
            print(f"step {number}: peak at {peak} Hz")
    producer.join()
    with forebay.open(address) as stream:
        print(f"the consumer spectrum is {stream.lag('spectrum')} steps behind")


if __name__ == "__main__":
    main()
