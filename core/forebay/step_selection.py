# SPDX-License-Identifier: Apache-2.0
"""Steps that a user chooses: every N-th, and numbers and ranges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd
from typing import Self

from forebay.errors import InvalidArgumentError

__all__ = ["StepSelection"]

#: Of 4301 digits or more, `int` raises an error of its own.
_NUMBER = "[0-9]{1,19}"
_STEP = re.compile(_NUMBER)
_RANGE = re.compile(rf"(?P<start>(?:{_NUMBER})?):(?P<stop>(?:{_NUMBER})?)(?::(?P<stride>{_NUMBER}))?")
_SHOWN_CHARACTERS = 80  # of what is wrong


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
            if _STEP.fullmatch(term):
                number = int(term)
                ranges.append((number, number + 1, 1))
                if every is None or number % every == 0:
                    named.add(number)
                continue
            match = _RANGE.fullmatch(term)
            if match is None:
                raise InvalidArgumentError(
                    f"{term[:_SHOWN_CHARACTERS]!r} is not a step number or range: write for example 0,5,10:20 (10 to "
                    "19) or 100:200:10"
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
        for start, stop, stride in self.ranges:
            if stop is None:
                return None
            highest = max(highest, _last_of(start, stop, stride, self.every or 1))
        return highest


def _last_of(start: int, stop: int, stride: int, every: int) -> int:
    """The highest number of a range that `every` divides; -1 without one. It takes no longer for a longer range."""
    common = gcd(stride, every)
    if start % common:
        return -1
    rest = every // common
    first = start + stride * (-(start // common) * pow(stride // common, -1, rest) % rest)
    if first >= stop:
        return -1
    period = stride * rest
    return first + (stop - 1 - first) // period * period
