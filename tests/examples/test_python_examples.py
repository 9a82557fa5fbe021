# SPDX-License-Identifier: Apache-2.0
"""The Python examples run as their heads say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.chombo_files import write_chombo_file
from tests.support.example_programs import EXAMPLES, demo_reservation
from tests.support.plotfiles import write_plotfile
from tests.support.time_limits import seconds

__all__ = ["demo_reservation"]

pytestmark = pytest.mark.usefixtures("demo_reservation")


def start(example: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, EXAMPLES / example, *arguments], stdout=subprocess.PIPE, text=True)


def output_of(example: subprocess.Popen[str]) -> list[str]:
    output, _ = example.communicate(timeout=seconds(60))
    assert example.returncode == 0
    return output.splitlines()


def test_producer_and_consumer() -> None:
    consumer = start("02_python_producer_consumer.py", "consume", "demo/cooling")
    producer = start("02_python_producer_consumer.py", "produce", "demo/cooling", "--steps", "30")
    assert output_of(producer) == []
    lines = output_of(consumer)
    # A consumer that comes after the producer misses nothing: retention waits for it by name.
    assert [line.partition(",")[0] for line in lines] == [f"step {number}" for number in range(30)]
    assert lines[0].startswith("step 0, t = 0.0 s: centre 400.00 degC, highest 400.00 degC, mean ")


def test_ranks() -> None:
    lines = output_of(start("03_python_ranks.py", "demo/waves"))
    assert lines[0] == "ended after 20 steps"
    assert lines[1].startswith("rank 0: rows from 0, -1.000 to 1.000")
    assert lines[2].startswith("rank 1: rows from 100, -1.000 to 1.000")
    assert lines[3] == "across the seam: (20, 6) without a copy: True"


def test_steering() -> None:
    """The simulation writes more often once the analysis has seen the plume, and less often later."""
    simulation = start("16_steering.py", "simulate", "demo/plume")
    analysis = start("16_steering.py", "analyse", "demo/plume")
    changes = output_of(simulation)
    assert [line.partition(": ")[2] for line in changes] == ["now every 2 iterations", "now every 10 iterations"]
    seen = [int(line.split(":")[0].removeprefix("iteration ")) for line in output_of(analysis)]
    first = int(changes[0].split(":")[0].removeprefix("iteration "))
    assert all(number % 20 == 0 for number in seen if number < first)
    assert len(seen) > 30


def test_ensemble() -> None:
    """Members begin before and after the statistics do."""
    first = start("17_ensemble.py", "member", "demo/member-0", "--seed", "0")
    statistics = start("17_ensemble.py", "statistics", "demo/member-*", "--members", "3")
    output_of(first)
    for number in ("1", "2"):
        output_of(start("17_ensemble.py", "member", f"demo/member-{number}", "--seed", number))
    lines = output_of(statistics)
    assert [line.partition(":")[0] for line in lines[:-1]] == [f"step {number}" for number in range(10)]
    assert lines[-1] == "followed demo/member-0, demo/member-1, demo/member-2"


def test_history() -> None:
    lines = output_of(start("04_python_history.py", "demo/history"))
    assert lines[0].startswith("newest step: 19, ")
    assert lines[1:6] == [
        "a slab of step 17: 17.0",
        "the last three steps: [17, 18, 19] of 20",
        "one point over time: [ 0.  5. 10. 15.] in steps [ 0  5 10 15]",
        "plot is behind by 9 steps",
        "plot goes on with [18, 19]",
    ]
    assert lines[6].startswith("no such step: ")


def test_derive() -> None:
    lines = output_of(start("21_derive.py", "demo/velocity", "demo/magnitude"))
    assert [line.partition(":")[0] for line in lines] == [f"step {number} of demo/velocity" for number in range(8)]
    assert lines[0].endswith("fastest 1.418")


def test_multiresolution() -> None:
    lines = output_of(start("25_multiresolution.py", "demo/field"))
    assert [line.partition(";")[0] for line in lines[:6]] == [
        f"step {number}: 1/512 of the bytes" for number in range(6)
    ]
    assert [line.partition(":")[0] for line in lines[6:]] == [f"stride {stride}" for stride in (8, 4, 2, 1)]
    assert all(int(line.split()[2]) <= 16**3 * 4 for line in lines[6:])
    # The ball of the last step has its middle at (0.5, 0.5, 0.7) of 128 cells.
    assert lines[-1].endswith(" at (64, 64, 90)")


@pytest.mark.parametrize("name", ["plt{:05d}", "plt{:05d}.3d.hdf5"])
def test_plotfiles(tmp_path: Path, name: str) -> None:
    for number in (0, 10):
        write = write_chombo_file if name.endswith(".hdf5") else write_plotfile
        write(tmp_path / name.format(number), number)
    stream = "demo/chombo" if name.endswith(".hdf5") else "demo/plots"
    lines = output_of(start("22_plotfiles.py", stream, *map(str, sorted(tmp_path.glob("plt*")))))
    assert lines == [
        "2 plotfiles written",
        "step 10, level 0: 2 fields of (8, 8, 16), 3 boxes cover 100%",
        "step 10, level 1: 2 fields of (16, 16, 32), 2 boxes cover 7%",
    ]
