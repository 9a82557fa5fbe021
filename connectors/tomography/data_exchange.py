# SPDX-License-Identifier: Apache-2.0
"""Scans in Data Exchange files, the HDF5 layout of the Advanced Photon Source, as streams."""

from __future__ import annotations

import os
from typing import Any

import h5py
import numpy as np

from forebay import Address
from forebay.connectors.tomography.scan_writer import ScanWriter
from forebay.errors import InvalidArgumentError

__all__ = ["ingest"]


def ingest(path: str | os.PathLike[str], address: str | Address, *, angles_per_step: int = 10, **options: Any) -> int:
    """Writes a Data Exchange file to a stream, a batch of angles at a time.

    Parameters
    ----------
    path : path
        The file: ``/exchange/data`` (angles, rows, columns), ``data_white``, ``data_dark``, and ``theta`` in degrees or
        in radians as its attribute ``units`` says.
    address : str or Address
        ``"RES/STREAM"``; a stream of that name is replaced.
    angles_per_step : int
        Projections in a step.
    **options
        Of :class:`ScanWriter`.

    Returns
    -------
    int
        Number of projections.

    Raises
    ------
    InvalidArgumentError
        The file is no Data Exchange scan; the text names what is missing.
    """
    with h5py.File(path, "r") as file:
        missing = [name for name in ("data", "data_white", "data_dark", "theta") if f"exchange/{name}" not in file]
        if missing:
            raise InvalidArgumentError(f"no Data Exchange scan: /exchange has no {', '.join(missing)}", os.fspath(path))
        exchange = file["exchange"]
        data, angles = exchange["data"], exchange["theta"]
        if data.ndim != 3 or angles.shape != data.shape[:1]:
            raise InvalidArgumentError(
                f"/exchange/data must be (angles, rows, columns) with one theta each, not {data.shape} with "
                f"{angles.shape}",
                os.fspath(path),
            )
        theta = np.asarray(angles, np.float64)
        if _text(angles.attrs.get("units", "degrees")).lower().startswith("rad"):
            theta = np.degrees(theta)
        with ScanWriter(address, angles_per_step=angles_per_step, **options) as writer:
            for frame in exchange["data_dark"]:
                writer.dark(frame)
            for frame in exchange["data_white"]:
                writer.white(frame)
            for number in range(len(theta)):
                writer.projection(data[number], theta[number])
    return len(theta)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
