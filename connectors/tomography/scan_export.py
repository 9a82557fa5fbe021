# SPDX-License-Identifier: Apache-2.0
"""Writes a scan from its stream to files: Data Exchange, a TIFF stack, or Zarr. They appear whole, under their name."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forebay import Address, Stream
from forebay.connectors.opening import followed_stream
from forebay.datatypes import common_dtype
from forebay.errors import AlreadyExistsError, InvalidArgumentError
from forebay.instance import InstanceLike
from forebay.new_output import new_output

__all__ = ["Layout", "export"]

Layout: TypeAlias = Literal["data-exchange", "tiff", "zarr"]


@dataclass(frozen=True)
class _Batch:
    """What a step has: projections with their angles, and the fields that were taken before them."""

    projections: NDArray[Any]
    theta: NDArray[np.float64]
    fields: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class _Extents:
    """How much there is of each kind, and what a frame is."""

    projections: int
    white: int
    dark: int
    frame: tuple[int, int]
    dtypes: dict[str, np.dtype[Any]]  # of projections, white and dark: holds all that the steps have, exactly


def export(
    address: str | Address | Stream,
    path: str | os.PathLike[str],
    layout: Layout = "data-exchange",
    *,
    instance: InstanceLike | None = None,
    **opening: Any,
) -> int:
    """Writes all frames of a scan that has ended, as the detector gave them.

    Parameters
    ----------
    address : str, Address or Stream
        What :class:`ScanWriter` or :func:`ingest` wrote.
    path : path
        What is made; it must not exist.

        - ``data-exchange``: an HDF5 file with ``/exchange/data``, ``data_white``, ``data_dark`` and ``theta``.
        - ``tiff``: a folder with ``projection_000000.tif``, ``white_0000.tif``, ``dark_0000.tif``, and ``theta.txt``
          with an angle in degrees for each projection.
        - ``zarr``: a group with the arrays ``data``, ``data_white``, ``data_dark`` and ``theta``; needs
          ``forebay[zarr]``.

        Fields that were taken several times follow one another. ``theta_white`` and ``theta_dark`` are the angles of
        the projections that came next, also in Zarr.
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    **opening
        Other options of :func:`forebay.open`.

    Returns
    -------
    int
        Number of projections.

    Raises
    ------
    InvalidArgumentError
        The stream is no scan, steps of it were dropped, or no type holds all of its frames exactly.
    AlreadyExistsError
        ``path`` exists.
    """
    writers: dict[str, Callable[[Path, _Extents, Iterator[_Batch]], None]] = {
        "data-exchange": _write_data_exchange,
        "tiff": _write_tiff,
        "zarr": _write_zarr,
    }
    if layout not in writers:
        raise InvalidArgumentError(f"the layout is one of {', '.join(writers)}, not {layout!r}")
    target = Path(path)
    if target.exists():
        raise AlreadyExistsError("it exists: export to another path, or remove it", str(target))
    with followed_stream(address, instance, opening) as stream:
        extents = _measure(stream)
        with new_output(target) as hidden:
            writers[layout](hidden, extents, _batches(stream))
    return extents.projections


def _measure(stream: Stream) -> _Extents:
    where = f"stream {stream.address}"
    steps = stream.steps()
    numbers = [step.number for step in steps]
    if numbers != list(range(len(numbers))) or not numbers:
        raise InvalidArgumentError(
            "only a whole scan can be exported, and steps of it were dropped: write it without retention, or with "
            "retention that waits for a consumer",
            where,
        )
    counts = {"projections": 0, "white": 0, "dark": 0}
    frame: tuple[int, int] | None = None
    found: dict[str, list[np.dtype[Any]]] = {name: [] for name in counts}
    for number in numbers:
        with stream[number] as step:
            for name in counts:
                if name in step:
                    counts[name] += step[name].shape[0]
                    found[name].append(step[name].dtype)
            # Fields after the last projections are a step of their own.
            if frame is not None and "projections" not in step and ("white" in step or "dark" in step):
                continue
            if "projections" not in step or "theta" not in step:
                raise InvalidArgumentError("the stream is no scan: it has no variables projections and theta", where)
            shape = step["projections"].shape
            frame = (shape[1], shape[2])
    assert frame is not None
    dtypes = {name: common_dtype(of, f"{name} of {where}") for name, of in found.items() if of}
    return _Extents(counts["projections"], counts["white"], counts["dark"], frame, dtypes)


def _batches(stream: Stream) -> Iterator[_Batch]:
    last: _Batch | None = None
    for number in range(len(stream)):
        with stream[number] as step:
            fields = {name: step[name][...] for name in ("white", "dark") if name in step}
            if "projections" in step:
                last = _Batch(step["projections"][...], np.asarray(step["theta"][...], np.float64), fields)
                yield last
            elif last is not None:
                yield _Batch(last.projections[:0], last.theta[:0], fields)


def _fill(arrays: dict[str, Any], batches: Iterator[_Batch]) -> None:
    """Puts batches one after another into arrays by the names of Data Exchange."""
    ends = {"data": 0, "white": 0, "dark": 0}
    for batch in batches:
        for name, frames in batch.fields.items():
            begin, ends[name] = ends[name], ends[name] + len(frames)
            arrays[f"data_{name}"][begin : ends[name]] = frames
            # After the last projections, the angle is not known.
            angle = batch.theta[0] if len(batch.theta) else np.nan
            arrays[f"theta_{name}"][begin : ends[name]] = np.full(len(frames), angle)
        begin, ends["data"] = ends["data"], ends["data"] + len(batch.theta)
        arrays["data"][begin : ends["data"]] = batch.projections
        arrays["theta"][begin : ends["data"]] = batch.theta


def _shapes(extents: _Extents) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Extents and types of the arrays."""
    degrees = np.dtype(np.float64)
    shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
        "data": ((extents.projections, *extents.frame), extents.dtypes["projections"]),
        "theta": ((extents.projections,), degrees),
    }
    for name, count in (("white", extents.white), ("dark", extents.dark)):
        # Where there are none, the type says nothing.
        dtype = extents.dtypes.get(name, extents.dtypes["projections"])
        shapes[f"data_{name}"] = ((count, *extents.frame), dtype)
        shapes[f"theta_{name}"] = ((count,), degrees)
    return shapes


