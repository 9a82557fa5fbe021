# SPDX-License-Identifier: Apache-2.0
"""One step as an HDF5 file: a dataset for every variable, attributes at the root or, named VARIABLE/ATTRIBUTE, at
theirs.

Global and joined arrays are datasets of the whole, with zeros where no block lies. A local array is a group with a
dataset for each block. Of a single value that several ranks put the file has that of the first, as readers of the
stream have. Texts are variable-length UTF-8. Dimensions that have names are scales, as netCDF-4 has them, and the
root's attribute ``forebay_step`` is the step's number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from forebay.datatypes import STRING_DTYPE, AttributeValue, ShapeKind
from forebay.dimensions import dims_of_wrf
from forebay.errors import UnsupportedError
from forebay.mesh_attributes import mesh_attributes
from forebay.step import Step
from forebay.variable import Block, Variable

if TYPE_CHECKING:
    import h5py

__all__ = [
    "STEP_ATTRIBUTE",
    "Arrays",
    "add_dimension",
    "block_name",
    "block_place",
    "dataset_path",
    "fill_file",
    "import_h5py",
    "is_dimension_only",
    "new_file",
    "new_file_in",
    "own_attributes",
    "placed_attributes",
    "refuse_clashes",
    "write_attribute",
    "write_step",
]

#: The root's attribute with the step's number, unless the stream has an attribute of that name.
STEP_ATTRIBUTE = "forebay_step"

# Attributes by which HDF5 itself remembers scales.
_ATTRIBUTES_OF_SCALES = ("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST", "DIMENSION_LABELS")
# So netCDF-4 knows a dimension that has no coordinate.
_NO_COORDINATE = "This is a netCDF dimension but not a netCDF variable."


def import_h5py() -> Any:
    """The module h5py; UnsupportedError where it is not installed."""
    try:
        import h5py
    except ImportError:
        raise UnsupportedError("HDF5 needs h5py: pip install 'forebay[hdf5]'") from None
    return h5py


def write_step(
    step: Step, path: Path, names: Sequence[str] | None = None, advance: Callable[[int], object] | None = None
) -> None:
    """Writes variables of a step and all its attributes to a new file.

    Parameters
    ----------
    path : Path
        Must not exist.
    names : sequence of str, optional
        Which variables; not given: all.
    advance : callable, optional
        Called with the number of bytes after each block.

    Raises
    ------
    UnsupportedError
        h5py is not installed; or HDF5 cannot hold a name or a text: one variable's name is a folder of another's
        (``a`` and ``a/b``), or a text has a zero character.
    """
    chosen = list(step) if names is None else names
    refuse_clashes(step, chosen)
    with new_file(path) as file:
        fill_file(file, step, chosen, _ArraysWritten(advance or (lambda _: None)))


def fill_file(file: h5py.File, step: Step, names: Sequence[str], arrays: Arrays) -> None:
    """Makes all that a step's file has: variables, scales and attributes. ``arrays`` makes the datasets of arrays."""
    for name in names:
        _write_variable(file, step[name], arrays)
    _add_scales(file, step, names)
    for holder, key, value in placed_attributes(file, step, names):
        write_attribute(holder, key, value)
    if STEP_ATTRIBUTE not in step.attributes:
        file.attrs[STEP_ATTRIBUTE] = np.uint64(step.number)


def write_attribute(holder: h5py.HLObject, key: str, value: Any) -> None:
    """One attribute of a file, group or dataset: a text, a tuple of texts, or numbers."""
    text_dtype = import_h5py().string_dtype()
    if isinstance(value, str):
        _check_texts((value,), f"attribute {key!r}")
        holder.attrs.create(key, value, dtype=text_dtype)
    elif isinstance(value, tuple):
        _check_texts(value, f"attribute {key!r}")
        holder.attrs.create(key, np.array(value, object), shape=(len(value),), dtype=text_dtype)
    else:
        holder.attrs.create(key, value)


def new_file(path: Path) -> h5py.File:
    """A new file as all of ours are; it must not exist."""
    h5py = import_h5py()
    return h5py.File(
        h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_EXCL, fcpl=_creation_properties(), fapl=_access_properties())
    )


