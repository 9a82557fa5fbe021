# SPDX-License-Identifier: Apache-2.0
"""Scans in HDF5 files as streams: Data Exchange (Advanced Photon Source), NXtomo (NeXus), and ALS beamline 8.3.2."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import h5py
import numpy as np
from numpy.typing import NDArray

from forebay import Address
from forebay.connectors.tomography.scan_writer import ScanWriter
from forebay.errors import InvalidArgumentError
from forebay.hdf5_presence import check_present
from forebay.hdf5_reading import open_hdf5

__all__ = ["ingest"]

_Kind = Literal["projection", "white", "dark"]
#: What NXtomo's image_key says of a frame; 3 is a frame that is to be left out.
_IMAGE_KEYS: dict[int, _Kind] = {0: "projection", 1: "white", 2: "dark"}
#: What image_key_control says of a frame that was taken to check the alignment; its image_key may say projection.
_ALIGNMENT = -1


@dataclass(frozen=True)
class _Frame:
    """Where a frame of the file is.

    Attributes
    ----------
    number : int, optional
        In the first dimension of a stack; None: the dataset is the frame.
    theta : float
        Degrees, of a projection.
    """

    kind: _Kind
    source: h5py.Dataset
    number: int | None
    theta: float = 0.0

    def read(self) -> NDArray[Any]:
        """The counts, (rows, columns)."""
        frame = np.asarray(self.source[...] if self.number is None else self.source[self.number])
        return frame[0] if frame.ndim == 3 and len(frame) == 1 else frame


class _NoScanError(Exception):
    """Why the file is no scan."""


def ingest(path: str | os.PathLike[str], address: str | Address, *, angles_per_step: int = 10, **options: Any) -> int:
    """Writes a scan to a stream, a batch of angles at a time.

    Parameters
    ----------
    path : path
        An HDF5 file; what it holds says its layout:

        - Data Exchange: ``/exchange/data`` (angles, rows, columns), ``data_white``, ``data_dark`` and ``theta``.
        - NXtomo: a detector with ``data`` and ``image_key``, and ``rotation_angle`` of the sample. Frames whose
          ``image_key_control`` is -1 (alignment) are left out.
        - ALS 8.3.2: a group NAME with datasets ``NAME_0000_NNNN.tif``, ``NAMEbak_FFFF_NNNN.tif`` and
          ``NAMEdrk_FFFF_NNNN.tif``; its attribute ``arange`` is the range of angles in degrees, first and last
          included.

        Angles are degrees, or radians if their attribute ``units`` says so. White and dark fields count for the
        projections after them. A kind of which the file has none before the first projection counts from the beginning.
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
        The file is no scan, or its frames are not all there; the text names what is missing.
    """
    with open_hdf5(path) as file:
        try:
            frames = _in_order(list(_frames(file)))
        except _NoScanError as error:
            raise InvalidArgumentError(str(error), os.fspath(path)) from None
        for source in {frame.source for frame in frames}:
            check_present(source)
        with ScanWriter(address, angles_per_step=angles_per_step, **options) as writer:
            for frame in frames:
                if frame.kind == "projection":
                    writer.projection(frame.read(), frame.theta)
                else:
                    writer.field(frame.kind, frame.read())
    return sum(frame.kind == "projection" for frame in frames)


def _frames(file: h5py.File) -> Iterator[_Frame]:
    """The frames in the order in which they were taken."""
    if "exchange" in file:
        return _data_exchange(file["exchange"])
    detector = _nexus_detector(file)
    if detector is not None:
        return _nexus(detector)
    group = _als_group(file)
    if group is not None:
        return _als(group)
    raise _NoScanError(
        "no scan that is known: neither /exchange (Data Exchange), nor a detector with data and image_key (NXtomo), "
        "nor a group NAME with NAME_0000_0000.tif (ALS 8.3.2)"
    )


def _in_order(frames: list[_Frame]) -> list[_Frame]:
    """The frames so that white and dark fields come before the first projection."""
    first = next((number for number, frame in enumerate(frames) if frame.kind == "projection"), None)
    if first is None:
        raise _NoScanError("the file has no projections")
    early: list[_Frame] = []
    for kind in ("dark", "white"):
        if not any(frame.kind == kind for frame in frames[:first]):
            later = [frame for frame in frames if frame.kind == kind]
            if not later:
                raise _NoScanError(f"the file has no {kind} fields")
            early += later
    taken = {id(frame) for frame in early}
    return early + [frame for frame in frames if id(frame) not in taken]


def _data_exchange(exchange: h5py.Group) -> Iterator[_Frame]:
    missing = [name for name in ("data", "data_white", "data_dark", "theta") if name not in exchange]
    if missing:
        raise _NoScanError(f"no Data Exchange scan: /exchange has no {', '.join(missing)}")
    data, angles = exchange["data"], exchange["theta"]
    theta = _degrees(data, angles, "/exchange/data")
    for kind in ("dark", "white"):
        for number in range(len(exchange[f"data_{kind}"])):
            yield _Frame(kind, exchange[f"data_{kind}"], number)
    for number, angle in enumerate(theta):
        yield _Frame("projection", data, number, float(angle))


def _nexus_detector(file: h5py.File) -> h5py.Group | None:
    found: list[h5py.Group] = []

    def look(name: str, item: h5py.Group | h5py.Dataset) -> bool | None:
        if isinstance(item, h5py.Dataset) and name.rpartition("/")[2] == "image_key" and "data" in item.parent:
            found.append(item.parent)
            return True
        return None

    file.visititems(look)
    return found[0] if found else None


def _nexus(detector: h5py.Group) -> Iterator[_Frame]:
    data, keys = detector["data"], np.asarray(detector["image_key"])
    entry = detector
    while "sample/rotation_angle" not in entry:
        if entry.name == "/":
            raise _NoScanError("no NXtomo scan: no group above the detector has sample/rotation_angle")
        entry = entry.parent
    theta = _degrees(data, entry["sample/rotation_angle"], data.name)
    # Where there is image_key_control it tells frames that were taken to check the alignment (-1) from projections.
    controls = np.asarray(detector["image_key_control"]) if "image_key_control" in detector else keys
    if not keys.shape == controls.shape == theta.shape:
        raise _NoScanError(
            f"there must be one image_key for each frame of {data.name}, not {keys.shape}, and so of image_key_control"
        )
    for number, (key, control, angle) in enumerate(zip(keys.tolist(), controls.tolist(), theta.tolist(), strict=True)):
        if key in _IMAGE_KEYS and control != _ALIGNMENT:
            yield _Frame(_IMAGE_KEYS[key], data, number, angle)


def _als_group(file: h5py.File) -> h5py.Group | None:
    group: h5py.Group = file
    while len(group) == 1 and isinstance(inner := next(iter(group.values())), h5py.Group):
        group = inner
    name = group.name.rpartition("/")[2]
    return group if name and f"{name}_0000_0000.tif" in group else None


def _als(group: h5py.Group) -> Iterator[_Frame]:
    name = re.escape(group.name.rpartition("/")[2])
    projections: dict[int, h5py.Dataset] = {}
    # By the number of the projection before which they were taken; the last ones after it.
    fields: dict[int, list[tuple[_Kind, h5py.Dataset]]] = {}
    kinds: dict[str, _Kind] = {"bak": "white", "drk": "dark"}
    for known in sorted(group):
        if match := re.fullmatch(rf"{name}_0000_(\d+)\.tif", known):
            projections[int(match[1])] = group[known]
        elif match := re.fullmatch(rf"{name}(bak|drk)_\d+(?:_(\d+))?\.tif", known):
            fields.setdefault(int(match[2] or 0), []).append((kinds[match[1]], group[known]))
    if "arange" not in group.attrs:
        raise _NoScanError(f"no ALS scan: {group.name} has no attribute arange, the range of angles")
    theta = np.linspace(0.0, float(_text(group.attrs["arange"])), len(projections))
    last = max(projections)
    for angle, number in zip(theta.tolist(), sorted(projections), strict=True):
        if number != last:
            for kind, field in fields.get(number, []):
                yield _Frame(kind, field, None)
        yield _Frame("projection", projections[number], None, angle)
    for kind, field in fields.get(last, []):
        yield _Frame(kind, field, None)


def _degrees(data: h5py.Dataset, angles: h5py.Dataset, where: str) -> NDArray[np.float64]:
    if data.ndim != 3 or angles.shape != data.shape[:1]:
        raise _NoScanError(
            f"{where} must be (angles, rows, columns) with one angle each, not {data.shape} with {angles.shape}"
        )
    theta = np.asarray(angles, np.float64)
    return np.degrees(theta) if _text(angles.attrs.get("units", "degrees")).lower().startswith("rad") else theta


def _text(value: Any) -> str:
    value = np.asarray(value).reshape(-1)[0]
    return value.decode() if isinstance(value, bytes) else str(value)
