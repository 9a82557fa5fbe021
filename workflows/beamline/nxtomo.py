# SPDX-License-Identifier: Apache-2.0
"""A scan as one NXtomo file (NeXus), staged out: checked against the stream, with a receipt beside it.

All frames are one stack in the order in which they count, ``image_key`` says which are fields, and ``rotation_angle``
has the angle of each: of a field, that of the projection that came next, or of the last one. What NXtomo has no place
for lies in the group ``forebay``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay.datatypes import common_dtype
from forebay.errors import CorruptError, InvalidArgumentError, PermissionDeniedError
from forebay.hdf5 import new_file, write_attribute
from forebay.instance import InstanceLike, instance_of
from forebay.records import StreamStatus
from forebay.workflows.beamline.scan_streams import ImageKey
from forebay.workflows.staging import publication
from forebay.workflows.staging.array_checksum import array_checksum
from forebay.workflows.staging.destination import Destination
from forebay.workflows.staging.outputs import type_name, unchecked_variables
from forebay.workflows.staging.receipt import RECEIPT_NAME, StepEntry, VariableEntry, describe_files, files_match

if TYPE_CHECKING:
    import h5py

__all__ = ["ExportedScan", "export_nxtomo"]

_DETECTOR = "entry/instrument/detector"
_VARIABLES = {ImageKey.DARK: "dark", ImageKey.WHITE: "white", ImageKey.PROJECTION: "projections"}
_NUMBERS = {ImageKey.DARK: "dark_frame", ImageKey.WHITE: "white_frame", ImageKey.PROJECTION: "frame"}
_KNOWN = {*_VARIABLES.values(), *_NUMBERS.values(), "theta", "acquired"}


@dataclass(frozen=True, slots=True)
class ExportedScan:
    """What lies at the destination."""

    path: Path
    receipt: Path
    frames: int  #: of all kinds
    projections: int
    marked: bool  #: the steps count as staged out; not if they have other variables, or you may only read them


@dataclass(frozen=True, slots=True)
class _Batch:
    """The frames of a step, in order; per frame where they have one value each."""

    stack: NDArray[Any]
    keys: NDArray[np.uint8]
    theta: NDArray[np.float64]  #: of fields that came last: NaN
    numbers: NDArray[np.int64]  #: the detector's own; -1: not known
    acquired: NDArray[np.float64]  #: seconds since the epoch; of fields: NaN

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True)
class _Scan:
    """What is known of the stream before its frames are read."""

    stream: forebay.Stream
    uuid: str
    frames: int = 0
    projections: int = 0
    frame: tuple[int, int] = (0, 0)
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.uint16))
    attributes: dict[str, Any] = field(default_factory=dict)
    steps: list[tuple[int, int]] = field(default_factory=list)  #: number and epoch
    complete: bool = True  #: the file has all variables of all steps
    checked: bool = True  #: all blocks have checksums
    variables: tuple[VariableEntry, ...] = ()
    committed_ns: int = 0


def export_nxtomo(
    address: str | forebay.Address,
    folder: str | os.PathLike[str],
    *,
    replace: bool = False,
    instance: InstanceLike | None = None,
) -> ExportedScan:
    """Writes a scan that has ended, or was interrupted, to ``FOLDER/SCAN.nxs``, and marks its steps as staged out.

    The file appears whole: it is written under a hidden name, synced, read back and compared with what the stream gave,
    whose own checksums are checked. A file that is there, and is this scan's, stays.

    Parameters
    ----------
    address : str or Address
        The archive stream, as :class:`ScanStreams` or ``forebay.connectors.tomography`` wrote it.
    folder : path
        The destination; it is made. Its receipt is ``receipt.json``.
    replace : bool
        Replace a file of that name that is of another scan, or in no receipt.
    instance : Instance or path, optional
        As in :func:`forebay.open`.

    Raises
    ------
    InvalidArgumentError
        The stream is no scan, has not ended, or steps of it were dropped; or no type holds all of its frames exactly.
    AlreadyExistsError
        There is a file of that name that is not this scan's.
    CorruptError
        The stream's bytes do not have their checksums, or the file reads back as something else.
    NoSpaceError, StorageError
        The destination is full or failed.
    """
    place = forebay.Address.parse(address) if isinstance(address, str) else address
    directory = Path(folder)
    with forebay.open(place, instance=instance, timeout=0.0, verify="first") as stream:
        scan = _measure(stream)
        name = f"{stream.address.stream}.nxs"
        with Destination.opened(directory) as destination:
            output = destination.directory / name
            destination.recover()
            if not _is_there(destination, output, scan):
                if not replace:
                    destination.check_replaceable(output, scan.uuid)
                _make(destination, output, scan)
            destination.ensure_receipt()
        receipt = directory / RECEIPT_NAME
        marked = scan.complete and _mark(stream.address, scan, receipt, instance_of(place.server, instance))
    return ExportedScan(directory / name, receipt, scan.frames, scan.projections, marked)


def _measure(stream: forebay.Stream) -> _Scan:
    where = f"stream {stream.address}"
    info = stream.info
    if info.status not in (StreamStatus.ENDED, StreamStatus.INTERRUPTED):
        raise InvalidArgumentError(f"the scan has not ended, it is {info.status.value}: export it when it has", where)
    scan = _Scan(stream, info.uuid)
    numbers = [summary.number for summary in stream.steps()]
    if not numbers or numbers != list(range(len(numbers))):
        raise InvalidArgumentError("only a whole scan can be exported, and steps of it were dropped", where)
    dtypes: list[np.dtype[Any]] = []
    for number in numbers:
        with stream[number] as step:
            stacks = {key: step[name] for key, name in _VARIABLES.items() if name in step}
            if not stacks or (ImageKey.PROJECTION in stacks and "theta" not in step):
                raise InvalidArgumentError(
                    f"the stream is no scan: step {number} has neither projections with theta nor fields", where
                )
            for key, variable in stacks.items():
                scan.frames += variable.shape[0]
                scan.projections += variable.shape[0] if key is ImageKey.PROJECTION else 0
                scan.frame = (variable.shape[1], variable.shape[2])
                dtypes.append(variable.dtype)
            scan.steps.append((number, step.epoch))
            scan.complete = scan.complete and _KNOWN.issuperset(step)
            scan.checked = scan.checked and not any(unchecked_variables(step, list(step)))
            scan.attributes |= dict(step.attributes)
            scan.committed_ns = step.time_ns
            scan.variables = tuple(
                VariableEntry(
                    name, type_name(step[name].dtype), step[name].kind.value, step[name].shape, len(step[name].blocks)
                )
                for name in step
                if name in _KNOWN
            )
    # All frames are one stack.
    scan.dtype = common_dtype(dtypes, where)
    return scan


def _batches(scan: _Scan) -> Iterator[_Batch]:
    for number, _ in scan.steps:
        with scan.stream[number] as step:
            angles = np.asarray(step["theta"][...], np.float64) if "theta" in step else np.empty(0)
            next_angle = float(angles[0]) if len(angles) else np.nan
            parts = []
            for key, name in _VARIABLES.items():
                if name not in step:
                    continue
                stack = step[name][...]
                count, is_projection = len(stack), key is ImageKey.PROJECTION
                nothing = np.full(count, np.nan)
                known = _NUMBERS[key] in step
                parts.append(
                    _Batch(
                        stack,
                        np.full(count, key.value, np.uint8),
                        angles if is_projection else np.full(count, next_angle),
                        step[_NUMBERS[key]][...] if known else np.full(count, -1, np.int64),
                        step["acquired"][...] if is_projection and "acquired" in step else nothing,
                    )
                )
        joined = _Batch(
            np.concatenate([part.stack for part in parts], dtype=scan.dtype),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.theta for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.acquired for part in parts]),
        )
        if np.all(joined.numbers >= 0):
            order = np.argsort(joined.numbers, kind="stable")
            joined = _Batch(
                joined.stack[order],
                joined.keys[order],
                joined.theta[order],
                joined.numbers[order],
                joined.acquired[order],
            )
        yield joined


@dataclass(frozen=True, slots=True)
class _Written:
    """Some frames' part of a dataset."""

    dataset: str
    begin: int
    end: int
    checksum: int


