# SPDX-License-Identifier: Apache-2.0
"""Steps one after the other, of which the next ones are asked for together: a question for each would be most of what
a small step takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from forebay.errors import CancelledError, ForebayError
from forebay.step import Step

if TYPE_CHECKING:
    from forebay.step_table import Array, StepTable

__all__ = ["StepsInOrder"]

#: At once. Their pins last until the loop has come to them.
_STEPS_MAX = 32
_BYTES_MAX = 64 << 20
_KEPT_SHARE = 8


class StepsInOrder(Iterator[Step]):
    """The steps of a table.

    Who stops at an early one has asked for few: each time there are twice as many, up to 32 steps, 64 MiB and
    an eighth of what the stream keeps: readers without a name may hold a quarter of the reservation together.

    Parameters
    ----------
    table : StepTable
        The steps.
    sizes_bytes : array of int64
        Size of each step.

    Raises
    ------
    StepGoneError
        By the iteration: a step was dropped before it was asked for.
    ValueError
        By the iteration: the stream is closed.
    """

    def __init__(self, table: StepTable, sizes_bytes: Array) -> None:
        self._table = table
        self._sizes_bytes = sizes_bytes
        self._bytes_max = min(_BYTES_MAX, int(sizes_bytes.sum()) // _KEPT_SHARE)
        self._index = 0
        self._count = 1
        self._ahead: dict[int, Step] = {}

    def __next__(self) -> Step:
        index = self._index
        if index == len(self._table):
            raise StopIteration
        try:
            self._table.stream._check_open()
        except ValueError:
            self._ahead.clear()
            raise
        if not self._ahead and index > 0:
            self._ask(index)
        self._index = index + 1
        step = self._ahead.pop(int(self._table.numbers[index]), None)
        if step is None or step.epoch != self._table.epochs[index]:
            return self._table.step(index)  # or says why there is none
        return step

    def _ask(self, index: int) -> None:
        wanted = int((self._sizes_bytes[index : index + self._count].cumsum() <= self._bytes_max).sum())
        self._count = min(2 * self._count, _STEPS_MAX)
        if wanted < 2:
            return
        try:
            steps = self._table.stream._steps_of(self._table.numbers[index : index + wanted].tolist())
        except CancelledError:
            raise
        except ForebayError:
            # Whichever step it is about says so when the loop comes to it.
            self._count = 1
            return
        pinned = list(takewhile(lambda step: step.pinned, steps))
        self._ahead = {step.number: step for step in pinned}
        if len(pinned) < len(steps):
            self._count = 1  # readers without a name hold all that they may
