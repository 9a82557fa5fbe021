# SPDX-License-Identifier: Apache-2.0
"""The steps of a stream as rows of a Ray dataset, computed on by Ray's workers.

Needs ``forebay[ray]``, a running instance and a reservation:

    forebay up && forebay create demo --capacity 256MiB
    python examples/12_ray.py demo/tones
"""

import os
import sys
import tempfile
from typing import Any

import numpy as np

import forebay

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray

from forebay.connectors.ray import read_stream


def produce(address: str) -> None:
    """Writes a tone that gets higher with each step."""
    t = np.arange(4096) / 4096
    with forebay.open(address, mode="w") as stream:
        for number in range(8):
            with stream.step() as step:
                step["signal"] = np.sin(2 * np.pi * (10 + number) * t)


def loudest(batch: dict[str, Any]) -> dict[str, Any]:
    """Runs in Ray's workers, which read the steps for themselves."""
    power = np.abs(np.fft.rfft(batch["signal"], axis=1))
    return {"step": batch["step"], "frequency": power[:, 1:].argmax(1) + 1}


def main() -> None:
    address = sys.argv[1]
    produce(address)
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            _temp_dir=folder,
            log_to_driver=False,
            logging_level="ERROR",
        )
        ray.data.DataContext.get_current().enable_progress_bars = False
        rows = read_stream(address, ["signal"]).map_batches(loudest).take_all()
        for row in sorted(rows, key=lambda row: row["step"]):
            print(f"step {row['step']}: loudest at {row['frequency']} Hz")
        ray.shutdown()


if __name__ == "__main__":
    main()
