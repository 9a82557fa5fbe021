# SPDX-License-Identifier: Apache-2.0
"""One step as an HDF5 file: a dataset for every variable, attributes at the root or, named VARIABLE/ATTRIBUTE, at
theirs.

Global and joined arrays are datasets of the whole, with zeros where no block lies. A local array is a group with a
dataset for each block. Texts are variable-length UTF-8.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.datatypes import STRING_DTYPE, AttributeValue, ShapeKind
from forebay.errors import UnsupportedError
from forebay.step import Step
from forebay.variable import Block, Variable

if TYPE_CHECKING:
    import h5py

__all__ = [
    "block_name",
    "block_place",
    "import_h5py",
    "new_file",
    "placed_attributes",
    "write_attribute",
    "write_step",
]


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
        h5py is not installed, or one variable's name is a folder of another's: ``a`` and ``a/b``.
    """
    h5py = import_h5py()
    chosen = list(step) if names is None else names
    told = advance or (lambda _: None)
    _refuse_clashes(step, chosen)
    with new_file(path) as file:
        for name in chosen:
            _write_variable(file, h5py.string_dtype(), step[name], told)
        for holder, key, value in placed_attributes(file, step, chosen):
            write_attribute(holder, key, value)


def write_attribute(holder: h5py.HLObject, key: str, value: Any) -> None:
    """One attribute of a file, group or dataset: a text, a tuple of texts, or numbers."""
    text_dtype = import_h5py().string_dtype()
    if isinstance(value, str):
        holder.attrs.create(key, value, dtype=text_dtype)
    elif isinstance(value, tuple):
        holder.attrs.create(key, np.array(value, object), shape=(len(value),), dtype=text_dtype)
    else:
        holder.attrs.create(key, value)


def new_file(path: Path) -> h5py.File:
    """A new file as all of ours are; it must not exist."""
    h5py = import_h5py()
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    # The newer format keeps attributes of more than 64 KiB; HDF5 1.10 and later read it.
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_LATEST)
    # Elements are written when they are given: HDF5 crashes if it cannot write those it kept while a dataset is closed.
    access.set_sieve_buf_size(0)
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_EXCL, fcpl=creation, fapl=access))


def _write_variable(
    file: h5py.File, text_dtype: np.dtype[Any], variable: Variable, advance: Callable[[int], object]
) -> None:
    name = variable.name
    if variable.dtype is STRING_DTYPE:
        texts = [str(variable.block(number).item()) for number in range(len(variable.blocks))]
        if variable.kind is ShapeKind.GLOBAL_VALUE:
            file.create_dataset(name, data=texts[0], dtype=text_dtype)
        else:
            file.create_dataset(name, data=np.array(texts, object), shape=(len(texts),), dtype=text_dtype)
        return
    if variable.kind is ShapeKind.LOCAL_ARRAY:
        group = file.create_group(name)
        for number in range(len(variable.blocks)):
            array = np.asarray(variable.block(number))
            group.create_dataset(block_name(number), data=array)
            advance(array.nbytes)
        return
    dataset = file.create_dataset(name, shape=variable.shape, dtype=variable.dtype)
    for number, block in enumerate(variable.blocks):
        array = np.asarray(variable.block(number))
        if array.size:
            dataset[block_place(variable, number, block)] = array.reshape(block.count or (1,) * variable.ndim)
        advance(array.nbytes)


def block_place(variable: Variable, number: int, block: Block) -> tuple[slice, ...]:
    """Where a block lies in its dataset."""
    if variable.kind is ShapeKind.LOCAL_VALUE:
        return (slice(number, number + 1),)
    return tuple(slice(start, start + count) for start, count in zip(block.start, block.count, strict=True))


def block_name(number: int) -> str:
    """Name of a local array's block in its group."""
    return f"block_{number:06d}"


def _refuse_clashes(step: Step, names: Sequence[str]) -> None:
    """HDF5 has one tree of names: "a" cannot be an array where "a/b" is one too."""
    paths = {name.strip("/") for name in names}
    for path in paths:
        parts = path.split("/")
        for length in range(1, len(parts)):
            parent = "/".join(parts[:length])
            if parent in paths:
                raise UnsupportedError(
                    f"HDF5 cannot hold both variables {parent!r} and {path!r}, as the one's name is a folder of the "
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
