# SPDX-License-Identifier: Apache-2.0
"""Names that a misspelt one may mean."""

from __future__ import annotations

from forebay.near_names import near_names, near_text


def test_the_likeliest_comes_first_and_case_does_not_matter() -> None:
    assert near_names("flwo", ["probe", "flow", "FLOW2", "slow"]) == ["flow", "FLOW2"]
    assert near_names("RUN1", ["run1", "run2"]) == ["run1", "run2"]


def test_at_most_three_are_named_and_never_the_name_itself() -> None:
    names = [f"run{number}" for number in range(10)]
    assert len(near_names("run", names)) == 3
    assert near_names("run1", ["run1"]) == []


def test_nothing_near_is_no_text() -> None:
    assert near_text("flow", []) == ""
    assert near_text("flow", ["temperature"]) == ""
    assert near_text("flwo", ["flow"]) == "; did you mean flow?"


def test_a_name_that_is_too_long_for_one_is_like_none() -> None:
    assert near_names("flow" * 33, ["flow" * 16]) == []
