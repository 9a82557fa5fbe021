# SPDX-License-Identifier: Apache-2.0
"""A scan that is reconstructed while the detector runs: each batch of angles makes the slice sharper.

Needs ``forebay[tomography]``, a running instance and a reservation. Without a file the detector looks at a phantom:

    forebay up && forebay create demo --capacity 256MiB
    python examples/09_tomography.py demo/scan --out slices [--scan FILE.h5]
"""

import argparse
import threading
from pathlib import Path

import h5py
import numpy as np
from PIL import Image
from skimage.data import shepp_logan_phantom
from skimage.transform import radon, rescale

from forebay.connectors import tomography


def phantom_scan(path: Path) -> None:
    """A Data Exchange file of what a detector would count behind the phantom."""
    theta = np.linspace(0.0, 180.0, 180, endpoint=False)
    lines = radon(rescale(shepp_logan_phantom(), 0.4), theta).T[:, np.newaxis]
    with h5py.File(path, "w") as file:
        exchange = file.create_group("exchange")
        exchange["data"] = (10 + 60000 * np.exp(-lines / 40)).astype(np.uint16)
        exchange["data_white"] = np.full((5, *lines.shape[1:]), 60010, np.uint16)
        exchange["data_dark"] = np.full((5, *lines.shape[1:]), 10, np.uint16)
        exchange["theta"] = theta
        exchange["theta"].attrs["units"] = "degrees"


def main() -> None:
    parser = argparse.ArgumentParser(description="Reconstruct a scan while it is taken.")
    parser.add_argument("address", metavar="RES/STREAM")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scan", type=Path, help="A Data Exchange file; default: a phantom.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    scan = options.scan
    if scan is None:
        scan = options.out / "phantom.h5"
        phantom_scan(scan)

    # The detector. A real one would push frames: ScanWriter(address).projection(frame, theta).
    detector = threading.Thread(target=tomography.ingest, args=(scan, options.address), kwargs={"angles_per_step": 30})
    detector.start()

    for slices in tomography.reconstruct(options.address, rows=[0], consumer="preview"):
        image = slices.image[0]
        low, high = np.percentile(image, (1, 99))
        grey = np.clip((image - low) / (high - low) * 255, 0, 255).astype(np.uint8)
        Image.fromarray(grey).save(options.out / f"after_{slices.angles:04d}.png")
        print(f"{slices.angles} projections, axis of rotation at column {slices.center:.1f}")
    detector.join()


if __name__ == "__main__":
    main()
