# SPDX-License-Identifier: Apache-2.0
"""Each run takes at least a thirty-second of a sweep, and 32 seeds in a row take all of it: whichever sweep it is."""

from __future__ import annotations

import ast
import re
from itertools import takewhile
from pathlib import Path

import pytest

from scripts.sweeps_in_sources import SweepingTest, native_bodies, native_sweeps, python_sweeps
from tests.support.sweeps import SHARE_MIN, Sweep, stride_of

TESTS = Path(__file__).resolve().parents[2]

#: Where strides are taken from a seed, and nowhere else.
SHARED = {"sweeps.py", "sweep_points.h", "sweep.h", "sweep_points_test.cpp"}

#: What a stride of a test's own would look like.
OWN_STRIDE = re.compile(
    r"(test_seed\(\)|TEST_SEED|\bseed_?) *% *(?!\d)|; *\w+ \+= (stride|every)\)|\[[\w.() ]*% *\w+ *::"
)

EVERY_SWEEP = [*native_sweeps(), *python_sweeps()]


def seeds() -> list[range]:
    return [range(SHARE_MIN), range(1763931234, 1763931234 + SHARE_MIN)]


@pytest.mark.parametrize("points", [*range(70), 1000])
def test_seeds_in_a_row_take_all_points_of_a_list_and_each_its_share(points: int) -> None:
    for run in seeds():
        shares = [Sweep("", seed, SHARE_MIN).among(range(points)) for seed in run]
        assert all(len(share) * SHARE_MIN >= points for share in shares)
        assert {point for share in shares for point in share} == set(range(points))


@pytest.mark.parametrize("points_min", [*range(1, 25), 30, 47, 48, 49, 100])
def test_seeds_in_a_row_take_all_points_of_a_sweep_without_an_end_and_each_its_share(points_min: int) -> None:
    for points in range(points_min, points_min + 60):
        for run in seeds():
            shares = [
                list(takewhile(lambda number: number <= points, Sweep("", seed, SHARE_MIN).numbers(points_min)))  # noqa: B023
                for seed in run
            ]
            assert all(len(share) * SHARE_MIN >= points for share in shares), points
            assert {point for share in shares for point in share} == set(range(1, points + 1)), points


def test_one_seed_takes_all_points_where_the_longest_stride_is_one() -> None:
    assert Sweep("", 5, 1).among(range(50)) == list(range(50))
    assert next(Sweep("", 5, 1).numbers(50)) == 1


def test_both_languages_take_the_same_share() -> None:
    """The same numbers stand in sweep_points_test.cpp."""
    expected = {1: 1, 2: 2, 3: 3, 5: 5, 11: 11, 30: 16, 48: 21, 1000: 31}
    assert {points_min: stride_of(points_min) for points_min in expected} == expected


def test_a_sweep_that_stops_amid_its_points_fails() -> None:
    sweep = Sweep("", 0, SHARE_MIN)
    next(sweep.numbers(20))
    with pytest.raises(AssertionError, match="before its sweep was at an end"):
        sweep.check_ended()


def test_a_sweep_of_fewer_points_than_it_says_fails() -> None:
    sweep = Sweep("", 0, SHARE_MIN)
    next(sweep.numbers(20))
    with pytest.raises(AssertionError, match="20 points or more ended at the 20"):
        sweep.ends_at(20)


@pytest.mark.parametrize("known", EVERY_SWEEP, ids=lambda sweep: sweep.name)
def test_every_sweep_takes_the_share_that_is_proved(known: SweepingTest) -> None:
    text = known.file.read_text(encoding="utf-8")
    if known.program:
        assert re.search(r'#include "tests/(unit/.*sweep|support/sweep_points|.*_fixture)\.h"', text)
        return
    (function,) = (
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef) and node.name == known.name
    )
    asked = {
        node.func.attr
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "sweep"
    }
    passed_on = any(
        isinstance(argument, ast.Name) and argument.id == "sweep"
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        for argument in node.args
    )
    assert passed_on or "among" in asked or {"numbers", "ends_at"} <= asked


def test_no_test_takes_a_stride_of_its_own() -> None:
    own = [
        f"{file.relative_to(TESTS)}: {line.strip()}"
        for pattern in ("*.py", "*.cpp", "*.h")
        for file in TESTS.rglob(pattern)
        if file.name not in SHARED and file != Path(__file__)
        for line in file.read_text(encoding="utf-8").splitlines()
        if OWN_STRIDE.search(line)
    ]
    assert own == []


def test_sweeps_of_both_kinds_are_known() -> None:
    """Or the lists above would prove nothing."""
    assert {sweep.program for sweep in EVERY_SWEEP} >= {"", "client"}
    files = {sweep.file for sweep in native_sweeps()}
    including = {file for file in TESTS.rglob("*_test.cpp") if '/sweep.h"' in file.read_text(encoding="utf-8")}
    assert including
    assert including <= files, "a test includes sweep.h, and none in its file is known to sweep"
    assert all(any(True for _ in native_bodies(file)) for file in files)
