# SPDX-License-Identifier: Apache-2.0
"""Stages that cannot be done, or not yet: the reason, what is kept, and how the job goes on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.centre import needs_slurm
from tests.slurm.cluster import PERSON, wait_for
from tests.slurm.faults.faulty import Fault

pytestmark = needs_slurm


# crash-matrix: A Slurm job's stage-in | the source is not there | held with the reason, its space is free; `scontrol release` runs it
def test_a_job_whose_stage_in_fails_is_held_and_runs_when_it_is_released(fault: Fault) -> None:
    fault.submit(stage_in="#DW stage_in type=file source={out}/late.txt destination=$DW_JOB_STRIPED/late.txt")
    fault.wait_for_reason("late.txt")
    wait_for(lambda: fault.centre.instance.ask("ls")["reservations"] == [], "its space to be free", 120)
    (fault.out / "late.txt").write_text("here\n")
    shutil.chown(fault.out / "late.txt", PERSON)
    fault.centre.cluster.ask("scontrol", "release", str(fault.job))
    wait_for(lambda: (fault.out / "results" / "ended").exists(), "its results", 240)
    fault.must_have_settled()


def test_a_job_that_is_held_for_its_stage_in_can_be_cancelled(fault: Fault) -> None:
    fault.submit(stage_in="#DW stage_in type=file source={out}/never.txt destination=$DW_JOB_STRIPED/x")
    fault.wait_for_reason("never.txt")
    fault.cancel()
    fault.must_have_settled()


@pytest.fixture
def small_disk(fault: Fault) -> Iterator[Path]:
    """A file system of 1 MiB where the results are to go."""
    place = fault.out / "results"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


# crash-matrix: A Slurm job's stage-out | the destination is full | its data is kept, with the reason
def test_a_job_whose_destination_is_full_keeps_its_data(fault: Fault, small_disk: Path) -> None:
    fault.submit(body="head -c 4194304 /dev/urandom > ${{DW_JOB_STRIPED}}out/large")
    fault.wait_for_state("kept")
    (row,) = fault.rows()
    assert "data_out" in row["reason"]
    assert "large" in fault.take_what_was_kept()
    fault.must_have_settled()


def test_a_slow_stage_holds_up_no_other_job(fault: Fault) -> None:
    slow = fault.submit_slow_stage_in()
    other = fault.centre.cluster.submit(
        "#!/bin/bash\n#DW jobdw capacity=64MiB type=scratch\ntouch ${DW_JOB_STRIPED}x\n"
    )
    fault.centre.wait_until_gone(other)
    assert fault.state() == "data_in"
    fault.go_on()
    fault.job = slow
    fault.wait_for_state("gone")
    assert fault.result("ended") == "ended\n"
    fault.must_have_settled()


# crash-matrix: A Slurm job's setup | nobody, the server is drained | held with the reason, and released by the manager after `undrain`
def test_a_job_that_is_set_up_while_the_server_is_drained_runs_by_itself(fault: Fault) -> None:
    instance = fault.centre.instance
    instance.ask("drain", "--reason", "new disks")
    try:
        fault.submit()
        fault.wait_for_reason("new disks")
        wait_for(lambda: fault.state() == "waiting", "the job to wait for room", 60)
    finally:
        instance.ask("undrain")
    fault.wait_for_state("gone")
    assert fault.result("ended") == "ended\n"
    fault.must_have_settled()
