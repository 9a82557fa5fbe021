# SPDX-License-Identifier: Apache-2.0
"""Sweeps: a test is tried at many points, such as each message that a program sends, and a run takes a share of them.

The seed chooses which. A run takes at least a thirty-second of each sweep, and 32 seeds in a row take all of it;
FOREBAY_TEST_STRIDE_MAX=1 takes all at once. tests/support/sweep_points.h is the same in C++, and
tests/unit/support/test_sweeps.py proves it of both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

from tests.support.randomness import TEST_SEED

__all__ = ["SHARE_MIN", "Sweep", "first_point", "stride_max", "stride_of"]

Point = TypeVar("Point")

#: The least share of a sweep that a run takes is one in so many.
SHARE_MIN = 32


def stride_max() -> int:
    """The longest stride that is asked for: ``$FOREBAY_TEST_STRIDE_MAX``, 1 (all points) to 32."""
    found = int(os.environ.get("FOREBAY_TEST_STRIDE_MAX") or SHARE_MIN)
    if not 1 <= found <= SHARE_MIN:
        raise ValueError(f"FOREBAY_TEST_STRIDE_MAX is {found}; it is 1 (all points of a sweep) to {SHARE_MIN}")
    return found


def stride_of(points_min: int, longest: int = SHARE_MIN) -> int:
    """The longest stride by which each start takes a thirty-second of a sweep of ``points_min`` points or more.

    Of n points a stride takes n // stride, or one more.
    """
    for stride in range(min(longest, SHARE_MIN), 1, -1):
        # n // stride falls short of n / stride by (stride - 1) / stride at most, and n / stride - n / 32 grows with n.
        if all(n // stride * SHARE_MIN >= n for n in range(points_min, points_min + stride * SHARE_MIN)):
            return stride
    return 1


def first_point(seed: int, stride: int) -> int:
    """Where a run begins, counted from 0."""
    return seed % stride


class Sweep:
    """The sweep of one test, which asks for points once or several times. Made by the fixture ``sweep``."""

    def __init__(self, name: str, seed: int = TEST_SEED, longest: int | None = None) -> None:
        self._name = name
        self._seed = seed
        self._longest = stride_max() if longest is None else longest
        self._open: tuple[int, int] | None = None

    def among(self, points: Sequence[Point]) -> list[Point]:
        """This run's share of what is there."""
        stride = stride_of(len(points), self._longest)
        chosen = list(points[first_point(self._seed, stride) :: stride])
        print(f"sweep: {len(chosen)} of {len(points)} points, FOREBAY_TEST_SEED={self._seed}")
        self._log(len(chosen), len(points), stride)
        return chosen

    def numbers(self, points_min: int) -> Iterator[int]:
        """This run's share of 1, 2, … where only trying tells how many there are, ``points_min`` or more.

        It has no end: the test says by :meth:`ends_at` that a number lies behind the last point.
        """
        stride = stride_of(points_min, self._longest)
        self._open = points_min, stride
        print(f"sweep: every {stride}. point, FOREBAY_TEST_SEED={self._seed}")
        return count(1 + first_point(self._seed, stride), stride)

    def ends_at(self, number: int) -> None:
        """Nothing happened at ``number`` any more."""
        assert self._open is not None
        points_min, stride = self._open
        self._open = None
        first = 1 + first_point(self._seed, stride)
        assert number > points_min, f"a sweep of {points_min} points or more ended at the {number}."
        self._log((number - first) // stride, number - 1, stride)

    def check_ended(self) -> None:
        """Fails if points were asked for and the sweep stopped amid them."""
        assert self._open is None, "the test stopped before its sweep was at an end"

    def _log(self, tried: int, points: int, stride: int) -> None:
        """For the summary of ./run test. Where a stride found the end, there may be up to stride - 1 points fewer."""
        if log := os.environ.get("FOREBAY_TEST_SWEEPS_LOG"):
            line = json.dumps({"sweep": self._name, "tried": tried, "points": points, "stride": stride})
            with Path(log).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
