# SPDX-License-Identifier: Apache-2.0
"""The example of ROOT events, run as its head says: all values are right, and the reads are those predicted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.example_programs import EXAMPLES
from tests.support.instance import CommandLineInstance
from tests.support.time_limits import seconds

EVENTS, BRANCHES = 5_000, 8


def test_large_baskets_and_a_cache_save_reads(tmp_path: Path) -> None:
    with CommandLineInstance(tmp_path / "root") as instance:
        instance.up()
        instance.ask("create", "events", "--capacity", "0", "--files", "16MiB")
        options = ["--events", str(EVENTS), "--branches", str(BRANCHES), "--cache-mib", "8"]
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "26_events.py"), "events", *options],
            env=os.environ | instance.environment,
            capture_output=True,
            text=True,
            timeout=seconds(100),
        )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    reads = {(int(row[0]), int(row[2])): int(row[4]) for row in rows}
    # A read for each basket, and a few for the file's head and directories.
    baskets = BRANCHES * -(-EVENTS // 512)
    assert baskets <= reads[2, 0] <= baskets + 10
    assert BRANCHES <= reads[512, 0] <= BRANCHES + 10
    assert reads[2, 8] == reads[512, 8] == 1
