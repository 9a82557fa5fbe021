# SPDX-License-Identifier: Apache-2.0
"""One step as an HDF5 file: a dataset for every variable, attributes at the root or, named VARIABLE/ATTRIBUTE, at
theirs.

Global and joined arrays are datasets of the whole, with zeros where no block lies. A local array is a group with a
dataset for each block. Texts are variable-length UTF-8.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.datatypes import AttributeValue, ShapeKind
from forebay.errors import CorruptError, UnsupportedError
from forebay.step import Step
from forebay.variable import Block, Variable
from forebay.workflows.staging.checksum import array_checksum, text_checksum
from forebay.workflows.staging.outputs import (
    Advance,
    BlockChecksums,
    block_array,
    block_checksum,
    check_block,
    check_stream,
    is_text,
    same_attribute,
)

if TYPE_CHECKING:
    import h5py

__all__ = ["Hdf5Format"]


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise UnsupportedError(
            "staging out to HDF5 needs h5py: pip install 'forebay[hdf5]', or use --format bp5"
        ) from None
    return h5py


class Hdf5Format:
    """HDF5; see `OutputFormat`."""

    name = "hdf5"
    suffix = ".h5"

    def write(self, step: Step, names: Sequence[str], path: Path, advance: Advance) -> None:
        h5py = _h5py()
        _refuse_clashes(step, names)
        with _new_file(h5py, path) as file:
            for name in names:
                _write_variable(file, h5py.string_dtype(), step[name], advance)
            for holder, key, value in _placed_attributes(file, step, names):
                if isinstance(value, str):
                    holder.attrs.create(key, value, dtype=h5py.string_dtype())
                elif isinstance(value, tuple):
                    holder.attrs.create(key, np.array(value, object), shape=(len(value),), dtype=h5py.string_dtype())
                else:
                    holder.attrs.create(key, value)

    def compare(self, step: Step, checksums: BlockChecksums, path: Path, advance: Advance) -> None:
        h5py = _h5py()
        with h5py.File(path, "r") as file:
            for name in checksums:
                if name not in file:
                    raise CorruptError(f"the output does not have variable {name!r}", str(path))
                _compare_variable(file[name], step, name, checksums[name], path, advance)
            for holder, key, value in _placed_attributes(file, step, list(checksums)):
                if key not in holder.attrs or not same_attribute(_attribute_value(holder.attrs[key]), value):
                    raise CorruptError(f"attribute {key!r} of {holder.name!r} reads back as something else", str(path))


def _new_file(h5py: Any, path: Path) -> h5py.File:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    # The newer format keeps attributes of more than 64 KiB; HDF5 1.10 and later read it.
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_LATEST)
    # Elements are written when they are given: HDF5 crashes if it cannot write those it kept while a dataset is closed.
    access.set_sieve_buf_size(0)
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_EXCL, fcpl=creation, fapl=access))


def _write_variable(file: h5py.File, text_dtype: np.dtype[Any], variable: Variable, advance: Advance) -> None:
    name = variable.name
    if is_text(variable):
        texts = [str(variable.block(number).item()) for number in range(len(variable.blocks))]
        if variable.kind is ShapeKind.GLOBAL_VALUE:
            file.create_dataset(name, data=texts[0], dtype=text_dtype)
        else:
            file.create_dataset(name, data=np.array(texts, object), shape=(len(texts),), dtype=text_dtype)
        return
    if variable.kind is ShapeKind.LOCAL_ARRAY:
        group = file.create_group(name)
        for number in range(len(variable.blocks)):
            array = block_array(variable, number)
            group.create_dataset(_block_name(number), data=array)
            advance(array.nbytes)
        return
    dataset = file.create_dataset(name, shape=variable.shape, dtype=variable.dtype)
    for number, block in enumerate(variable.blocks):
        array = block_array(variable, number)
        if array.size:
            dataset[_place(variable, number, block)] = array.reshape(block.count or (1,) * variable.ndim)
        advance(array.nbytes)


def _compare_variable(
    node: h5py.Dataset | h5py.Group, step: Step, name: str, checksums: Sequence[int], path: Path, advance: Advance
) -> None:
    variable = step[name]
    if is_text(variable):
        texts = [node.asstr()[()]] if variable.kind is ShapeKind.GLOBAL_VALUE else list(node.asstr()[:])
        for number, expected in enumerate(checksums):
            check_block(text_checksum(texts[number]), expected, path, name, number)
        return
    if variable.kind is ShapeKind.LOCAL_ARRAY:
        for number, expected in enumerate(checksums):
            array = node[_block_name(number)][()]
            check_block(array_checksum(array), expected, path, name, number)
            advance(array.nbytes)
        return
    if node.shape != variable.shape or node.dtype != variable.dtype:
        raise CorruptError(f"variable {name!r} reads back with another type or shape", str(path))
    stream_checked = False
    for number, block in enumerate(variable.blocks):
        place = _place(variable, number, block)
        array = np.asarray(node[place])
        found = block_checksum(variable, array)
        if found != checksums[number]:
            # Where blocks overlap, later ones win in the file as in the stream, and a block's own checksum says nothing
            # of the file; what the stream gives is the measure, after its own check.
            if not stream_checked:
                check_stream(step, [name])
                stream_checked = True
            if array.tobytes() != np.asarray(variable[place]).tobytes():
                check_block(found, checksums[number], path, name, number)
        advance(array.nbytes)


def _place(variable: Variable, number: int, block: Block) -> tuple[slice, ...]:
    """Where a block lies in its dataset."""
    if variable.kind is ShapeKind.LOCAL_VALUE:
        return (slice(number, number + 1),)
    return tuple(slice(start, start + count) for start, count in zip(block.start, block.count, strict=True))


def _block_name(number: int) -> str:
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
                    f"HDF5 cannot hold both variables {parent!r} and {path!r}; choose with --variables, or use "
                    "--format bp5",
                    str(step.address),
                )


def _placed_attributes(
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


def _attribute_value(value: Any) -> Any:
    """What h5py read, in the form that steps have."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return tuple(value)
    return value
