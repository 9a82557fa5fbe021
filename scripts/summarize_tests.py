# SPDX-License-Identifier: Apache-2.0
"""Adds up the JUnit reports in a folder: prints `N passed, N failed, N skipped` for each and for all together."""

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path


def count_results(report: Path) -> Counter[str]:
    """Counts the test cases of one report by outcome."""
    counts: Counter[str] = Counter(passed=0, failed=0, skipped=0)
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - written by our own test runners
        outcomes = {child.tag for child in case}
        if outcomes & {"failure", "error"}:
            counts["failed"] += 1
        elif "skipped" in outcomes:
            counts["skipped"] += 1
        else:
            counts["passed"] += 1
    return counts


def line(counts: Counter[str]) -> str:
    """The counts as test runners word them."""
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    return f"{counts['passed']} passed, {counts['failed']} failed{skipped}"


def main(folder: Path) -> None:
    """Prints the lines for all reports in the folder."""
    total: Counter[str] = Counter()
    for report in sorted(folder.glob("*.xml")):
        counts = count_results(report)
        total.update(counts)
        print(f"{report.stem:24} {line(counts)}")
    print(line(total))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
