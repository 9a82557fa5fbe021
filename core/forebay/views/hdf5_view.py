# SPDX-License-Identifier: Apache-2.0
"""A step as an HDF5 file, also as netCDF-4 knows it: HDF5 makes the header, the arrays stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.errors import UnsupportedError
from forebay.hdf5 import add_dimension, block_name, dataset_path, fill_file, new_file_in, refuse_clashes
from forebay.step import Step
from forebay.variable import Variable
from forebay.views.sealed_file import (
    ARRAY_BYTES_MIN,
    ArrayRun,
    HeaderRun,
    SealedFile,
    array_runs,
    is_array,
)

if TYPE_CHECKING:
    import h5py

__all__ = ["HDF5", "NETCDF"]

# Pages of the header file in memory.
_PAGE_BYTES = 4096
# NC_MAX_NAME is 256, but netCDF's library reads garbage after a name of so many bytes.
_NETCDF_NAME_BYTES_MAX = 255


class _Hdf5View:
    """HDF5; see `ViewFormat`. ``all_dimensions``: each dimension has a name and a scale, as netCDF-4 needs it."""

    def __init__(self, *, all_dimensions: bool) -> None:
        self._all_dimensions = all_dimensions

    def lay_out(self, step: Step, variable: str | None) -> SealedFile:
        names = list(step) if variable is None else [step[variable].name]
        refuse_clashes(step, names)
        if self._all_dimensions:
            _refuse_long_names(step, names)
        stored = _StoredPages()
        arrays = _ArraysReserved()
        with new_file_in(stored, ARRAY_BYTES_MIN) as file:
            fill_file(file, step, names, arrays)
            if self._all_dimensions:
                _name_all_dimensions(file)
            runs = sorted(arrays.runs(), key=lambda run: run.offset)
        return SealedFile(stored.size_bytes, tuple(stored.runs_beside(runs)), tuple(runs))


def _refuse_long_names(step: Step, names: Sequence[str]) -> None:
    """UnsupportedError for a name that netCDF's library cuts off, and then does not find."""
    for name in names:
        if any(len(part.encode()) > _NETCDF_NAME_BYTES_MAX for part in name.split("/")):
            raise UnsupportedError(
                f"netCDF has no names of more than {_NETCDF_NAME_BYTES_MAX} bytes between slashes, as {name[:40]!r}… "
                "is: ask for .h5",
                str(step.address),
            )


HDF5 = _Hdf5View(all_dimensions=False)
NETCDF = _Hdf5View(all_dimensions=True)


class _ArraysReserved:
    """Datasets get their place in the file and no elements, except small ones; see `forebay.hdf5.Arrays`."""

    def __init__(self) -> None:
        self._reserved: list[tuple[h5py.Dataset, Variable, int | None]] = []

    def wrote(self, size_bytes: int) -> None:
        pass

    def add_whole(self, file: h5py.File, variable: Variable) -> None:
        if variable.nbytes >= ARRAY_BYTES_MIN and is_array(variable):
            dataset = _reserve(file, dataset_path(variable.name), variable.shape, variable.dtype)
            self._reserved.append((dataset, variable, None))
        else:
            file.create_dataset(dataset_path(variable.name), data=variable.read())

    def add_block(self, group: h5py.Group, variable: Variable, number: int) -> None:
        block = variable.blocks[number]
        if block.size_bytes >= ARRAY_BYTES_MIN:
            dataset = _reserve(group, block_name(number), block.count, variable.dtype)
            self._reserved.append((dataset, variable, number))
        else:
            group.create_dataset(block_name(number), data=np.asarray(variable.block(number)))

    def runs(self) -> list[ArrayRun]:
        """Where they are; to be asked while the file is open."""
        runs: list[ArrayRun] = []
        for dataset, variable, block in self._reserved:
            offset = dataset.id.get_offset()
            if block is None:
                runs += array_runs(variable, offset)
            else:
                runs.append(ArrayRun(offset, variable.blocks[block].size_bytes, variable.name, block))
        return runs


