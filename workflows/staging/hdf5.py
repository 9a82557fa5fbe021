# SPDX-License-Identifier: Apache-2.0
"""HDF5 as a format of stage-out: `forebay.hdf5` writes, and what it wrote is read back and compared here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.datatypes import ShapeKind
from forebay.errors import CorruptError
from forebay.hdf5 import (
    STEP_ATTRIBUTE,
    block_name,
    block_place,
    dataset_path,
    import_h5py,
    placed_attributes,
    write_step,
)
from forebay.step import Step
from forebay.workflows.staging.array_checksum import array_checksum
from forebay.workflows.staging.checksum import text_checksum
from forebay.workflows.staging.outputs import (
    Advance,
    BlockChecksums,
    block_checksum,
    check_block,
    check_stream,
    is_text,
    same_attribute,
)

if TYPE_CHECKING:
    import h5py

__all__ = ["Hdf5Format", "attribute_value"]


class Hdf5Format:
    """HDF5; see `OutputFormat`."""

    name = "hdf5"
    suffix = ".h5"

    def write(self, step: Step, names: Sequence[str], path: Path, advance: Advance) -> None:
        write_step(step, path, names, advance)

    def compare(self, step: Step, checksums: BlockChecksums, path: Path, advance: Advance) -> None:
        with import_h5py().File(path, "r") as file:
            for name in checksums:
                dataset = dataset_path(name)
                if dataset not in file:
                    raise CorruptError(f"the output does not have variable {name!r}", str(path))
                _compare_variable(file[dataset], step, name, checksums[name], path, advance)
            for holder, key, value in placed_attributes(file, step, list(checksums)):
                if key not in holder.attrs or not same_attribute(attribute_value(holder.attrs[key]), value):
                    raise CorruptError(f"attribute {key!r} of {holder.name!r} reads back as something else", str(path))
            if STEP_ATTRIBUTE not in step.attributes and file.attrs.get(STEP_ATTRIBUTE) != step.number:
                raise CorruptError("the output does not have the number of the step", str(path))


def _compare_variable(
    node: h5py.Dataset | h5py.Group, step: Step, name: str, checksums: Sequence[int], path: Path, advance: Advance
) -> None:
    variable = step[name]
    is_single = variable.kind is ShapeKind.GLOBAL_VALUE
    if is_text(variable):
        texts = [node.asstr()[()]] if is_single else list(node.asstr()[:])
        for number, text in enumerate(texts):
            check_block(text_checksum(text), checksums[number], path, name, number)
        return
    if variable.kind is ShapeKind.LOCAL_ARRAY:
        for number, expected in enumerate(checksums):
            array = node[block_name(number)][()]
            check_block(array_checksum(array), expected, path, name, number)
            advance(array.nbytes)
        return
    if node.shape != variable.shape or node.dtype != variable.dtype:
        raise CorruptError(f"variable {name!r} reads back with another type or shape", str(path))
    if is_single:
        check_block(block_checksum(variable, np.asarray(node[()])), checksums[0], path, name, 0)
        advance(node.nbytes)
        return
    stream_checked = False
    for number, block in enumerate(variable.blocks):
        place = block_place(variable, number, block)
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


def attribute_value(value: Any) -> Any:
    """What h5py read, in the form that steps have."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return tuple(value)
    return value