def new_file_in(stored: Any, alignment: int) -> h5py.File:
    """A new file whose bytes go to a Python object with the methods of a binary file.

    Arrays of ``alignment`` bytes or more begin at multiples of it.
    """
    h5py = import_h5py()
    access = _access_properties()
    access.set_fileobj_driver(h5py.h5fd.fileobj_driver, stored)
    access.set_alignment(alignment, alignment)
    return h5py.File(h5py.h5f.create(b"view", h5py.h5f.ACC_TRUNC, fcpl=_creation_properties(), fapl=access))


def _access_properties() -> Any:
    h5py = import_h5py()
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    # The newer format keeps attributes of more than 64 KiB; HDF5 1.10 and later read it.
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_LATEST)
    # Elements are written when they are given: HDF5 crashes if it cannot write those it kept while a dataset is closed.
    access.set_sieve_buf_size(0)
    return access


def _creation_properties() -> Any:
    h5py = import_h5py()
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    return creation


class Arrays(Protocol):
    """Makes the datasets of a variable that has dimensions, or of one block of a local array."""

    def wrote(self, size_bytes: int) -> None:
        """Hears of a single value that was written."""

    def add_whole(self, file: h5py.File, variable: Variable) -> None:
        """A global or joined array, or one value of each rank, as the dataset that has the variable's name."""

    def add_block(self, group: h5py.Group, variable: Variable, number: int) -> None:
        """A block of a local array, as the dataset `block_name`."""


class _ArraysWritten:
    """Their elements are written at once."""

    def __init__(self, advance: Callable[[int], object]) -> None:
        self._advance = advance

    def wrote(self, size_bytes: int) -> None:
        self._advance(size_bytes)

    def add_whole(self, file: h5py.File, variable: Variable) -> None:
        dataset = file.create_dataset(dataset_path(variable.name), shape=variable.shape, dtype=variable.dtype)
        for number, block in enumerate(variable.blocks):
            array = np.asarray(variable.block(number))
            if array.size:
                dataset[block_place(variable, number, block)] = array.reshape(block.count or (1,) * variable.ndim)
            self.wrote(array.nbytes)

    def add_block(self, group: h5py.Group, variable: Variable, number: int) -> None:
        array = np.asarray(variable.block(number))
        group.create_dataset(block_name(number), data=array)
        self.wrote(array.nbytes)


def _write_variable(file: h5py.File, variable: Variable, arrays: Arrays) -> None:
    name = dataset_path(variable.name)
    if variable.dtype is STRING_DTYPE:
        text_dtype = import_h5py().string_dtype()
        is_single = variable.kind is ShapeKind.GLOBAL_VALUE
        numbers = range(1 if is_single else len(variable.blocks))
        texts = [str(variable.block(number).item()) for number in numbers]
        _check_texts(texts, f"variable {variable.name!r}")
        if is_single:
            file.create_dataset(name, data=texts[0], dtype=text_dtype)
        else:
            file.create_dataset(name, data=np.array(texts, object), shape=(len(texts),), dtype=text_dtype)
        return
    if variable.kind is ShapeKind.GLOBAL_VALUE:
        array = np.asarray(variable.block(0))
        file.create_dataset(name, data=array)
        arrays.wrote(array.nbytes)
    elif variable.kind is ShapeKind.LOCAL_ARRAY:
        group = file.create_group(name)
        for number in range(len(variable.blocks)):
            arrays.add_block(group, variable, number)
    else:
        arrays.add_whole(file, variable)


def _check_texts(texts: Sequence[str], what: str) -> None:
    if any("\0" in text for text in texts):
        raise UnsupportedError(f"HDF5 cannot hold a text with a zero character, which {what} has: use --format bp5")


def is_dimension_only(dataset: h5py.Dataset) -> bool:
    """Whether a dataset is no variable, but stands for a dimension that has a name and no coordinate."""
    # What other programs call NAME need be no text.
    name = dataset.attrs.get("NAME") if "CLASS" in dataset.attrs else None
    return isinstance(name, bytes) and name.startswith(_NO_COORDINATE.encode())


def add_dimension(file: h5py.File, name: str, extent: int) -> h5py.Dataset:
    """A scale for a dimension without a coordinate, as netCDF-4 has it."""
    scale = file.create_dataset(name, (extent,), ">f4")
    scale.make_scale(f"{_NO_COORDINATE}{extent:10d}")
    return scale


