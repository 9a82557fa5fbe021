# SPDX-License-Identifier: Apache-2.0
"""The figures that the performance page begins with are those that were recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import rates
from tests.bench.measure import Verdict

PAGE = Path(__file__).parents[3] / rates.PAGE


def verdict(what: str, against: str, ours: float, peer: float) -> Verdict:
    ratio = ours / peer
    return Verdict("write", what, against, ours, peer, "bytes_per_second", ratio, ratio, ratio, None)


def test_the_page_shows_what_is_recorded() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rates.update(page, rates.read()) == page, "python -m tests.bench.rates writes the table and the plot anew"


def test_a_run_replaces_its_rows_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    rates.keep([verdict("write 16 MiB, both", "raw pwrite", 2e9, 3e9)], "this", path)
    rates.keep([verdict("write 16 MiB recycled, both", "raw pwrite", 4e9, 3e9)], "this", path)
    rates.keep([verdict("write 16 MiB, both", "raw pwrite", 5e9, 3e9)], "other", path)
    rates.keep(
        [
            verdict("write 16 MiB, both", "raw pwrite", 1e9, 3e9),
            verdict("write 16 MiB, our defaults", "BP5 default", 1e9, 2e9),
            verdict("a row that is not shown", "raw pwrite", 1e9, 2e9),
        ],
        "this",
        path,
    )
    kept = rates.read(path)
    assert {name: [(figure.label, figure.forebay, figure.peers) for figure in kept[name]] for name in kept} == {
        "this": [
            ("write 16 MiB steps, fresh space", 1e9, {"raw pwrite": 3e9, "BP5 default": 2e9}),
            ("write 16 MiB steps, recycled space", 4e9, {"raw pwrite": 3e9}),
        ],
        "other": [("write 16 MiB steps, fresh space", 5e9, {"raw pwrite": 3e9})],
    }


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has not the marks"):
        rates.update("# Performance\n", {})
