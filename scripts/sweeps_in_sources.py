# SPDX-License-Identifier: Apache-2.0
"""Which tests sweep, as their sources tell: those whose points a run takes a share of (tests/support/sweeps.py)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_NATIVE_TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+), (\w+)\)", re.MULTILINE)
#: Whatever sweeps has a name that begins so: sweep, sweep_plays, sweep_failures, …
_NATIVE_SWEEP = re.compile(r"\bsweep\w*\(")


@dataclass(frozen=True)
class SweepingTest:
    """A test that sweeps."""

    #: The folder below tests/unit that makes its program; empty for a test in Python.
    program: str
    #: As ctest names it, ``PROGRAM.SUITE.TEST``, or the function in Python.
    name: str
    file: Path


def native_bodies(file: Path) -> Iterator[tuple[str, str]]:
    """``SUITE.TEST`` and the text from there to the next test."""
    text = file.read_text(encoding="utf-8")
    found = list(_NATIVE_TEST.finditer(text))
    for match, end in zip(found, [*(each.start() for each in found[1:]), len(text)], strict=True):
        yield f"{match[1]}.{match[2]}", text[match.end() : end]


def native_sweeps() -> list[SweepingTest]:
    """Those in C++."""
    return [
        SweepingTest(file.relative_to(ROOT / "tests/unit").parts[0], f"{program}.{name}", file)
        for file in sorted((ROOT / "tests/unit").rglob("*_test.cpp"))
        for program in [file.relative_to(ROOT / "tests/unit").parts[0]]
        for name, body in native_bodies(file)
        if _NATIVE_SWEEP.search(body)
    ]


@cache
def sweeps_of(file: Path) -> list[SweepingTest]:
    """Those of a file in Python: whatever takes the fixture ``sweep``."""
    return [
        SweepingTest("", node.name, file)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if "sweep" in {argument.arg for argument in node.args.args}
    ]


def python_sweeps() -> list[SweepingTest]:
    """Those in Python."""
    return [test for file in sorted((ROOT / "tests").rglob("test_*.py")) for test in sweeps_of(file)]
