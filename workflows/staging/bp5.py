# SPDX-License-Identifier: Apache-2.0
"""One step as a BP5 file of ADIOS2: a block in the file for every block of the stream, with shape, start and count.

Joined arrays and local values become the global arrays that ADIOS2 readers see in them anyway. Texts that differ from
rank to rank, for which ADIOS2 has no array, become an attribute of the variable's name.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import adios2  # noqa: F401 - loads the ADIOS2 library that _bp5 needs
import numpy as np
from numpy.typing import NDArray

from forebay.datatypes import (
    AttributeValue,
    DataType,
    ShapeKind,
    attribute_from_native,
    attribute_to_native,
    code_of,
    dtype_of,
)
from forebay.errors import CorruptError, UnsupportedError
from forebay.step import Step
from forebay.variable import Variable
from forebay.workflows.staging import _bp5
from forebay.workflows.staging.checksum import text_checksum
from forebay.workflows.staging.outputs import (
    Advance,
    BlockChecksums,
    block_array,
    block_checksum,
    check_block,
    element_bytes,
    is_text,
    same_attribute,
)

__all__ = ["Bp5Format", "opened_to_read"]

_Extents = tuple[int, ...]


class Bp5Format:
    """BP5; see `OutputFormat`."""

    name = "bp5"
    suffix = ".bp"

    def write(self, step: Step, names: Sequence[str], path: Path, advance: Advance) -> None:
        # ADIOS2 does not look whether it could, nor why not.
        path.mkdir()
        writer = _bp5.Writer(str(path))
        for name, value in _attributes(step, names).items():
            writer.set_attribute(name, *_native_attribute(name, value))
        for name in names:
            variable = step[name]
            if is_text(variable):
                if variable.kind is ShapeKind.GLOBAL_VALUE:
                    writer.put_string(name, str(variable[...]))
                continue
            code = code_of(variable.dtype, name)
            for number, (shape, start, count) in enumerate(_placements(variable)):
                data = element_bytes(block_array(variable, number))
                writer.put(name, code, shape, start, count, data)
                advance(data.nbytes)
        # Large blocks are written here, straight from the stream's pages.
        writer.close()

    def compare(self, step: Step, checksums: BlockChecksums, path: Path, advance: Advance) -> None:
        with opened_to_read(path) as reader:
            self._compare(reader, step, checksums, path, advance)

    def _compare(
        self, reader: _bp5.Reader, step: Step, checksums: BlockChecksums, path: Path, advance: Advance
    ) -> None:
        names = list(checksums)
        if reader.steps != 1:
            raise CorruptError(f"the output has {reader.steps} steps instead of one", str(path))
        variables = reader.variables()
        expected_names = {name for name in names if not (is_text(step[name]) and _is_per_rank(step[name]))}
        if {name for name, *_ in variables} != expected_names:
            raise CorruptError("the output does not have the variables of the step", str(path))
        for place, (name, code, _, shape, blocks) in enumerate(variables):
            variable = step[name]
            if code == DataType.STRING:
                check_block(text_checksum(reader.read_string(name)), checksums[name][0], path, name, 0)
                continue
            placements = list(_placements(variable))
            found = [(tuple(shape), tuple(start), tuple(count)) for start, count in blocks]
            if found != placements or code not in _types_read_back(variable):
                raise CorruptError(f"variable {name!r} reads back with another type, shape or decomposition", str(path))
            for number, (_, _, count) in enumerate(placements):
                array = _scratch_array(count, dtype_of(code))
                reader.read_block(place, number, element_bytes(array))
                check_block(block_checksum(variable, array), checksums[name][number], path, name, number)
                advance(array.nbytes)
        found_attributes = {
            name: attribute_from_native(type_code, is_array, data, texts)
            for name, type_code, is_array, data, texts in reader.attributes()
        }
        expected = _attributes(step, names)
        if found_attributes.keys() != expected.keys() or not all(
            same_attribute(found_attributes[name], value) for name, value in expected.items()
        ):
            raise CorruptError("the output does not have the attributes of the step", str(path))


@contextlib.contextmanager
def opened_to_read(path: Path, *, step_by_step: bool = False) -> Iterator[_bp5.Reader]:
    """A reader of an output, which leaves nothing.

    ADIOS2 leaves a profile in /tmp, named after what was opened, whatever the parameter Profile says. Where somebody
    has put a link of that name before, it writes into what that leads to. So the name is one that nobody else can know.
    """
    with tempfile.TemporaryDirectory(prefix="forebay-bp5-") as hidden:
        link = Path(hidden, secrets.token_hex(16))
        link.symlink_to(path.absolute())
        try:
            # Closed before its profile is removed.
            with contextlib.closing(_bp5.Reader(str(link), step_by_step=step_by_step)) as reader:
                yield reader
        finally:
            for profile in Path("/tmp").glob(f"{link.name}_*_profiling.json"):  # noqa: S108 - it asks for no other
                with contextlib.suppress(OSError):
                    profile.unlink()


_scratch = threading.local()


def _scratch_array(shape: _Extents, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Memory that is used again by each block that a thread compares: fresh memory costs as much as reading."""
    size_bytes = math.prod(shape) * dtype.itemsize
    memory: NDArray[np.uint8] | None = getattr(_scratch, "memory", None)
    if memory is None or memory.nbytes < size_bytes:
        memory = _scratch.memory = np.empty(size_bytes, np.uint8)
    return memory[:size_bytes].view(dtype).reshape(shape)


def _types_read_back(variable: Variable) -> tuple[int, ...]:
    """The element types that BP5 may show for a variable: of a single value it does not tell char from int8."""
    code = code_of(variable.dtype, variable.name)
    if code == DataType.CHARACTER and variable.kind is ShapeKind.GLOBAL_VALUE:
        return (DataType.CHARACTER, DataType.INT8)
    return (code,)


def _is_per_rank(variable: Variable) -> bool:
    return variable.kind is ShapeKind.LOCAL_VALUE


def _placements(variable: Variable) -> Iterator[tuple[_Extents, _Extents, _Extents]]:
    """Shape, start and count of each block as ADIOS2 is to have them."""
    if variable.kind is ShapeKind.GLOBAL_VALUE:
        yield (), (), ()
        return
    for number, block in enumerate(variable.blocks):
        if _is_per_rank(variable):
            yield variable.shape, (number,), (1,)
        elif variable.kind is ShapeKind.LOCAL_ARRAY:
            yield (), (), block.count
        else:
            yield variable.shape, block.start, block.count


def _attributes(step: Step, names: Sequence[str]) -> dict[str, AttributeValue]:
    """The step's attributes, and the texts that stand for variables."""
    attributes = dict(step.attributes)
    for name in names:
        variable = step[name]
        if is_text(variable) and _is_per_rank(variable):
            if name in attributes:
                raise UnsupportedError(
                    f"ADIOS2 has no array of texts, and an attribute {name!r} is in the way of keeping the variable "
                    "as one; "
                    "leave the variable out (--variables) or stage to --format hdf5",
                    str(step.address),
                )
            attributes[name] = tuple(str(text) for text in variable[...])
    return attributes


def _native_attribute(name: str, value: AttributeValue) -> tuple[int, bool, bytes, list[str]]:
    if isinstance(value, tuple):
        return int(DataType.STRING), True, b"", list(value)
    code, is_array, data, texts = attribute_to_native(name, value)
    return int(code), is_array, data, texts
