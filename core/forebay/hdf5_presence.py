# SPDX-License-Identifier: Apache-2.0
"""Tells if all elements of an HDF5 dataset are there: HDF5 reads what is away, or was never written, as zeros."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidArgumentError
from forebay.hdf5 import import_h5py
from forebay.hdf5_reading import open_hdf5

if TYPE_CHECKING:
    import h5py

__all__ = ["check_present"]

# Virtual datasets may be made of virtual ones, and a damaged file may name itself.
_DEPTH_MAX = 8


def check_present(dataset: h5py.Dataset) -> None:
    """Looks for what a dataset lacks: source files of a virtual one, external files, chunks that were never written.

    Raises
    ------
    InvalidArgumentError
        Something is away; the text names it.
    """
    reason = _lacking(dataset, _DEPTH_MAX)
    if reason:
        raise InvalidArgumentError(
            f"{dataset.name} is not whole, and what lacks would be read as zeros: {reason}", dataset.file.filename
        )


def _lacking(dataset: h5py.Dataset, depth: int) -> str:
    if not dataset.size:
        return ""
    if dataset.is_virtual:
        return next(_lacking_in_sources(dataset, depth), "")
    if dataset.external:
        folder = Path(dataset.file.filename).parent
        for name, offset, size in dataset.external:
            path = folder / name
            if not path.is_file():
                return f"there is no external file {name}"
            if size != _unlimited() and path.stat().st_size < offset + size:
                return f"external file {name} is shorter than {offset + size} bytes"
        return ""
    if dataset.chunks:
        expected = math.prod(-(-extent // chunk) for extent, chunk in zip(dataset.shape, dataset.chunks, strict=True))
        written = dataset.id.get_num_chunks()
        return f"{expected - written} of its {expected} chunks were never written" if written < expected else ""
    return "" if dataset.id.get_storage_size() else "it was never written"


def _lacking_in_sources(dataset: h5py.Dataset, depth: int) -> Iterator[str]:
    """What the sources of a virtual dataset lack."""
    if not depth:
        yield "its sources are virtual datasets of virtual datasets, too deep"
        return
    mapped = 0
    for source in dataset.virtual_sources():
        if "%" in source.file_name or "%" in source.dset_name:
            yield f"its sources {source.file_name} are named by a pattern, which cannot be checked"
            return
        mapped += source.vspace.get_select_npoints()
        if source.file_name == ".":
            yield from _lacking_in_source(dataset.file, source, depth)
            continue
        path = _source_path(Path(dataset.file.filename), source.file_name)
        if path is None:
            yield f"there is no source file {source.file_name}"
            return
        with open_hdf5(path) as file:
            yield from _lacking_in_source(file, source, depth)
    if mapped < dataset.size:
        yield f"{dataset.size - mapped} of its {dataset.size} elements have no source"


def _lacking_in_source(file: h5py.File, source: Any, depth: int) -> Iterator[str]:
    if source.dset_name not in file:
        yield f"source file {source.file_name} has no {source.dset_name}"
        return
    found = file[source.dset_name]
    # The whole source, whatever its extents, or a part of it.
    if source.src_space.get_select_type() == import_h5py().h5s.SEL_ALL:
        too_small = found.size < source.vspace.get_select_npoints()
    else:
        _, last = source.src_space.get_select_bounds()
        too_small = any(place >= extent for place, extent in zip(last, found.shape, strict=True))
    if too_small:
        yield f"{source.dset_name} of source file {source.file_name} is smaller than what is taken from it"
        return
    reason = _lacking(found, depth - 1)
    if reason:
        yield f"{source.dset_name} of source file {source.file_name}: {reason}"


def _source_path(file: Path, name: str) -> Path | None:
    """Where HDF5 looks for a source file (H5Pset_virtual)."""
    candidates = [Path(name)] if os.path.isabs(name) else []
    name = os.path.basename(name) if os.path.isabs(name) else name
    prefix = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", str(file.parent))
    candidates += [Path(prefix) / name] if prefix else []
    candidates += [file.parent / name, Path(name), file.resolve().parent / name]
    return next((path for path in candidates if path.is_file()), None)


def _unlimited() -> int:
    unlimited: int = import_h5py().h5s.UNLIMITED
    return unlimited
