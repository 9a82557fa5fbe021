# SPDX-License-Identifier: Apache-2.0
"""What ``forebay_load`` writes, computed once more, so that steps read by ADIOS2 can be checked (load/content.cpp)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["expected_block", "wrong_in_step"]

_MASK = (1 << 64) - 1
_STRIDE = 0xD1342543DE82EF95


def _mixed(value: int) -> int:
    """splitmix64."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def expected_block(
    stream: str, epoch: int, incarnation: int, step: int, rank: int, variable: int, elements: int
) -> NDArray[np.uint64]:
    """The elements that one rank wrote of one variable."""
    seed = 0
    for character in stream.encode():
        seed = _mixed(seed ^ character)
    for part in (epoch, incarnation, step, rank, variable):
        seed = _mixed(seed ^ part)
    with np.errstate(over="ignore"):
        return np.uint64(seed) + np.uint64(_STRIDE) * np.arange(1, elements + 1, dtype=np.uint64)


def wrong_in_step(stream: str, read: Callable[[str], Any]) -> tuple[int, int, int, str]:
    """Step, epoch and incarnation that a step's own values tell, and what is wrong with the step (empty: nothing).

    ``stream`` is the stream's name; ``read`` gives a variable's values by its name.
    """
    step, epoch, ranks, variables, elements = (
        int(np.asarray(read(name)).reshape(-1)[0]) for name in ("step", "epoch", "ranks", "variables", "elements")
    )
    writers = np.asarray(read("incarnation")).reshape(-1)
    incarnation = int(writers[0])
    if len(writers) != ranks or np.any(writers != incarnation):
        return step, epoch, incarnation, f"incarnations {writers} in a step of {ranks} ranks"
    for variable in range(variables):
        array = np.asarray(read(f"v{variable}"))
        if array.shape != (ranks, elements):
            return step, epoch, incarnation, f"v{variable} has shape {array.shape}, not {(ranks, elements)}"
        for rank in range(ranks):
            expected = expected_block(stream, epoch, incarnation, step, rank, variable, elements)
            if not np.array_equal(array[rank].view(np.uint64), expected):
                return step, epoch, incarnation, f"v{variable} of rank {rank} differs"
    return step, epoch, incarnation, ""