def _reserve(parent: h5py.Group, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> h5py.Dataset:
    import h5py

    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return parent.create_dataset(name, shape=shape, dtype=dtype, dcpl=creation)


def _name_all_dimensions(file: h5py.File) -> None:
    """Gives a scale to each dimension that has none. Names are those that the dimension has, or our connectors give."""
    without: list[h5py.Dataset] = []

    def visit(_: str, node: h5py.Dataset | h5py.Group) -> None:
        # Of the dimensions of a dataset all have a scale, or none. A dimension of netCDF-4 has an extent.
        if getattr(node, "shape", None) and node.size and not node.is_scale and not len(node.dims[0]):
            without.append(node)

    file.visititems(visit)
    # What is called as a dimension is its coordinate, also if nobody has named its own dimension.
    for dataset in without:
        for axis, extent in enumerate(dataset.shape):
            name = dataset.dims[axis].label
            found = file.get(name) if name and "/" not in name else None
            if found is not None and getattr(found, "shape", None) == (extent,) and not found.is_scale:
                found.make_scale(name)
    for dataset in without:
        if not dataset.is_scale:
            for axis, name in enumerate(_dimension_names(file, dataset)):
                if name not in file:
                    add_dimension(file, name, dataset.shape[axis])
                dataset.dims[axis].attach_scale(file[name])


def _dimension_names(file: h5py.File, dataset: h5py.Dataset) -> list[str]:
    names = [
        label if (label := dataset.dims[axis].label) and _is_scale(file, label, extent) else f"dim_{axis}_{extent}"
        for axis, extent in enumerate(dataset.shape)
    ]
    for axis, (name, extent) in enumerate(zip(names, dataset.shape, strict=True)):
        while name in file and not _is_scale(file, name, extent):
            name += "_"  # A variable has this name.
        names[axis] = name
    return names


def _is_scale(file: h5py.File, name: str, extent: int) -> bool:
    found = file.get(name) if "/" not in name else None
    return found is not None and getattr(found, "shape", None) == (extent,) and bool(found.is_scale)


class _StoredPages:
    """A file in memory that has only the pages that were written; the others are zero. What HDF5 needs of a file."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._pages: dict[int, bytearray] = {}
        self._position = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = offset + (0, self._position, self.size_bytes)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        content = memoryview(data).cast("B")
        done = 0
        while done < len(content):
            page, start = divmod(self._position + done, _PAGE_BYTES)
            part = content[done : done + _PAGE_BYTES - start]
            self._pages.setdefault(page, bytearray(_PAGE_BYTES))[start : start + len(part)] = part
            done += len(part)
        self._position += done
        self.size_bytes = max(self.size_bytes, self._position)
        return done

    def readinto(self, buffer: Any) -> int:
        out = memoryview(buffer).cast("B")
        done = 0
        while done < len(out):
            page, start = divmod(self._position + done, _PAGE_BYTES)
            size = min(len(out) - done, _PAGE_BYTES - start)
            out[done : done + size] = self._pages.get(page, bytes(_PAGE_BYTES))[start : start + size]
            done += size
        self._position += done
        return done

    def truncate(self, size: int | None = None) -> int:
        self.size_bytes = self._position if size is None else size
        return self.size_bytes

    def flush(self) -> None:
        pass

    def runs_beside(self, arrays: Sequence[ArrayRun]) -> list[HeaderRun]:
        """What was written outside of the arrays, which are in order."""
        runs: list[HeaderRun] = []
        for start, stop in self._written():
            for array in arrays:
                if array.offset < stop and array.offset + array.size_bytes > start:
                    if array.offset > start:
                        runs.append(HeaderRun(start, self._read(start, array.offset)))
                    start = min(stop, array.offset + array.size_bytes)
            if start < stop:
                runs.append(HeaderRun(start, self._read(start, stop)))
        return runs

    def _written(self) -> list[tuple[int, int]]:
        """Beginnings and ends of what was written. Neighbouring pages are one."""
        found: list[tuple[int, int]] = []
        for page in sorted(self._pages):
            start, stop = page * _PAGE_BYTES, min((page + 1) * _PAGE_BYTES, self.size_bytes)
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], stop)
            elif start < stop:
                found.append((start, stop))
        return found

    def _read(self, start: int, stop: int) -> bytes:
        out = bytearray(stop - start)
        self.seek(start)
        self.readinto(out)
        return bytes(out)
