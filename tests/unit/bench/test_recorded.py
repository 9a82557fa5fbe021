# SPDX-License-Identifier: Apache-2.0
"""The guard that compares a run of the benchmarks with the last recorded ratios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.bench.measure import Verdict
from tests.bench.recorded import Regression, record, regressions, unrecorded


def verdict(what: str, ratio: float, best: float) -> Verdict:
    return Verdict("write", what, "raw", 1.0, 1.0, "seconds", ratio, ratio / 2, best, 0.9)


def test_only_rows_whose_best_is_far_below_the_record_have_regressed(tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    record([verdict("a", 1.0, 1.2), verdict("b", 2.0, 2.1), verdict("c", 0.5, 0.6)], "Xeon", path)
    run = [verdict("a", 0.5, 0.71), verdict("b", 1.2, 1.39), verdict("c", 0.9, 1.0), verdict("new", 0.1, 0.1)]
    assert regressions(run, "Xeon", path) == [Regression("b", "raw", 1.39, 2.0)]


def test_recording_some_rows_keeps_the_others(tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    record([verdict("a", 1.0, 1.0), verdict("b", 1.0, 1.0)], "Xeon", path)
    record([verdict("b", 4.0, 4.0)], "Xeon", path)
    run = [verdict("a", 0.1, 0.1), verdict("b", 2.0, 2.0)]
    assert [found.recorded for found in regressions(run, "Xeon", path)] == [1.0, 4.0]


def test_without_a_record_nothing_has_regressed(tmp_path: Path) -> None:
    assert regressions([verdict("a", 0.1, 0.1)], "Xeon", tmp_path / "none.json") == []


def test_rows_that_a_single_step_decides_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    record([verdict("a", 1.0, 1.0), replace(verdict("longest", 1.0, 1.0), guarded=False)], "Xeon", path)
    assert regressions([verdict("longest", 0.1, 0.1)], "Xeon", path) == []
    assert "longest" not in path.read_text()


def test_machines_are_compared_with_their_like_only(tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    record([verdict("a", 4.0, 4.0)], "EPYC", path)
    record([verdict("a", 1.0, 1.0)], "Xeon", path)
    run = [verdict("a", 0.9, 0.9)]
    assert regressions(run, "Xeon", path) == []
    assert [found.recorded for found in regressions(run, "EPYC", path)] == [4.0]
    assert regressions(run, "Graviton", path) == []


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    record([verdict("a", 1.0, 1.0)], "Xeon", path)
    run = [verdict("a", 1.0, 1.0), verdict("new", 1.0, 1.0), replace(verdict("longest", 1.0, 1.0), guarded=False)]
    assert [row.what for row in unrecorded(run, "Xeon", path)] == ["new"]
    assert [row.what for row in unrecorded(run, "EPYC", path)] == ["a", "new"]
