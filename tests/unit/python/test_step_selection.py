# SPDX-License-Identifier: Apache-2.0
"""Which steps a stage-out takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import InvalidArgumentError
from forebay.step_selection import StepSelection


def chosen(every: int | None, steps: str, below: int = 60) -> list[int]:
    selection = StepSelection.parse(every, steps)
    return [number for number in range(below) if number in selection]


@pytest.mark.parametrize(
    ("every", "steps", "expected"),
    [
        (None, "", list(range(60))),
        (10, "", [0, 10, 20, 30, 40, 50]),
        (None, "0,5,10:13", [0, 5, 10, 11, 12]),
        (None, " 3 , 1,,3", [1, 3]),
        (None, "50:", list(range(50, 60))),
        (None, ":3", [0, 1, 2]),
        (None, "5:30:10", [5, 15, 25]),
        (10, "15:45", [20, 30, 40]),
        (10, "7", []),
    ],
)
def test_every_and_steps_narrow_one_another(every: int | None, steps: str, expected: list[int]) -> None:
    assert chosen(every, steps) == expected


@given(st.integers(1, 12), st.integers(0, 40), st.integers(1, 40), st.integers(1, 7))
def test_the_last_one_is_the_last_one(every: int, start: int, length: int, stride: int) -> None:
    text = f"{start}:{start + length}:{stride}"
    numbers = chosen(every, text, below=100)
    assert StepSelection.parse(every, text).last == (numbers[-1] if numbers else -1)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("every", "steps", "last"),
    [
        (None, "1:9999999999999999999:999999999999999999", 9999999999999999991),
        (999999999999999989, "0:9999999999999999999:999999999999999967", 0),
        (6, "1:9999999999999999999:4", -1),
    ],
)
def test_the_last_one_of_a_long_range_is_told_at_once(every: int | None, steps: str, last: int) -> None:
    assert StepSelection.parse(every, steps).last == last


@pytest.mark.parametrize("steps", ["", "5:", "1,3:"])
def test_without_an_end_there_is_no_last_one(steps: str) -> None:
    assert StepSelection.parse(None, steps).last is None


@pytest.mark.parametrize(
    "steps", ["a", "-1", "1-3", "3:3", "5:2", "1:9:0", "1:2:3:4", "٣", "1.5", "9" * 5000, ":" + "9" * 5000]
)
def test_what_is_no_selection_is_told(steps: str) -> None:
    with pytest.raises(InvalidArgumentError) as told:
        StepSelection.parse(None, steps)
    assert len(told.value.what) < 300


def test_every_begins_at_one() -> None:
    with pytest.raises(InvalidArgumentError):
        StepSelection.parse(0, "")


def test_named_steps_are_those_that_every_leaves() -> None:
    assert StepSelection.parse(5, "5,7,10:20").named == frozenset({5})
