# SPDX-License-Identifier: Apache-2.0
"""A stager dies at each message that it exchanges with the server; the next one completes what it was at."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.manager.jobs import FilesJob, Job, StepsJob, job_to_json
from forebay.workflows.staging.files import stage_files
from forebay.workflows.staging.reporting import JsonReporter
from forebay.workflows.staging.steps import stage_steps
from tests.fault.conftest import MESSAGE_PLACES
from tests.fault.instance import Instance
from tests.support.load import until
from tests.support.staged_output import (
    check_destination,
    read_bp5,
    recorded_entries,
    stray_names,
)
from tests.support.sweeps import Sweep
from tests.support.time_limits import seconds

#: So many messages a stager of steps has at least.
MESSAGES_MIN = 11
STEPS = 4
CONSUMER = "archive"


def field(number: int) -> NDArray[np.float64]:
    return np.arange(2000, dtype=np.float64) + number


def stage_armed(job: Job, fail_point: str) -> bool:
    """Runs a stager of its own as the manager would; tells whether it died."""
    command = [sys.executable, "-m", "forebay.workflows.staging", json.dumps(job_to_json(job))]
    with pytest.MonkeyPatch.context() as armed:
        armed.setenv("FOREBAY_FAIL_POINT", f"{fail_point}=kill")
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(120), check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
    return done.returncode != 0


def known_steps(out: Path) -> dict[int, object]:
    """What the receipt says, which must be true."""
    check_destination(out)
    return dict(recorded_entries(out))


@pytest.mark.parametrize("place", MESSAGE_PLACES)
@pytest.mark.parametrize("follow", [False, True])
# crash-matrix: every message of a program | stager of steps, also as a consumer, at `client.message.before_send` | the receipt is true; the next run keeps what it has, stages the rest, and leaves nothing behind
# crash-matrix: every message of a program | stager of steps, also as a consumer, at `client.message.after_send` | the receipt is true; the next run keeps what it has, stages the rest, and leaves nothing behind
# crash-matrix: every message of a program | stager of steps, also as a consumer, at `client.message.received` | the receipt is true; the next run keeps what it has, stages the rest, and leaves nothing behind
@pytest.mark.timeout(600)
def test_a_stage_of_steps_is_completed_by_the_next_run(
    current_instance: Instance,
    sweep: Sweep,
    place: str,
    follow: bool,
    tmp_path: Path,
) -> None:
    for number in sweep.numbers(MESSAGES_MIN):
        print(f"{place}:{number}")
        address, out = f"r/flow{number}", tmp_path / str(number)
        retention = f"consumers:{CONSUMER}" if follow else "all"
        with forebay.open(address, "w", retention=retention) as stream:
            for _ in range(STEPS):
                with stream.step() as step:
                    step["T"] = field(stream.next_step)
        job = StepsJob(address, str(out), follow=follow, consumer=CONSUMER if follow else "")
        died = stage_armed(job, f"{place}:{number}")
        before = known_steps(out)
        kept = {summary.number for summary in current_instance.steps(address)}
        assert kept | set(before) == set(range(STEPS)), "a step was dropped before it was staged"
        if not died:
            assert set(before) == set(range(STEPS))

        stage_steps(job, JsonReporter(StringIO()))
        after = known_steps(out)
        assert sorted(after) == list(range(STEPS))
        assert {step: after[step] for step in before} == before, "a step was staged a second time"
        for staged in range(STEPS):
            np.testing.assert_array_equal(read_bp5(out / f"flow{number}.{staged:06d}.bp", "T"), field(staged))
        assert stray_names(out) == set()
        until(lambda: not any(step.pins for step in current_instance.steps(address)), "nothing is held")  # noqa: B023
        assert all(step.staged for step in current_instance.steps(address))
        if follow:
            assert [(known.name, known.position) for known in current_instance.stream(address).consumers] == [
                (CONSUMER, STEPS)
            ]
        assert current_instance.problems() == []
        if not died:
            sweep.ends_at(number)
            return


@pytest.mark.parametrize("place", MESSAGE_PLACES)
# crash-matrix: every message of a program | stager of files, at `client.message.before_send` | the next run copies them and leaves nothing behind
# crash-matrix: every message of a program | stager of files, at `client.message.after_send` | the next run copies them and leaves nothing behind
# crash-matrix: every message of a program | stager of files, at `client.message.received` | the next run copies them and leaves nothing behind
def test_a_stage_of_files_is_completed_by_the_next_run(
    current_instance: Instance, chance: random.Random, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As the manager gives it.
    monkeypatch.setenv("FOREBAY_STAGE_SECRET", "5e" * 32)
    content = chance.randbytes(100_000)
    (tmp_path / "inputs").mkdir()
    (tmp_path / "inputs" / "mesh").write_bytes(content)
    with current_instance.admin() as admin:
        files = Path(admin.reservation("r").files_path)
    for number in itertools.count(1):
        job = FilesJob("r", f"in{number}", str(tmp_path / "inputs"), inward=True)
        died = stage_armed(job, f"{place}:{number}")
        stage_files(job, JsonReporter(StringIO()))
        assert (files / f"in{number}" / "mesh").read_bytes() == content
        assert {path.name for path in files.iterdir()} == {f"in{passed}" for passed in range(1, number + 1)}
        assert current_instance.problems() == []
        if not died:
            assert number > 1, "a stager does not come by there"
            return
