# SPDX-License-Identifier: Apache-2.0
"""What the formats of stage-out have in common: how one is written and checked, and what of a step is checked how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.checksum import crc32c
from forebay.datatypes import ShapeKind
from forebay.errors import CorruptError
from forebay.step import Step
from forebay.variable import Variable
from forebay.workflows.staging.array_checksum import array_checksum, value_bytes
from forebay.workflows.staging.checksum import text_checksum

__all__ = [
    "Advance",
    "BlockChecksums",
    "OutputFormat",
    "block_array",
    "block_checksum",
    "block_checksums",
    "check_block",
    "check_stream",
    "element_bytes",
    "is_text",
    "same_attribute",
    "type_name",
    "unchecked_variables",
]

Advance = Callable[[int], None]  #: told how many bytes more are done

#: CRC-32C of each block of each variable; of texts that of their UTF-8.
BlockChecksums = Mapping[str, Sequence[int]]


class OutputFormat(Protocol):
    """A file format that a step can be staged out to."""

    name: str
    suffix: str  #: of outputs, with its dot

    def write(self, step: Step, names: Sequence[str], path: Path, advance: Advance) -> None:
        """Writes these variables and all attributes to a path that does not exist."""

    def compare(self, step: Step, checksums: BlockChecksums, path: Path, advance: Advance) -> None:
        """Reads the output back; CorruptError if it is not what `step` and `checksums` say.

        That the stream's bytes themselves match the checksums is checked by it, too.
        """


def type_name(dtype: np.dtype[Any]) -> str:
    """The element type's name in JSON and docs."""
    if dtype.kind == "T":
        return "string"
    if dtype.kind == "S":
        return "character"
    return "long_double" if dtype == np.longdouble else dtype.name


def is_text(variable: Variable) -> bool:
    """True if its values are strings."""
    return variable.dtype.kind == "T"


def block_array(variable: Variable, number: int) -> NDArray[Any]:
    """One block's elements."""
    return np.asarray(variable.block(number))


def element_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The elements in C order as bytes; without a copy where the array is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def unchecked_variables(step: Step, names: Sequence[str]) -> Iterator[str]:
    """The variables with an array block whose writer took no checksum. (Single values lie in checked metadata.)"""
    for name in names:
        variable = step[name]
        if is_text(variable) or variable.kind in (ShapeKind.GLOBAL_VALUE, ShapeKind.LOCAL_VALUE):
            continue
        if any(block.checksum is None and block.size_bytes for block in variable.blocks):
            yield name


def check_stream(step: Step, names: Sequence[str]) -> None:
    """CorruptError if a block in the stream does not match its writer's checksum; without one it cannot be told."""
    unchecked = set(unchecked_variables(step, names))
    for name in names:
        if name not in unchecked:
            step[name].verify()


def block_checksum(variable: Variable, array: NDArray[Any]) -> int:
    """The checksum of what was read of one of its blocks."""
    return crc32c(value_bytes(array)) if variable.kind is ShapeKind.GLOBAL_VALUE else array_checksum(array)


def block_checksums(step: Step, names: Sequence[str]) -> dict[str, list[int]]:
    """The writer's checksum of each block, taken from the bytes where it took none."""
    found = {}
    for name in names:
        variable = step[name]
        checksums = []
        for number, block in enumerate(variable.blocks):
            if is_text(variable):
                checksums.append(text_checksum(str(variable.block(number).item())))
            elif block.checksum is None or variable.kind is ShapeKind.GLOBAL_VALUE:
                checksums.append(block_checksum(variable, block_array(variable, number)))
            else:
                checksums.append(block.checksum)
        found[name] = checksums
    return found


def check_block(found: int, expected: int, path: Path, name: str, number: int) -> None:
    """CorruptError unless the checksums are equal."""
    if found != expected:
        raise CorruptError(
            f"what was written does not match the stream: block {number} of variable {name!r} reads back with checksum "
            f"{found:08x} instead of {expected:08x}; the destination's storage may be failing",
            str(path),
        )


def same_attribute(left: Any, right: Any) -> bool:
    """True if two attributes have the same type, form and value; NaN equals itself."""
    if isinstance(left, (str, tuple)) or isinstance(right, (str, tuple)):
        return type(left) is type(right) and bool(left == right)
    first, second = np.asarray(left), np.asarray(right)
    return first.dtype == second.dtype and first.shape == second.shape and value_bytes(first) == value_bytes(second)