def own_attributes(holder: h5py.HLObject) -> dict[str, Any]:
    """The attributes of a file, group or dataset without those that HDF5 keeps for scales, and the step's number."""
    hidden = {STEP_ATTRIBUTE} if holder.name == "/" else set(_ATTRIBUTES_OF_SCALES)
    # A stream's attribute may have such a name; HDF5's own are no texts of variable length.
    return {key: value for key, value in holder.attrs.items() if key not in hidden or isinstance(value, str)}


def _add_scales(file: h5py.File, step: Step, names: Sequence[str]) -> None:
    """Gives the dimensions that have names their scales: coordinates, or datasets that only stand for the dimension."""
    attributes = step.attributes
    mesh = mesh_attributes(attributes)
    of_variables: dict[str, tuple[str, ...]] = {}
    extents: dict[str, int] = {}
    for name in names:
        variable = step[name]
        of_wrf = dims_of_wrf(attributes.get(f"{name}/Dims"), variable.ndim)
        dims = variable.dims or of_wrf or mesh.dimension_names(name, variable.ndim)
        if dims is None or len(dims) != variable.ndim or variable.dtype is STRING_DTYPE or 0 in variable.shape:
            continue
        if any(f"{name}/{key}" in attributes for key in _ATTRIBUTES_OF_SCALES):
            continue
        of_variables[name] = dims
        for dimension, extent in zip(dims, variable.shape, strict=True):
            # A dimension has one extent.
            extents[dimension] = extent if extents.get(dimension, extent) == extent else -1
    scales: dict[str, h5py.Dataset] = {}
    for dimension, extent in extents.items():
        if extent < 0 or not _is_plain_name(dimension):
            continue
        if of_variables.get(dimension) == (dimension,):
            scales[dimension] = file[dimension]
            scales[dimension].make_scale(dimension)
        elif dimension not in file:
            scales[dimension] = add_dimension(file, dimension, extent)
    for name, dims in of_variables.items():
        # A scale has no scale of its own; and readers of netCDF-4 take no dataset of which some dimensions have none.
        attached = name not in scales and scales.keys() >= set(dims)
        for axis, dimension in enumerate(dims):
            file[name].dims[axis].label = dimension
            if attached:
                file[name].dims[axis].attach_scale(scales[dimension])


def _is_plain_name(name: str) -> bool:
    return name not in (".", "..") and not {"/", "\0"} & set(name)


def block_place(variable: Variable, number: int, block: Block) -> tuple[slice, ...]:
    """Where a block lies in its dataset."""
    if variable.kind is ShapeKind.LOCAL_VALUE:
        return (slice(number, number + 1),)
    return tuple(slice(start, start + count) for start, count in zip(block.start, block.count, strict=True))


def block_name(number: int) -> str:
    """Name of a local array's block in its group."""
    return f"block_{number:06d}"


def dataset_path(name: str) -> str:
    """The dataset of a variable that is called "a//b", "a/./b" or "a/", for h5py. HDF5 opens it by these names, too."""
    return "/".join(_path_parts(name))


def _path_parts(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split("/") if part not in ("", "."))


def refuse_clashes(step: Step, names: Sequence[str]) -> None:
    """UnsupportedError where HDF5, which has one tree of names, cannot hold all: "a" as an array beside "a/b"."""
    paths: dict[tuple[str, ...], str] = {}
    for name in names:
        path = _path_parts(name)
        if not path or "\0" in name:
            raise UnsupportedError(
                f"HDF5 has no dataset that is called {name!r}; choose variables, or another format", str(step.address)
            )
        if path in paths:
            raise UnsupportedError(
                f"variables {paths[path]!r} and {name!r} have one name in HDF5; choose variables, or another format",
                str(step.address),
            )
        paths[path] = name
    for path, name in paths.items():
        for length in range(1, len(path)):
            parent = paths.get(path[:length])
            if parent is not None:
                raise UnsupportedError(
                    f"HDF5 cannot hold both variables {parent!r} and {name!r}, as the one's name is a folder of the "
                    "other's; choose variables, or another format",
                    str(step.address),
                )


def placed_attributes(
    file: h5py.File, step: Step, names: Sequence[str]
) -> Iterator[tuple[h5py.HLObject, str, AttributeValue]]:
    """Each attribute with the object that has it and its name there."""
    variables = set(names)
    for name, value in step.attributes.items():
        owner, _, key = name.rpartition("/")
        if owner in variables and key:
            yield file[owner], key, value
        else:
            yield file, name, value
