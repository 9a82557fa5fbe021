# SPDX-License-Identifier: Apache-2.0
"""Many BP5 files of one step each as one BP5 file: what ADIOS2 shows of each is a step of the one.

The attribute ``forebay/steps`` has the steps' numbers in the stream.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adios2  # noqa: F401 - loads the ADIOS2 library that _bp5 needs
import numpy as np
from numpy.typing import NDArray

from forebay.checksum import crc32c
from forebay.datatypes import DataType, attribute_to_native, dtype_of
from forebay.errors import CorruptError
from forebay.workflows.staging import _bp5
from forebay.workflows.staging.bp5 import opened_to_read
from forebay.workflows.staging.checksum import text_checksum
from forebay.workflows.staging.merging import JoinedAttributes, SingleStep, check_bytes
from forebay.workflows.staging.outputs import Advance

__all__ = ["STEPS_ATTRIBUTE", "Bp5Merger"]

STEPS_ATTRIBUTE = "forebay/steps"

_Value = tuple[int, bool, bytes, list[str]]


@dataclass(frozen=True, slots=True)
class _Content:
    """What was written of a variable in one step."""

    layout: Any
    checksums: list[int]


class Bp5Merger:
    """BP5; see `Merger`."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._attributes: dict[str, _Value] = {}
        self._written: list[dict[str, _Content]] = []

    def write(self, steps: Sequence[SingleStep], path: Path, advance: Advance) -> None:
        joined = JoinedAttributes[_Value](lambda one, other: one == other)
        for step in steps:
            with opened_to_read(step.path) as reader:
                joined.add(_attributes(reader))
        self.notes = joined.notes()
        numbers = np.array([step.number for step in steps], np.uint64)
        code, is_array, data, texts = attribute_to_native(STEPS_ATTRIBUTE, numbers)
        self._attributes = joined.values | {STEPS_ATTRIBUTE: (int(code), is_array, data, texts)}
        path.mkdir()
        writer = _bp5.Writer(str(path))
        for name, value in self._attributes.items():
            writer.set_attribute(name, *value)
        for place, step in enumerate(steps):
            if place:
                writer.next_step()
            with opened_to_read(step.path) as reader:
                self._written.append(_copy(reader, writer, advance))
        writer.close()

    def compare(self, steps: Sequence[SingleStep], path: Path, advance: Advance) -> None:
        with opened_to_read(path, step_by_step=True) as reader:
            self._compare_steps(reader, steps, path, advance)
        # Step by step, ADIOS2 tells attributes only in the step that they were written in.
        with opened_to_read(path) as reader:
            if _attributes(reader) != self._attributes:
                raise CorruptError("the output does not have the attributes of the steps", str(path))

    def _compare_steps(self, reader: _bp5.Reader, steps: Sequence[SingleStep], path: Path, advance: Advance) -> None:
        for step, written in zip(steps, self._written, strict=True):
            if not reader.next_step():
                raise CorruptError(f"the output ends before step {step.number}", str(path))
            variables = reader.variables()
            if {name: _layout(code, shape, blocks) for name, code, _, shape, blocks in variables} != {
                name: content.layout for name, content in written.items()
            }:
                raise CorruptError(f"step {step.number} reads back with other variables or shapes", str(path))
            for place, (name, code, _, _, blocks) in enumerate(variables):
                for number, expected in enumerate(written[name].checksums):
                    found = _read(reader, place, name, code, blocks[number][1], number)
                    check_bytes(_checksum(found), expected, path, name, step.number)
                    advance(0 if isinstance(found, str) else found.nbytes)
        if reader.next_step():
            raise CorruptError("the output has more steps than were written", str(path))


def _attributes(reader: _bp5.Reader) -> dict[str, _Value]:
    return {name: (code, is_array, data, texts) for name, code, is_array, data, texts in reader.attributes()}


def _copy(reader: _bp5.Reader, writer: _bp5.Writer, advance: Advance) -> dict[str, _Content]:
    """One step, block by block."""
    contents = {}
    for place, (name, code, _, shape, blocks) in enumerate(reader.variables()):
        checksums = []
        for number, (start, count) in enumerate(blocks):
            found = _read(reader, place, name, code, count, number)
            checksums.append(_checksum(found))
            if isinstance(found, str):
                writer.put_string(name, found)
            else:
                writer.put(name, code, shape, start, count, found)
                advance(found.nbytes)
        contents[name] = _Content(_layout(code, shape, blocks), checksums)
    return contents


def _read(
    reader: _bp5.Reader, place: int, name: str, code: int, count: Sequence[int], block: int
) -> str | NDArray[np.uint8]:
    if code == DataType.STRING:
        return reader.read_string(name)
    data = np.empty(math.prod(count) * dtype_of(DataType(code)).itemsize, np.uint8)
    reader.read_block(place, block, data)
    return data


def _checksum(content: str | NDArray[np.uint8]) -> int:
    return text_checksum(content) if isinstance(content, str) else crc32c(content)


def _layout(code: int, shape: Sequence[int], blocks: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Any:
    return code, tuple(shape), [(tuple(start), tuple(count)) for start, count in blocks]
