# SPDX-License-Identifier: Apache-2.0
"""Server or client dies at each message and each record of a workflow that does a bit of everything."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fault import rerun_workflow
from tests.fault.conftest import MESSAGE_PLACES
from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.sweeps import Sweep
from tests.support.time_limits import seconds

#: So many messages, and records, the workflow has at least.
POINTS_MIN = 48
KEPT = range(3, 8)


def expect_the_usual_outcome(instance: Instance, before: str) -> None:
    """Everything is as in a run without accident."""
    # What a reader let go of while the server was away is found to be free soon after.
    until(lambda: not any(step.pins for step in instance.steps(rerun_workflow.FLOW)), f"{before}: nothing is held")
    left = rerun_workflow.outcome()
    expected: dict[str, Any] = {
        "reservations": ["r"],
        "streams": ["flow"],
        "status": "ended",
        "retention": "all",
        "consumers": (),
        # Those before went as the consumer had passed them; step 3 was staged, 4 on were written again, 6 is precious.
        "steps": [(step, 1 if step < 4 else 2, True, step == 3, step == 6, 0) for step in KEPT],
        "content": [float(rerun_workflow.field(step, 1 if step < 4 else 2).sum()) for step in KEPT],
        "problems": [],
    }
    assert left == expected, before
    instance.check_disk_use("r")


def play(instance: Instance, progress: Path) -> bool:
    """Runs the workflow here, and starts the server again when it has died; tells whether it has."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            rerun_workflow.run(progress)
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    died = False
    while worker.is_alive():
        if not instance.running():
            assert instance.wait() == -signal.SIGKILL
            assert not died, "it died twice"
            died = True
            instance.start()
        worker.join(0.01)
    if failures:
        raise failures[0]
    return died


@pytest.mark.parametrize(
    "place",
    [
        "server.message.received",
        "server.message.before_send",
        "server.record.before_append",
        "server.record.after_append",
    ],
)
# crash-matrix: every request of clients | server, at `server.message.received` | the outcome is that of a run without accident
# crash-matrix: every answer and notice to clients | server, at `server.message.before_send` | the outcome is that of a run without accident
# crash-matrix: every record of a stream | server, at `server.record.before_append` | the outcome is that of a run without accident
# crash-matrix: every record of a stream | server, at `server.record.after_append` | the outcome is that of a run without accident
@pytest.mark.timeout(1800)
def test_the_outcome_is_the_same_wherever_the_server_dies(
    instances: Callable[..., Instance],
    sweep: Sweep,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients ride it out; what they could not know was done, they ask for again."""
    for number in sweep.numbers(POINTS_MIN):
        before = f"{place}:{number}"
        print(before)
        with Instance(tmp_path / str(number)) as instance:
            monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
            instance.restart(f"{before}=kill")
            died = play(instance, tmp_path / f"{number}.progress")
            if not died:
                instance.restart()
            expect_the_usual_outcome(instance, before)
        if not died:
            sweep.ends_at(number)
            return


@pytest.mark.parametrize("place", MESSAGE_PLACES)
# crash-matrix: every message of a program | writer, reader or administrator, at `client.message.before_send` | run again, it ends as without accident
# crash-matrix: every message of a program | writer, reader or administrator, at `client.message.after_send` | run again, it ends as without accident
# crash-matrix: every message of a program | writer, reader or administrator, at `client.message.received` | run again, it ends as without accident
@pytest.mark.timeout(1800)
def test_a_program_that_dies_anywhere_can_be_run_again(
    sweep: Sweep,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Writer, reader and administrator in one: what it held is free again, and what it had done counts."""
    for number in sweep.numbers(POINTS_MIN):
        before = f"{place}:{number}"
        print(before)
        with Instance(tmp_path / str(number)) as instance:
            monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
            progress = tmp_path / f"{number}.progress"
            command = [sys.executable, "-m", "tests.fault.rerun_workflow", str(progress)]
            with monkeypatch.context() as armed:
                armed.setenv("FOREBAY_FAIL_POINT", f"{before}=kill")
                status = subprocess.run(command, timeout=seconds(120), check=False).returncode
            assert status in (0, -signal.SIGKILL), before
            rerun_workflow.run(progress)
            expect_the_usual_outcome(instance, before)
        if status == 0:
            sweep.ends_at(number)
            return
