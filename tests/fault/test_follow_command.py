# SPDX-License-Identifier: Apache-2.0
"""`forebay follow --exec` killed in the middle, and its stream taken back under a running command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import forebay
from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.time_limits import seconds

pytestmark = pytest.mark.usefixtures("current_instance")

ADDRESS = "r/flow"
STEPS = 8
LINE = (sys.executable, "-m", "forebay", "follow", ADDRESS)


def noted(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def cursor(instance: Instance) -> int:
    return instance.stream(ADDRESS).consumers[0].position


# crash-matrix: `forebay follow --exec` | the follower is killed while commands run | started again, it goes on at its cursor: every step's command succeeds, only those that ran are run again
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_killed_follower_goes_on_at_its_cursor_and_skips_nothing(
    current_instance: Instance, tmp_path: Path, jobs: int
) -> None:
    with forebay.open(ADDRESS, "w", retention="consumers:follow") as stream:
        for number in range(STEPS):
            stream.write("n", number)
    gate, begun, done = tmp_path / "gate", tmp_path / "begun", tmp_path / "done"
    script = (
        f"echo {{step}} >> {begun}; "
        f"test {{step}} -lt 4 || until test -e {gate}; do sleep 0.01; done; "
        f"echo {{step}} >> {done}"
    )
    command = [*LINE, "--jobs", str(jobs), "--exec", "sh", "-c", script]
    with subprocess.Popen(command) as killed:
        until(lambda: len(noted(begun)) == 4 + jobs, "the commands of the later steps wait")
        until(lambda: cursor(current_instance) == 4, "the cursor has passed the steps before them")
        killed.kill()
    assert sorted(noted(done)) == [0, 1, 2, 3]
    until(lambda: not current_instance.stream(ADDRESS).consumers[0].connected, "the server has noticed")
    assert cursor(current_instance) == 4
    gate.touch()
    assert subprocess.run(command, timeout=seconds(100), check=False).returncode == 0
    assert sorted(noted(done)) == list(range(STEPS))
    assert sorted(noted(begun)) == sorted([*range(STEPS), *range(4, 4 + jobs)])
    assert cursor(current_instance) == STEPS
    assert current_instance.problems() == []


def test_a_step_that_is_written_anew_waits_for_the_command_of_its_former_self(
    current_instance: Instance, tmp_path: Path
) -> None:
    """Although two may run at once: both would write the same file."""
    lost = (
        f"import os, forebay; stream = forebay.open('{ADDRESS}', 'w', grace=100); stream.write('n', 0); "
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", lost], check=False, timeout=seconds(100))
    events, gate = tmp_path / "events", tmp_path / "gate"
    script = f"echo begin >> {events}; until test -e {gate}; do sleep 0.2; done; echo end >> {events}"
    with subprocess.Popen([*LINE, "--jobs", "2", "--exec", "sh", "-c", script]) as follower:
        until(events.exists, "the command runs")
        with forebay.open(ADDRESS, "w") as stream:
            stream.write("n", 0)
        until(lambda: current_instance.steps(ADDRESS)[0].pins > 0, "the follower has the new step")
        gate.touch()
        assert follower.wait(timeout=seconds(100)) == 0
    assert events.read_text().split() == ["begin", "end", "begin", "end"]
