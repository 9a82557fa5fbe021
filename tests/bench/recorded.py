# SPDX-License-Identifier: Apache-2.0
"""The last recorded ratios of each kind of machine, and which rows have fallen behind them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.measure import Verdict

__all__ = ["RECORD", "Regression", "record", "regressions", "unrecorded"]

#: Committed, so that a change is compared with what was before it: for each model of processor the ratio of each row.
RECORD = Path(__file__).with_name("recorded_ratios.json")

#: Ratios of one machine differ by a third between runs: a regression is what even the best repetition does not reach.
_TOLERANCE = 0.7


@dataclass(frozen=True, slots=True)
class Regression:
    """A row whose best repetition is far below the ratio that was recorded."""

    what: str
    against: str
    best: float
    recorded: float


def _key(verdict: Verdict) -> str:
    return f"{verdict.suite}: {verdict.what} / {verdict.against}"


def _read(path: Path) -> dict[str, dict[str, float]]:
    machines: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.is_file() else {}
    return machines


def record(verdicts: Sequence[Verdict], processor: str, path: Path = RECORD) -> None:
    """Keeps the ratios of the guarded rows; those of other rows and of other processors stay."""
    machines = _read(path)
    ratios = machines.setdefault(processor, {})
    ratios |= {_key(verdict): round(verdict.ratio, 3) for verdict in verdicts if verdict.guarded}
    path.write_text(json.dumps(machines, indent=1, sort_keys=True) + "\n")


def unrecorded(verdicts: Sequence[Verdict], processor: str, path: Path = RECORD) -> list[Verdict]:
    """Guarded rows of this run that have no ratio to be compared with on this processor."""
    ratios = _read(path).get(processor, {})
    return [verdict for verdict in verdicts if verdict.guarded and _key(verdict) not in ratios]


def regressions(verdicts: Sequence[Verdict], processor: str, path: Path = RECORD) -> list[Regression]:
    """Rows of this run that have fallen behind; rows that were never recorded on this processor are none."""
    ratios = _read(path).get(processor, {})
    return [
        Regression(verdict.what, verdict.against, verdict.ratio_max, ratios[_key(verdict)])
        for verdict in verdicts
        if _key(verdict) in ratios and verdict.ratio_max < _TOLERANCE * ratios[_key(verdict)]
    ]