def _is_there(destination: Destination, output: Path, scan: _Scan) -> bool:
    entry = destination.entry(output)
    return (
        entry is not None
        and (entry.uuid, entry.format, list(entry.steps)) == (scan.uuid, "nxtomo", scan.steps)
        and files_match(destination.directory, entry)
    )


def _make(destination: Destination, output: Path, scan: _Scan) -> None:
    partial = publication.partial_path(output)
    size_bytes = scan.frames * scan.frame[0] * scan.frame[1] * scan.dtype.itemsize
    try:
        with destination.write_errors(scan.steps[-1][0], size_bytes, output):
            written = _write(partial, scan)
            publication.sync_tree(partial)
            _compare(partial, written)
            files = describe_files(partial)
        entry = StepEntry(
            stream=scan.stream.address.path,
            uuid=scan.uuid,
            epoch=scan.steps[-1][1],
            step=scan.steps[-1][0],
            committed_ns=scan.committed_ns,
            staged_ns=time.time_ns(),
            format="nxtomo",
            output=output.name,
            complete=scan.complete,
            verified="checksums" if scan.checked else "read",
            variables=scan.variables,
            files=tuple(type(file)(output.name, file.size_bytes, file.crc32c) for file in files),
            forebay=version("forebay"),
            steps=tuple(scan.steps),
        )
        destination.publish(partial, entry)
    except BaseException:
        publication.remove(partial)
        raise


