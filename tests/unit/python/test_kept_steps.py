# SPDX-License-Identifier: Apache-2.0
"""What numbers and slices of step numbers choose among the kept steps."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import forebay
from forebay.kept_steps import number_from_newest, numbers_in_slice

GAPS = [0, 10, 20, 27, 28, 29]


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        (slice(None), GAPS),
        (slice(10, 28), [10, 20, 27]),
        (slice(11, None), [20, 27, 28, 29]),
        (slice(None, 20), [0, 10]),
        (slice(None, None, 10), [0, 10, 20]),
        (slice(27, None, 2), [27, 29]),
        (slice(-3, None), [27, 28, 29]),
        (slice(None, -1), [0, 10, 20, 27, 28]),
        (slice(-100, -5), [0]),
        (slice(None, None, -1), GAPS[::-1]),
        (slice(28, 9, -1), [28, 27, 20, 10]),
        (slice(None, -100, -1), GAPS[::-1]),
        (slice(100, 200), []),
        (slice(20, 10), []),
    ],
)
def test_slice_takes_numbers_not_places(chosen: slice, numbers: list[int]) -> None:
    assert numbers_in_slice(GAPS, chosen) == numbers
    assert numbers_in_slice([], chosen) == []


bounds = st.none() | st.integers(-40, 40)


@given(start=bounds, stop=bounds, step=st.none() | st.integers(-5, 5).filter(bool), kept=st.integers(0, 30))
def test_slice_of_steps_without_gaps_is_that_of_a_list(
    start: int | None, stop: int | None, step: int | None, kept: int
) -> None:
    """Where all steps from 0 on are kept, numbers and places are the same."""
    # Beyond the newest step a list begins at its end, and numbers go on counting.
    assume(start is None or start < kept or (step or 1) > -2)
    everything = list(range(kept))
    assert numbers_in_slice(everything, slice(start, stop, step)) == everything[start:stop:step]


def test_slice_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(forebay.ArgumentTypeError, match=r"a bound of a slice of steps is a whole number, not 1.5"):
        numbers_in_slice(GAPS, slice(1.5, None))
    with pytest.raises(forebay.InvalidArgumentError, match="not 0"):
        numbers_in_slice(GAPS, slice(None, None, 0))


def test_negative_number_counts_back_from_the_newest() -> None:
    assert [number_from_newest(GAPS, back, "") for back in (-1, -4, -6)] == [29, 20, 0]
    with pytest.raises(forebay.StepNotFoundError, match="6 steps are kept: there is no step -7"):
        number_from_newest(GAPS, -7, "")
    with pytest.raises(forebay.StepNotFoundError, match="has no steps yet"):
        number_from_newest([], -1, "")
