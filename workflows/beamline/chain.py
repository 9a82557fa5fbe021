# SPDX-License-Identifier: Apache-2.0
"""The parts of the chain behind a detector, each a program that is coupled through streams and files:

    python -m forebay.workflows.beamline.chain acquire FILE RES/SCAN         a file, replayed as a detector
    python -m forebay.workflows.beamline.chain normalise RES/SCAN RES/OTHER  counts become transmissions
    python -m forebay.workflows.beamline.chain render FOLDER PICTURE         slices (TIFF) become one picture

``forebay beamline run`` and a Snakemake workflow start them, with ``forebay reconstruct`` and ``forebay stage-out``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay.errors import InvalidArgumentError
from forebay.new_output import new_output
from forebay.workflows.beamline.replay import ReplayedScan
from forebay.workflows.beamline.scan_log import ScanLog
from forebay.workflows.beamline.scan_streams import ScanSettings, ScanStreams

__all__ = ["acquire", "normalise", "render"]


def acquire(
    file: str, address: str, *, period: float = 0.0, settings: ScanSettings | None = None, **described: Any
) -> int:
    """Replays a file as a detector, one frame each ``period`` seconds, and returns the number of frames."""
    source = ReplayedScan(file)
    frames = source.frames()
    place = forebay.Address.parse(address)
    with ScanLog(place.reservation) as log:
        uid = log.begin(
            place.stream,
            frames_expected=len(frames),
            theta=source.theta.tolist(),
            image_keys=[int(key) for key, _, _ in frames],
            replayed=file,
            **described,
        )
        scan: ScanStreams | None = None
        try:
            with ScanStreams(address, expected=len(frames), settings=settings, attributes=described) as scan:
                began = time.monotonic()
                for number, (key, theta, image) in enumerate(frames):
                    time.sleep(max(0.0, began + number * period - time.monotonic()))
                    scan.frame(image, theta=theta, key=key, number=number)
        except BaseException as error:
            written = 0 if scan is None else scan.frames_written
            status = "abort" if isinstance(error, KeyboardInterrupt) else "fail"
            log.end(uid, status, f"{type(error).__name__}: {error}", frames_written=written)
            raise
        log.end(
            uid,
            frames_expected=len(frames),
            frames_written=scan.frames_written,
            frames_missing=scan.missing,
            previews_lost=scan.previews_lost,
        )
    return scan.frames_written


def normalise(source: str, target: str, *, consumer: str = "normalise", timeout: float | None = None) -> int:
    """Follows a scan, and writes transmissions, float32, as a scan whose white is 1 and whose dark is 0.

    Returns
    -------
    int
        Number of projections.
    """
    white: NDArray[Any] | None = None
    dark: NDArray[Any] | None = None
    count = 0
    place = forebay.Address.parse(source)
    with forebay.open(place, timeout=timeout) as stream, forebay.open(target, "w") as made:
        made.attributes["forebay/layout"] = "scan"
        made.attributes["theta/units"] = "degrees"
        # From the beginning, also after a crash: the target begins anew, too.
        for step in stream.follow(consumer, timeout=timeout, start="oldest"):
            white = step["white"][...].mean(0, dtype=np.float64) if "white" in step else white
            dark = step["dark"][...].mean(0, dtype=np.float64) if "dark" in step else dark
            if "projections" not in step:
                continue
            if white is None or dark is None:
                raise InvalidArgumentError("there are no white and dark fields before the projections", str(place))
            span = np.where(white > dark, white - dark, np.inf)
            transmission = ((step["projections"][...] - dark) / span).astype(np.float32)
            # A pixel whose white is not above dark says nothing: nothing is absorbed there.
            transmission[:, ~np.isfinite(span)] = 1.0
            with made.step() as written:
                if count == 0:
                    written["white"] = np.ones((1, *transmission.shape[1:]), np.float32)
                    written["dark"] = np.zeros((1, *transmission.shape[1:]), np.float32)
                written["projections"] = transmission
                written["theta"] = step["theta"][...]
            count += len(transmission)
    return count


def render(folder: str, picture: str) -> int:
    """Puts the slices of a folder side by side into one PNG, and returns their number."""
    import tifffile
    from PIL import Image

    slices = [tifffile.imread(path) for path in sorted(Path(folder).glob("slice_*.tif"))]
    if not slices:
        raise InvalidArgumentError("there are no slices in it", folder)
    low, high = np.percentile(np.stack(slices), (1, 99))
    shown = np.clip((np.concatenate(slices, 1) - low) * (255 / max(high - low, 1e-12)), 0, 255).astype(np.uint8)
    with new_output(Path(picture)) as hidden:
        Image.fromarray(shown).save(hidden, "png")
    return len(slices)


def main(arguments: list[str]) -> None:
    """Runs one part, and says what it did."""
    match arguments:
        case ["acquire", file, address]:
            print(f"{acquire(file, address)} frames")
        case ["normalise", source, target]:
            print(f"{normalise(source, target)} projections")
        case ["render", folder, picture]:
            print(f"{render(folder, picture)} slices")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except forebay.ForebayError as error:
        sys.exit(f"error: {error}")
