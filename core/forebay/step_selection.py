# SPDX-License-Identifier: Apache-2.0
"""Steps that a user chooses: every N-th, and numbers and ranges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from forebay.errors import InvalidArgumentError

__all__ = ["StepSelection"]

_RANGE = re.compile(r"(?P<start>\d*):(?P<stop>\d*)(?::(?P<stride>\d+))?")


@dataclass(frozen=True, slots=True)
class StepSelection:
    """A step is chosen if `every` divides its number (where given) and one of `ranges` has it (where any are given)."""

    every: int | None = None
    #: start, stop (None: without end) and stride of each range.
    ranges: tuple[tuple[int, int | None, int], ...] = ()
    #: Numbers that were given one by one: their absence is an error.
    named: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, every: int | None, steps: str) -> Self:
        """From the options: ``every`` 10, ``steps`` ``"0,5,10:20,100:200:10"`` (ranges as Python's: without their end).

        Raises
        ------
        InvalidArgumentError
            ``every`` below 1, or ``steps`` is not such a list.
        """
        if every is not None and every < 1:
            raise InvalidArgumentError(f"--every takes a number of 1 or more, not {every}")
        ranges: list[tuple[int, int | None, int]] = []
        named: set[int] = set()
        for term in (term.strip() for term in steps.split(",") if term.strip()):
            if term.isascii() and term.isdigit():
                number = int(term)
                ranges.append((number, number + 1, 1))
                if every is None or number % every == 0:
                    named.add(number)
                continue
            match = _RANGE.fullmatch(term)
            if match is None:
                raise InvalidArgumentError(
                    f"{term!r} is not a step number or range: write for example 0,5,10:20 (10 to 19) or 100:200:10"
                )
            start = int(match["start"] or 0)
            stop = int(match["stop"]) if match["stop"] else None
            stride = int(match["stride"] or 1)
            if stride == 0 or (stop is not None and stop <= start):
                raise InvalidArgumentError(f"the range {term!r} has no steps: write START:STOP with START below STOP")
            ranges.append((start, stop, stride))
        return cls(every, tuple(ranges), frozenset(named))

    def __contains__(self, number: int) -> bool:
        if self.every is not None and number % self.every:
            return False
        if not self.ranges:
            return True
        return any(
            start <= number and (stop is None or number < stop) and (number - start) % stride == 0
            for start, stop, stride in self.ranges
        )

    @property
    def last(self) -> int | None:
        """The highest number that can be chosen; None without a limit."""
        if not self.ranges:
            return None
        highest = -1
        for _, stop, _ in self.ranges:
            if stop is None:
                return None
            highest = max(highest, stop - 1)
        while highest >= 0 and highest not in self:
            highest -= 1
        return highest
