# SPDX-License-Identifier: Apache-2.0
"""A stream as an xarray Dataset: while it is written, step by step; afterwards, with Dask, all steps at once.

Needs ``forebay[xarray,dask]``, a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/05_xarray.py demo/waves
"""

import sys
import threading

import numpy as np
import xarray as xr

import forebay
from forebay.connectors.xarray import follow


def produce(address: str) -> None:
    """Writes 20 steps of a wave in four blocks, as four ranks would."""
    x = np.linspace(0.0, 2 * np.pi, 64)
    with forebay.open(address, mode="w") as stream:
        stream.attributes["wave/units"] = "m"
        for number in range(20):
            wave = np.sin(x[:, np.newaxis] + 0.1 * number) * np.cos(x)
            with stream.step() as step:
                for row in range(0, 64, 16):
                    step.write("wave", wave[row : row + 16], shape=wave.shape, start=(row, 0))
                step["time"] = 0.1 * number


def main() -> None:
    address = sys.argv[1]
    producer = threading.Thread(target=produce, args=(address,))
    producer.start()

    # While it runs: a Dataset per step, as it commits.
    for step in follow(address, consumer="plot", start="oldest"):
        if int(step["step"]) % 10 == 0:
            print(f"step {int(step['step'])}, t = {float(step['time']):.1f}: highest {float(step['wave'].max()):.3f}")
    producer.join()

    # Afterwards: all steps, lazily. The chunks are the blocks that the ranks wrote.
    with xr.open_dataset(f"forebay://{address}", engine="forebay", chunks={}) as dataset:
        wave = dataset["wave"]
        print(f"{dict(dataset.sizes)}, {wave.data.npartitions} chunks, {wave.attrs['units']}")
        energy = (wave**2).mean(wave.dims[1:]).swap_dims(step="time")
        print(f"energy at t = 1.5: {float(energy.sel(time=1.5, method='nearest')):.4f}")


if __name__ == "__main__":
    main()
