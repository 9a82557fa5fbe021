# SPDX-License-Identifier: Apache-2.0
"""The example of write patterns, run as its head says: every number is there, and the writes are those predicted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.support.example_programs import EXAMPLES
from tests.support.instance import CommandLineInstance
from tests.support.time_limits import seconds

STEPS, ROWS, COLUMNS, RANKS = 2, 512, 1024, 4
SIZE = STEPS * ROWS * COLUMNS * 8
SIEVE = 512 << 10


def patterns(*options: str) -> subprocess.CompletedProcess[str]:
    program = str(EXAMPLES / "24_patterns" / "patterns.py")
    numbers = ["--steps", str(STEPS), "--rows", str(ROWS), "--columns", str(COLUMNS)]
    return subprocess.run(
        [sys.executable, program, *numbers, *options],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=seconds(200),
    )


def test_writes_of_each_method_are_those_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CommandLineInstance(tmp_path / "root") as instance:
        instance.up()
        for name, value in instance.environment.items():
            monkeypatch.setenv(name, value)
        done = patterns("--json")
        assert done.returncode == 0, done.stderr
        results: dict[str, dict[str, Any]] = {row["method"]: row for row in json.loads(done.stdout)}
        with forebay.Admin() as admin:
            assert list(Path(admin.reservation("patterns").files_path).iterdir()) == []
    assert {name: row["writes"] for name, row in results.items() if name != "sieving"} == {
        "file-per-process": STEPS * RANKS,
        "independent": STEPS * RANKS * ROWS,
        "collective 1": STEPS,
        "collective 2": STEPS * 2,
        "collective 4": STEPS * 4,
    }
    for name, row in results.items():
        assert row["seconds"] > 0
        if name != "sieving":
            assert (row["written_bytes"], row["reads"]) == (SIZE, 0), name
    sieving = results["sieving"]
    assert sieving["writes"] == RANKS * SIZE // SIEVE
    # Each rank writes all that lies between its first byte and its last.
    assert RANKS * SIZE * 0.95 < sieving["written_bytes"] <= RANKS * SIZE
    assert sieving["reads"] >= sieving["writes"]


def test_the_table_is_printed_for_another_folder(tmp_path: Path) -> None:
    done = patterns("--folder", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["method", "MB/s", "ratio", "writes", "of", "KiB", "written", "reads"]
    assert [line.split()[0] for line in lines[1:4]] == ["file-per-process", "independent", "sieving"]
    assert len(lines) == 7


def test_matched_aggregators_spread_the_bytes_evenly_over_the_servers() -> None:
    program = str(EXAMPLES / "24_patterns" / "servers.py")
    done = subprocess.run(
        [sys.executable, program, "--json"], capture_output=True, text=True, timeout=seconds(110), check=False
    )
    assert done.returncode == 0, done.stderr
    rows = {row["aggregators"]: row for row in json.loads(done.stdout)}
    assert {number: row["matched"] for number, row in rows.items()} == {1: False, 2: True, 3: False, 4: True}
    assert [round(row["busiest"], 2) for row in rows.values()] == [1, 0.5, 0.67, 0.5]
