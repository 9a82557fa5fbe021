# SPDX-License-Identifier: Apache-2.0
"""A scan in a file as a detector: white fields, dark fields, then a projection at each angle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import InvalidArgumentError
from forebay.hdf5 import import_h5py
from forebay.hdf5_presence import check_present
from forebay.hdf5_reading import open_hdf5
from forebay.workflows.beamline.scan_streams import ImageKey

if TYPE_CHECKING:
    from forebay.workflows.beamline.bluesky import Exposure

__all__ = ["ReplayedScan"]


class ReplayedScan:
    """Frames of a Data Exchange file (``/exchange/data``, ``data_white``, ``data_dark``, ``theta`` in degrees).

    A frame source of :class:`forebay.workflows.beamline.bluesky.ReplayDetector`. The file is read whole: it stands for
    hardware, which does not wait for a disk.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        h5py = import_h5py()
        if not Path(path).is_file():
            raise InvalidArgumentError("there is no such file to replay", str(path))
        with open_hdf5(path) as file:
            if "exchange/data" not in file:
                raise InvalidArgumentError("the file is no Data Exchange: it has no /exchange/data", str(path))
            exchange = file["exchange"]
            for dataset in exchange.values():
                if isinstance(dataset, h5py.Dataset):
                    check_present(dataset)
            self._frames: dict[ImageKey, NDArray[Any]] = {ImageKey.PROJECTION: exchange["data"][...]}
            for key, name in ((ImageKey.WHITE, "data_white"), (ImageKey.DARK, "data_dark")):
                self._frames[key] = exchange[name][...] if name in exchange else self._frames[ImageKey.PROJECTION][:0]
            count = len(self._frames[ImageKey.PROJECTION])
            self.theta = (
                np.asarray(exchange["theta"][...], np.float64)
                if "theta" in exchange
                else np.linspace(0.0, 180.0, count, endpoint=False)
            )
        self.shape: tuple[int, int] = self._frames[ImageKey.PROJECTION].shape[1:]
        self.dtype: np.dtype[Any] = self._frames[ImageKey.PROJECTION].dtype
        self._given = dict.fromkeys(self._frames, 0)

    @property
    def whites(self) -> int:
        return len(self._frames[ImageKey.WHITE])

    @property
    def darks(self) -> int:
        return len(self._frames[ImageKey.DARK])

    def frames(self) -> list[tuple[ImageKey, float, NDArray[Any]]]:
        """All of them in order, with kind and angle."""
        nothing = float("nan")
        fields = [(key, nothing, frame) for key in (ImageKey.WHITE, ImageKey.DARK) for frame in self._frames[key]]
        projections = [
            (ImageKey.PROJECTION, float(angle), frame)
            for angle, frame in zip(self.theta, self._frames[ImageKey.PROJECTION], strict=True)
        ]
        return fields + projections

    def expose(self, exposure: Exposure) -> NDArray[Any] | None:
        """The next frame of this kind; None when the file has no more."""
        frames, given = self._frames[exposure.key], self._given[exposure.key]
        self._given[exposure.key] += 1
        frame: NDArray[Any] | None = frames[given] if given < len(frames) else None
        return frame
