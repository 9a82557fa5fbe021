# SPDX-License-Identifier: Apache-2.0
"""Adds up what runs of tests left in a folder: for each how many passed, what sweeps tried, and the seconds it took."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figures:
    """How long a run took, and the processors' time of all of its processes that were waited for."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Counts:
    """Test cases by outcome."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        """As test runners word them."""
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count_results(report: Path) -> Counts:
    """Counts the test cases of one report by outcome."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - written by our own test runners
        outcomes = {child.tag for child in case}
        if outcomes & {"failure", "error"}:
            failed += 1
        elif "skipped" in outcomes:
            skipped += 1
        else:
            passed += 1
    return Counts(passed, failed, skipped)


def count_points(log: Path) -> tuple[int, int]:
    """How many points sweeps tried, and how many there were."""
    if not log.exists():
        return 0, 0
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return sum(line["tried"] for line in lines), sum(line["points"] for line in lines)


def summarize(folder: Path, figures: dict[str, Figures]) -> Counts:
    """Prints a line for each run, and returns the counts over all."""
    total = Counts()
    for name in sorted({*figures, *(report.stem for report in folder.glob("*.xml"))}):
        parts = [f"{name:28}"]
        report = folder / f"{name}.xml"
        if report.exists():
            counts = count_results(report)
            total += counts
            parts.append(f"{counts!s:38}")
        else:
            parts.append(f"{'':38}")
        if name in figures:
            parts.append(f"{figures[name].seconds:6.0f} s, {figures[name].cpu_seconds:6.0f} s of processors")
        tried, points = count_points(folder / f"{name}.sweeps.jsonl")
        if points:
            parts.append(f"; {tried} of {points} points of sweeps")
        print(" ".join(parts).rstrip())
    return total
