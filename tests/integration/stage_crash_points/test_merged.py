# SPDX-License-Identifier: Apache-2.0
"""Stages of steps into one output."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import adios2
import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.manager.jobs import StepsJob
from forebay.workflows.staging.merged import stage_into_one
from forebay.workflows.staging.reporting import JsonReporter
from tests.support.crash_points import crash_points, failure_points
from tests.support.staged_output import check_destination, receipt_entries, recorded_entries, stray_names
from tests.support.sweeps import Sweep
from tests.support.watched_stager import WatchedStager

# Each test is a whole sweep, on a disk that may be slow to sync.
pytestmark = pytest.mark.timeout(600)


def field(number: int, epoch: int) -> NDArray[np.float64]:
    return np.arange(500, dtype=np.float64) + number + 100 * epoch


def read(path: Path) -> NDArray[np.float64]:
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            array: NDArray[np.float64] = file["T"][()]
            return array
    with adios2.Stream(str(path), "r") as stream:
        return np.array([np.asarray(step.read("T")) for step in stream.steps()])


@dataclass(frozen=True, slots=True)
class MergedStage:
    """A stage of all steps of a stream to a new destination, and how what it leaves is checked."""

    job: StepsJob
    count: int

    @property
    def out(self) -> Path:
        return Path(self.job.destination)

    def prepare(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        with forebay.open(self.job.stream, "w", force=True) as stream:
            for number in range(self.count):
                with stream.step() as step:
                    step["T"] = field(number, stream.epoch)

    def check(self) -> None:
        self.check_visible()
        stage_into_one(self.job, JsonReporter(StringIO()))
        self.check_complete()

    def check_visible(self) -> None:
        """The output is whole or absent, and the receipt claims no more than is there."""
        entries = recorded_entries(self.out) if self.out.exists() else {}
        assert (self.out / self.job.into).exists() == bool(entries)
        for entry in entries.values():
            expected = [field(number, epoch) for number, epoch in entry["steps"]]
            np.testing.assert_array_equal(read(self.out / self.job.into), expected)
        if entries:
            check_destination(self.out)

    def check_complete(self) -> None:
        self.check_visible()
        (entry,) = receipt_entries(self.out).values()
        assert [number for number, _ in entry["steps"]] == list(range(self.count))
        assert stray_names(self.out) == set()
        with forebay.Admin() as admin:
            steps = admin.steps(self.job.stream)
        assert all(step.staged for step in steps)
        assert {step.epoch for step in steps} == {epoch for _, epoch in entry["steps"]}


@pytest.fixture(params=["run1.bp", "run1.h5"])
def merged(request: pytest.FixtureRequest, reservation: str, folder: Path) -> MergedStage:
    return MergedStage(StepsJob(f"{reservation}/flow", str(folder / "out"), into=request.param), 2)


# crash-matrix: stages | stager that puts many steps into one output, at each change that it makes to the file system | the output is whole or absent; the receipt claims no more than is there; the next run completes it and leaves nothing behind
def test_many_steps_in_one_output(stager: WatchedStager, merged: MergedStage, folder: Path, sweep: Sweep) -> None:
    crash_points(stager, merged.job, folder, merged.prepare, merged.check, sweep)


# crash-matrix: stages | destination of many steps in one output, at each change that the stager makes there: this one fails, or the disk is full from then on | the stage fails and says why, or has done everything; the next run completes it and leaves nothing behind
def test_many_steps_in_one_output_on_a_failing_disk(
    stager: WatchedStager, merged: MergedStage, folder: Path, sweep: Sweep
) -> None:
    failure_points(stager, merged.job, folder, merged.prepare, merged.check, merged.check_complete, sweep)
