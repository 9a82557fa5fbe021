# SPDX-License-Identifier: Apache-2.0
"""Steps one after the other, of which the next ones are asked for together: a question for each would be most of what
a small step takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from forebay.step import Step

if TYPE_CHECKING:
    from forebay.step_table import Array, StepTable

__all__ = ["StepsInOrder"]

#: At once. Their pins last until the loop has come to them.
_STEPS_MAX = 32
_BYTES_MAX = 64 << 20


class StepsInOrder(Iterator[Step]):
    """The steps of a table.

    Who stops at an early one has asked for few: each time there are twice as many, up to 32 steps and 64 MiB.

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
        wanted = int((self._sizes_bytes[index : index + self._count].cumsum() <= _BYTES_MAX).sum())
        self._count = min(2 * self._count, _STEPS_MAX)
        if wanted > 1:
            numbers = self._table.numbers[index : index + wanted].tolist()
            # One without a pin is worth nothing until it is wanted.
            self._ahead = {step.number: step for step in self._table.stream._steps_of(numbers) if step.pinned}
