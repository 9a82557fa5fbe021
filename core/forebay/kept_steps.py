# SPDX-License-Identifier: Apache-2.0
"""The kept steps of a stream as a list of their facts, and the selection of steps by numbers and slices."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex, overload

from forebay.closing import PublicNames
from forebay.errors import InvalidArgumentError, StepNotFoundError
from forebay.options import integer
from forebay.records import StepSummary

__all__ = ["Steps", "number_from_newest", "numbers_in_slice"]


class Steps(PublicNames, Sequence[StepSummary]):
    """The kept steps of a stream in order, as they were when asked for."""

    __slots__ = ("_native",)

    def __init__(self, native: Sequence[tuple[Any, ...]]) -> None:
        self._native = native

    @property
    def numbers(self) -> list[int]:
        """Number of each step."""
        return [fields[0] for fields in self._native]

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def __getitem__(self, index: SupportsIndex) -> StepSummary: ...
    @overload
    def __getitem__(self, index: slice) -> Steps: ...
    def __getitem__(self, index: SupportsIndex | slice) -> StepSummary | Steps:
        if isinstance(index, slice):
            return Steps(self._native[index])
        return StepSummary(*self._native[operator.index(index)])

    def __iter__(self) -> Iterator[StepSummary]:
        return (StepSummary(*fields) for fields in self._native)

    def __repr__(self) -> str:
        return f"<Steps: {self.numbers}>" if len(self) <= 20 else f"<Steps: {len(self)} of them>"


def number_from_newest(kept: Sequence[int], back: int, where: str) -> int:
    """The number of the step that is ``-back`` steps before the end of ``kept``: -1 is the newest.

    Raises
    ------
    StepNotFoundError
        So many are not kept.
    """
    if -back > len(kept):
        count = "1 step is" if len(kept) == 1 else f"{len(kept)} steps are"
        found = f"{count} kept: there is no step {back}" if kept else "the stream has no steps yet"
        raise StepNotFoundError(f"{found}; follow the stream to wait for one", where)
    return kept[back]


def numbers_in_slice(kept: Sequence[int], chosen: slice) -> list[int]:
    """Those of the sorted numbers ``kept`` that a slice of step *numbers* names, in its order.

    Start and stop are numbers, not places: steps that are not kept are left out. Negative ones count back from the
    newest kept step, and stop at the oldest.

    Raises
    ------
    ArgumentTypeError, InvalidArgumentError
        A part of the slice is no whole number, or its step is 0.
    """
    step = 1 if chosen.step is None else integer("the step of a slice", chosen.step)
    if step == 0:
        raise InvalidArgumentError("the step of a slice is not 0")
    bounds = [
        None if bound is None else _number(kept, integer("a bound of a slice of steps", bound), step)
        for bound in (chosen.start, chosen.stop)
    ]
    if not kept:
        return []
    start, stop = bounds
    if step > 0:
        numbers = range(0 if start is None else start, kept[-1] + 1 if stop is None else stop, step)
        first, last = bisect_left(kept, numbers.start), bisect_left(kept, numbers.stop)
        return [number for number in kept[first:last] if number in numbers]
    numbers = range(kept[-1] if start is None else start, -1 if stop is None else stop, step)
    return [number for number in reversed(kept) if number in numbers]


def _number(kept: Sequence[int], bound: int, step: int) -> int:
    if bound >= 0 or not kept:
        return bound
    if -bound <= len(kept):
        return kept[bound]
    return kept[0] if step > 0 else kept[0] - 1
