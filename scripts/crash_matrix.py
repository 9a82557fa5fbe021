# SPDX-License-Identifier: Apache-2.0
"""Makes docs/crash-matrix.md from the tests: what survives when somebody fails, row by row with the test that tries it.

A test gets rows by comments above it, one line each (`#` or `//`):

    # crash-matrix: OPERATION | WHO FAILS, WHERE | WHAT SURVIVES

Every named fail point of the sources must be in a row. Without arguments it compares; --write writes the page.
"""

import re
import sys
import textwrap
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.crash_promises import INTRODUCTION, OTHER, PROMISES, promise_of
from scripts.suites import ROOT, SUITES, Pytest, When
from scripts.sweeps_in_sources import native_sweeps, python_sweeps

PAGE = Path("docs/crash-matrix.md")
ROW = re.compile(r"\s*(?:#|//) crash-matrix: (.*)")
TEST = re.compile(r"\s*(?:def (test_\w+)\(|TEST(?:_F|_P)?\((\w+), (\w+)\))")
INSTANCE = re.compile(r"^pytestmark = .*?pytest\.mark\.instance\b", re.MULTILINE | re.DOTALL)
FAIL_POINT = re.compile(r"fail_point\(\"([\w.]+)\"\)")


@dataclass(frozen=True)
class Row:
    """One line of the matrix."""

    operation: str
    failure: str
    survives: str
    file: Path
    test: str
    tried: str


def sweeping_tests() -> set[tuple[Path, str]]:
    """Files and names, as rows have them, of the tests that sweep."""
    found = {(sweep.file.relative_to(ROOT), sweep.name.removeprefix(f"{sweep.program}.")) for sweep in native_sweeps()}
    return found | {(sweep.file.relative_to(ROOT), sweep.name) for sweep in python_sweeps()}


def is_quick(file: Path) -> bool:
    """Whether `./run test` runs the tests of a file."""
    if file.suffix == ".cpp":
        return True
    return any(
        file.is_relative_to(folder)
        for suite in SUITES.values()
        if suite.when is When.QUICK
        for run in suite.runs
        if isinstance(run, Pytest)
        for folder in run.folders
    )


def rows_of(file: Path, sweeping: set[tuple[Path, str]]) -> list[Row]:
    """The rows of one file of tests."""
    rows: list[Row] = []
    waiting: list[tuple[str, str, str]] = []
    text = file.read_text(encoding="utf-8")
    is_shared = INSTANCE.search(text) is not None
    for number, line in enumerate(text.splitlines(), start=1):
        if found := ROW.match(line):
            fields = [field.strip() for field in found[1].split(" | ")]
            if len(fields) != 3 or not all(fields):
                sys.exit(f"{file}:{number}: a row is OPERATION | WHO FAILS, WHERE | WHAT SURVIVES")
            waiting.append((fields[0], fields[1], fields[2]))
        elif found := TEST.match(line):
            name = found[1] or f"{found[2]}.{found[3]}"
            tried = "in a shard"
            if is_quick(file):
                tried = "by share" if is_shared else "by stride" if (file, name) in sweeping else "always"
            rows += [Row(*fields, file, name, tried) for fields in waiting]
            waiting = []
    if waiting:
        sys.exit(f"{file}: no test follows the row about {waiting[0][0]!r}")
    return rows


def missing_fail_points(rows: list[Row]) -> list[str]:
    """Fail points of the sources that no row names."""
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row.failure)}
    sources = [
        file
        for folder in ("core", "staging-servers", "workflows", "engines")
        for pattern in ("*.cpp", "*.py")
        for file in Path(folder).rglob(pattern)
    ]
    points = {name for file in sources for name in FAIL_POINT.findall(file.read_text(encoding="utf-8"))}
    return sorted(points - named)


def page_of(rows: list[Row]) -> str:
    """The page: promise by promise, and in each one operation by operation."""
    operations: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        operations[row.operation].append(row)
    parts = [INTRODUCTION]
    for promise in (*PROMISES, OTHER):
        mine = sorted((operation for operation in operations if promise_of(operation) is promise), key=str.lower)
        if not mine:
            continue
        parts.append(f"## {promise.title}\n\n{textwrap.fill(promise.text, 120)}\n")
        for operation in mine:
            parts.append(f"### {operation[0].upper()}{operation[1:]}\n")
            parts.append("| who fails, where | what survives | tried by | when |\n|---|---|---|---|")
            for row in sorted(operations[operation], key=lambda row: (row.failure, str(row.file), row.test)):
                parts.append(f"| {row.failure} | {row.survives} | [{row.test}](../{row.file}) | {row.tried} |")
            parts.append("")
    return "\n".join(parts)


def main(arguments: list[str]) -> None:
    """Compares or writes."""
    files = sorted([*Path("tests").rglob("*_test.cpp"), *Path("tests").rglob("test_*.py")])
    sweeping = sweeping_tests()
    rows = [row for file in files for row in rows_of(file, sweeping)]
    if missing := missing_fail_points(rows):
        sys.exit(f"no test has a row for {', '.join(missing)} (scripts/crash_matrix.py says how)")
    page = page_of(rows)
    if "--write" in arguments:
        PAGE.write_text(page, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        sys.exit(f"{PAGE} is not what the tests say; scripts/crash_matrix.py --write makes it anew")


if __name__ == "__main__":
    main(sys.argv[1:])
