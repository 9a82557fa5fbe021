# SPDX-License-Identifier: Apache-2.0
"""Cases and rows: what is run side by side, and which figures of it are compared."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bench.workbench import Workbench

__all__ = ["Case", "Figures", "Outcome", "Row", "Suite", "Verdict", "run_suite"]

#: Figure names end with their unit: ``_seconds`` and ``_bytes`` are better when smaller, ``_bytes_per_second``
#: when larger.
Figures = dict[str, float]
_RATE = "bytes_per_second"
_UNITS = (_RATE, "seconds", "bytes")


@dataclass(frozen=True, slots=True)
class Case:
    """Something to run, as often as there are repetitions."""

    name: str
    run: Callable[[Workbench], Figures]


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: a figure of our case and of the peer's, or a limit where there is no peer."""

    what: str
    against: str
    ours: str  #: name of a case
    peer: str | float  #: name of a case, or the limit
    figure: str
    target: float | None = None
    peer_figure: str = ""  #: where it has another name
    guarded: bool = True  #: compared with what was recorded; not where a single step decides

    def __post_init__(self) -> None:
        # Not after half an hour of measuring.
        if not self.unit:
            raise ValueError(f"{self.what}: the name {self.figure!r} ends with none of the units {', '.join(_UNITS)}")

    @property
    def unit(self) -> str:
        """Of the figure."""
        return next((unit for unit in _UNITS if self.figure.endswith(f"_{unit}")), "")


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases that run side by side, and the rows made of them."""

    name: str
    cases: list[Case]
    rows: list[Row]
    repetitions: int = 7
    repetitions_quick: int = 3
    best_of: int = 4  #: runs of a case in a row, of which the best is the repetition's sample; 1 for long ones


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row, measured. Ratios above 1 say that we are better than the peer."""

    suite: str
    what: str
    against: str
    ours: float  #: median
    peer: float  #: median, or the limit
    unit: str
    ratio: float  #: median of the ratios of the single repetitions
    ratio_min: float
    ratio_max: float
    target: float | None
    guarded: bool = True

    @property
    def meets(self) -> bool:
        """Without a target: always."""
        return self.target is None or self.ratio >= self.target

    @property
    def acceptable(self) -> bool:
        """At least half of the target, and not slower than BP5 as it is shipped."""
        least = 1.0 if self.against == "BP5 default" else 0.0
        return self.ratio >= max(least, (self.target or 0.0) / 2)


@dataclass(slots=True)
class Outcome:
    """All samples of a suite and what they say."""

    suite: str
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)  #: case, figure, repetition
    load_averages: list[float] = field(default_factory=list)
    seconds: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)


def run_suite(suite: Suite, bench: Workbench, progress: Callable[[str], None]) -> Outcome:
    """Runs every case in each repetition, in turning order, so that what disturbs the machine meets all alike.

    A sample is the best of a few runs in a row. On a virtual machine free memory is the host's until it is touched, and
    getting it costs ten times as much as the copy that is measured: the first run touches what the next ones get. The
    host may take it back at any time, and nothing makes a run faster than it is.
    """
    outcome = Outcome(suite.name)
    began = time.monotonic()
    repetitions = suite.repetitions_quick if bench.quick else suite.repetitions
    for repetition in range(repetitions):
        shift = repetition * len(suite.cases) // repetitions
        for case in suite.cases[shift:] + suite.cases[:shift]:
            progress(f"{suite.name} {repetition + 1}/{repetitions}: {case.name}")
            outcome.load_averages.append(os.getloadavg()[0])
            runs = [case.run(bench) for _ in range(suite.best_of)]
            for name in runs[0]:
                best = max if name.endswith(_RATE) else min
                value = best(figures[name] for figures in runs)
                outcome.samples.setdefault(case.name, {}).setdefault(name, []).append(value)
    outcome.verdicts = [_judge(suite, row, outcome) for row in suite.rows]
    outcome.seconds = time.monotonic() - began
    return outcome


def _judge(suite: Suite, row: Row, outcome: Outcome) -> Verdict:
    ours = outcome.samples[row.ours][row.figure]
    if isinstance(row.peer, str):
        peer = outcome.samples[row.peer][row.peer_figure or row.figure]
    else:
        peer = [row.peer] * len(ours)
    # Of a time or memory the smaller one is better, of a rate the larger one.
    if row.unit != _RATE:
        ratios = [theirs / mine for mine, theirs in zip(ours, peer, strict=True)]
    else:
        ratios = [mine / theirs for mine, theirs in zip(ours, peer, strict=True)]
    return Verdict(
        suite=suite.name,
        what=row.what,
        against=row.against,
        ours=statistics.median(ours),
        peer=statistics.median(peer),
        unit=row.unit,
        ratio=statistics.median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        target=row.target,
        guarded=row.guarded,
    )