def _write_data_exchange(path: Path, extents: _Extents, batches: Iterator[_Batch]) -> None:
    import h5py

    axes = {"data": "theta:y:x", "data_white": "theta_white:y:x", "data_dark": "theta_dark:y:x"}
    with h5py.File(path, "w") as file:
        file["implements"] = "exchange:measurement"
        exchange = file.create_group("exchange")
        arrays = {name: exchange.create_dataset(name, *kind) for name, kind in _shapes(extents).items()}
        for name, array in arrays.items():
            array.attrs["units"] = "counts" if name in axes else "degrees"
            if name in axes:
                array.attrs["axes"] = axes[name]
        arrays["data"].attrs["description"] = "transmission"
        _fill(arrays, batches)
        file.flush()
    with path.open("rb") as written:
        os.fsync(written.fileno())


def _write_tiff(path: Path, extents: _Extents, batches: Iterator[_Batch]) -> None:
    import tifffile

    path.mkdir()
    ends = {"projection": 0, "white": 0, "dark": 0}
    theta: list[float] = []

    def write(name: str, frames: NDArray[Any], digits: int) -> None:
        for frame in frames:
            tifffile.imwrite(path / f"{name}_{ends[name]:0{digits}d}.tif", np.ascontiguousarray(frame))
            ends[name] += 1

    for batch in batches:
        for name, frames in batch.fields.items():
            write(name, frames, 4)
        write("projection", batch.projections, 6)
        theta += batch.theta.tolist()
    (path / "theta.txt").write_text("".join(f"{angle!r}\n" for angle in theta))


def _write_zarr(path: Path, extents: _Extents, batches: Iterator[_Batch]) -> None:
    import zarr

    group = zarr.create_group(path)
    arrays: dict[str, Any] = {}
    for name, (shape, dtype) in _shapes(extents).items():
        # A chunk is a band of rows over some angles: sinograms and frames cost alike.
        chunks = tuple(max(min(extent, part), 1) for extent, part in zip(shape, (16, 64, 1024), strict=False))
        arrays[name] = group.create_array(name, shape=shape, chunks=chunks, dtype=dtype)
    _fill(arrays, batches)