def _write(path: Path, scan: _Scan) -> list[_Written]:
    """The frames and what belongs to each, by batches."""
    written: list[_Written] = []
    with new_file(path) as file:
        datasets = _skeleton(file, scan)
        end, last_angle, first_acquired = 0, np.nan, np.nan
        for batch in _batches(scan):
            begin, end = end, end + len(batch)
            # Only fields take the angle of a projection: one of which none is known says so.
            lacking = np.isnan(batch.theta) & (batch.keys != ImageKey.PROJECTION.value)
            theta = np.where(lacking, last_angle, batch.theta)
            known = theta[~np.isnan(theta)]
            last_angle = float(known[-1]) if len(known) else last_angle
            first_acquired = np.fmin(first_acquired, np.fmin.reduce(batch.acquired))
            for name, values in (
                ("data", batch.stack),
                ("image_key", batch.keys),
                ("rotation_angle", theta),
                ("sequence_number", batch.numbers),
                ("acquired", batch.acquired),
            ):
                stored = np.ascontiguousarray(values, datasets[name].dtype)
                datasets[name][begin:end] = stored
                written.append(_Written(datasets[name].name, begin, end, array_checksum(stored)))
        if not np.isnan(first_acquired):
            file["entry/start_time"] = datetime.fromtimestamp(float(first_acquired), UTC).isoformat()
        file.flush()
    return written


def _skeleton(file: h5py.File, scan: _Scan) -> dict[str, h5py.Dataset]:
    """Groups, what they say, and empty datasets by their names."""
    file.attrs["default"] = "entry"
    for name, kind in (
        ("entry", "NXentry"),
        ("entry/instrument", "NXinstrument"),
        (_DETECTOR, "NXdetector"),
        ("entry/sample", "NXsample"),
        ("entry/data", "NXdata"),
        ("entry/forebay", "NXcollection"),
    ):
        file.create_group(name).attrs["NX_class"] = kind
    entry, detector = file["entry"], file[_DETECTOR]
    entry.attrs["default"] = "data"
    entry["definition"] = "NXtomo"
    entry["title"] = scan.stream.address.stream
    entry["program_name"] = "forebay"
    entry["program_name"].attrs["version"] = version("forebay")
    entry["sample/name"] = str(scan.attributes.get("sample", scan.stream.address.stream))
    count = scan.frames
    datasets = {
        "data": detector.create_dataset("data", (count, *scan.frame), scan.dtype),
        "image_key": detector.create_dataset("image_key", (count,), np.uint8),
        "sequence_number": detector.create_dataset("sequence_number", (count,), np.int64),
        "rotation_angle": entry["sample"].create_dataset("rotation_angle", (count,), np.float64),
        "acquired": entry["forebay"].create_dataset("acquired", (count,), np.float64),
    }
    datasets["data"].attrs["units"] = str(scan.attributes.get("projections/units", "counts"))
    datasets["rotation_angle"].attrs["units"] = "degree"
    datasets["acquired"].attrs["units"] = "seconds since 1970-01-01T00:00:00Z"
    for name in ("data", "image_key", "rotation_angle"):
        entry["data"][name] = datasets[name]
    entry["data"].attrs["signal"] = "data"
    for name, value in sorted(scan.attributes.items()):
        write_attribute(entry["forebay"], name, value)
    entry["forebay"].attrs["stream"] = f"{scan.stream.address.path} ({scan.uuid})"
    return datasets


def _compare(path: Path, written: list[_Written]) -> None:
    import h5py

    with h5py.File(path, "r") as file:
        for part in written:
            if array_checksum(file[part.dataset][part.begin : part.end]) != part.checksum:
                raise CorruptError(
                    f"{part.dataset} of frames {part.begin} to {part.end - 1} reads back as something else", str(path)
                )


def _mark(address: forebay.Address, scan: _Scan, receipt: Path, instance: InstanceLike | None) -> bool:
    """False where one may only read: whose reservation it is decides what may be dropped, not who takes a copy."""
    try:
        with forebay.Admin(instance) as admin:
            for epoch in sorted({epoch for _, epoch in scan.steps}):
                numbers = [number for number, of in scan.steps if of == epoch]
                admin.mark_staged(address.path, epoch, numbers, str(receipt))
    except PermissionDeniedError:
        return False
    return True
