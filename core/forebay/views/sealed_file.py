# SPDX-License-Identifier: Apache-2.0
"""What a step is as a file: bytes that a format made, and where the arrays of the step lie between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from forebay.datatypes import ShapeKind
from forebay.step import Step
from forebay.variable import Variable

__all__ = ["ARRAY_BYTES_MIN", "ArrayRun", "HeaderRun", "SealedFile", "ViewFormat", "array_runs", "read_part"]

#: Arrays below this size are written by the format itself, among its header's bytes.
ARRAY_BYTES_MIN = 4096


@dataclass(frozen=True, slots=True)
class HeaderRun:
    """Bytes that a format made, at their place in the file."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ArrayRun:
    """Elements of a variable in C order, at their place in the file."""

    offset: int
    size_bytes: int
    variable: str
    block: int | None  #: this block; None: the whole array, put together from its blocks


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A step as a file. Runs do not overlap; what none of them covers is zero."""

    size_bytes: int
    header: tuple[HeaderRun, ...]
    arrays: tuple[ArrayRun, ...]


class ViewFormat(Protocol):
    """How a step becomes a file. A pure function of what a step says of itself: it reads no array."""

    def lay_out(self, step: Step, variable: str | None) -> SealedFile:
        """The file of the step, or of one of its variables.

        Raises
        ------
        VariableNotFoundError
            The step does not have it.
        UnsupportedError
            The format cannot hold the step; the text says why, and what it can hold.
        """
        ...


def array_runs(variable: Variable, offset: int) -> list[ArrayRun]:
    """The runs of a whole global or joined array at this place in a file.

    A run for each block, if each is contiguous in the array and no two overlap; else one for the whole.
    """
    item = variable.dtype.itemsize
    runs: list[ArrayRun] = []
    for number, block in enumerate(variable.blocks):
        if 0 in block.count:
            continue
        if not _is_contiguous(block.count, variable.shape):
            break
        first = int(np.ravel_multi_index(block.start, variable.shape))
        runs.append(ArrayRun(offset + first * item, math.prod(block.count) * item, variable.name, number))
    else:
        runs.sort(key=lambda run: run.offset)
        if all(run.offset + run.size_bytes <= after.offset for run, after in pairwise(runs)):
            return runs
    return [ArrayRun(offset, variable.nbytes, variable.name, None)]


def read_part(step: Step, run: ArrayRun, start: int, stop: int) -> NDArray[np.uint8]:
    """Bytes ``start`` to ``stop`` of a run: a view where the step can be mapped, else a copy of the rows around them.

    Raises
    ------
    CorruptError
        A block does not match its checksum, where these are checked.
    StepGoneError
        The step was not pinned and has been dropped meanwhile.
    """
    variable = step[run.variable]
    shape = variable.shape if run.block is None else variable.blocks[run.block].count
    # Rows along the first dimension that has more than one: the others before it cannot be cut.
    axis = next((number for number, extent in enumerate(shape) if extent > 1), len(shape) - 1)
    row_bytes = run.size_bytes // shape[axis]
    first, last = start // row_bytes, -(-stop // row_bytes)
    index = (*[slice(None)] * axis, slice(first, last))
    array: NDArray[Any] = variable[index] if run.block is None else variable.block(run.block, index)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat[start - first * row_bytes : stop - first * row_bytes]


def is_array(variable: Variable) -> bool:
    """Whether it is one array: global or joined."""
    return variable.kind in (ShapeKind.GLOBAL_ARRAY, ShapeKind.JOINED_ARRAY)


def _is_contiguous(count: Sequence[int], shape: Sequence[int]) -> bool:
    axis = next((number for number, extent in enumerate(count) if extent > 1), len(shape))
    return tuple(count[axis + 1 :]) == tuple(shape[axis + 1 :])
