# SPDX-License-Identifier: Apache-2.0
"""Stages of steps."""

from __future__ import annotations

import contextlib
import shutil
import signal
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.manager.jobs import StepsJob
from forebay.workflows.staging.reporting import JsonReporter
from forebay.workflows.staging.steps import stage_steps
from tests.support.crash_points import crash_points, failure_points
from tests.support.file_changes import Accident, Change, Moment
from tests.support.staged_output import (
    check_destination,
    read_bp5,
    receipt_entries,
    recorded_entries,
    stray_names,
)
from tests.support.sweeps import Sweep
from tests.support.watched_stager import WatchedStager

# Each test is a whole sweep, on a disk that may be slow to sync.
pytestmark = pytest.mark.timeout(600)


def field(number: int, epoch: int) -> NDArray[np.float64]:
    return np.arange(500, dtype=np.float64) + number + 100 * epoch


def write(address: str, count: int, **options: Any) -> None:
    """Steps of a new epoch, none of which is marked as staged."""
    with forebay.open(address, "w", force=True, **options) as stream:
        for _ in range(count):
            with stream.step() as step:
                step["T"] = field(stream.next_step, stream.epoch)


def read(path: Path) -> np.ndarray[Any, Any]:
    if path.suffix == ".bp":
        return read_bp5(path, "T")
    with h5py.File(path) as file:
        array: np.ndarray[Any, Any] = file["T"][...]
        return array


def epochs(address: str) -> set[int]:
    with forebay.Admin() as admin:
        return {step.epoch for step in admin.steps(address)}


def check_visible(address: str, out: Path) -> None:
    """Whatever has its name is whole, the receipt is true, and a step counts as staged only if the receipt has it."""
    visible = [path for path in out.glob("*") if not path.name.startswith(".") and path.name != "receipt.json"]
    for path in visible:
        number = int(path.name.split(".")[1])
        assert any(np.array_equal(read(path), field(number, epoch)) for epoch in {1} | epochs(address))
    entries = recorded_entries(out)
    check_destination(out)
    for entry in entries.values():
        np.testing.assert_array_equal(read(out / entry["output"]), field(entry["step"], entry["epoch"]))
    with forebay.Admin() as admin:
        for step in admin.steps(address):
            assert not step.staged or entries[step.number]["epoch"] == step.epoch


def check_complete(address: str, out: Path, count: int) -> None:
    entries = receipt_entries(out)
    assert sorted(entries) == list(range(count))
    assert {entry["epoch"] for entry in entries.values()} == epochs(address)
    check_visible(address, out)
    assert stray_names(out) == set()
    with forebay.Admin() as admin:
        assert all(step.staged for step in admin.steps(address))


def check_order(changes: list[Change], folder: Path) -> None:
    """Each file at the destination was seen: made and written under a hidden name, synced, renamed, and that synced."""
    last = {(change.kind, change.path): place for place, change in enumerate(changes)}
    for file in (path for path in folder.rglob("*") if path.is_file()):
        output, *inside = file.relative_to(folder / "out").parts
        hidden = f"./out/.{output}.partial-????????/.{output}.partial-????????"
        written = "/".join([hidden, *inside])
        renamed = last["rename", hidden]
        assert last["open", written] < last["write", written] < last["sync", written] < renamed
        later = [change for change in changes[renamed + 1 :] if change.path == "./out" or ".receipt" in change.path]
        assert later[0].kind == "sync"


@dataclass(frozen=True, slots=True)
class StepsStage:
    """A stage of all steps to a new destination, and how what it leaves is checked."""

    job: StepsJob
    count: int

    @property
    def out(self) -> Path:
        return Path(self.job.destination)

    def prepare(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        write(self.job.stream, self.count)

    def check(self) -> None:
        check_visible(self.job.stream, self.out)
        stage_steps(self.job, JsonReporter(StringIO()))
        self.check_complete()

    def check_complete(self) -> None:
        check_complete(self.job.stream, self.out, self.count)


# Of more than three steps, the first is published before the last is written.
@pytest.fixture(params=[("bp5", 2), ("hdf5", 4)], ids=["bp5", "hdf5"])
def new_steps(request: pytest.FixtureRequest, reservation: str, folder: Path) -> StepsStage:
    output_format, count = request.param
    return StepsStage(StepsJob(f"{reservation}/flow", str(folder / "out"), format=output_format), count)


# crash-matrix: stages | stager, at each change that it makes to the file system, by itself or inside ADIOS2 and HDF5: before it, after each rename and removal, and with half of each write | what has its name is whole; the receipt claims no more than is there, nor is more marked as staged; the next run completes it and leaves nothing behind
def test_steps(stager: WatchedStager, new_steps: StepsStage, folder: Path, sweep: Sweep) -> None:
    changes = crash_points(stager, new_steps.job, folder, new_steps.prepare, new_steps.check, sweep)
    check_order(changes, folder)


# crash-matrix: stages | destination, at each change that the stager makes there, by itself or inside ADIOS2 and HDF5: this one fails, or the disk is full from then on, with room for half of a write | the stage fails and says why, or has done everything; what has its name is whole and was synced; the receipt claims no more than is there, nor is more marked as staged; the next run completes it and leaves nothing behind
def test_steps_to_a_failing_disk(stager: WatchedStager, new_steps: StepsStage, folder: Path, sweep: Sweep) -> None:
    failure_points(stager, new_steps.job, folder, new_steps.prepare, new_steps.check, new_steps.check_complete, sweep)


def test_folders_on_the_way_to_a_destination_are_made_durable(
    stager: WatchedStager, reservation: str, folder: Path
) -> None:
    address = f"{reservation}/flow"
    write(address, 1)
    run = stager.run(StepsJob(address, str(folder / "a" / "b" / "out")), folder)
    assert [str(change) for change in run.changes[:6]] == [
        "mkdir ./a",
        "sync .",
        "mkdir ./a/b",
        "sync ./a",
        "mkdir ./a/b/out",
        "sync ./a/b",
    ]


def stage_old(address: str, old: Path, output_format: str) -> None:
    """The output of a step of the first epoch."""
    write(address, 1)
    stage_steps(StepsJob(address, str(old), format=output_format), JsonReporter(StringIO()))


@pytest.mark.parametrize("output_format", ["bp5", "hdf5"])
# crash-matrix: stages | stager, at each change that it makes to the file system, while an output of an older epoch is replaced | what has its name is the old or the new one, whole; the next run completes it
def test_steps_that_replace_those_of_an_older_epoch(
    stager: WatchedStager,
    reservation: str,
    folder: Path,
    tmp_path: Path,
    output_format: str,
    sweep: Sweep,
) -> None:
    address, out, old = f"{reservation}/flow", folder / "out", tmp_path / "old"
    stage_old(address, old, output_format)
    job = StepsJob(address, str(out), format=output_format)

    def prepare() -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(old, out)
        write(address, 2)

    def check() -> None:
        check_visible(address, out)
        stage_steps(job, JsonReporter(StringIO()))
        check_complete(address, out, 2)

    changes = crash_points(stager, job, folder, prepare, check, sweep)
    assert any(change.kind == "remove" and ".replaced-" in change.path for change in changes)


# crash-matrix: stages | stager, at each change that it makes to the file system, while it takes up what one left that was killed between an output's rename and its entry in the receipt | what has its name is whole; the next run completes it and leaves nothing behind
def test_a_run_that_takes_up_what_a_killed_one_left(
    stager: WatchedStager,
    reservation: str,
    folder: Path,
    tmp_path: Path,
    sweep: Sweep,
) -> None:
    address, out, old = f"{reservation}/flow", folder / "out", tmp_path / "old"
    stage_old(address, old, "bp5")
    job = StepsJob(address, str(out), format="bp5")
    hidden = ".flow.000000.bp.partial-????????"
    renamed = Accident(Change("rename", f"./out/{hidden}/{hidden}", 1), Moment.BEHIND)

    def prepare() -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(old, out)
        write(address, 2)
        assert stager.run(job, folder, renamed).status == -signal.SIGKILL

    def check() -> None:
        check_visible(address, out)
        stage_steps(job, JsonReporter(StringIO()))
        check_complete(address, out, 2)

    changes = crash_points(stager, job, folder, prepare, check, sweep)
    assert any(
        change.kind == "remove" and ".000001" in change.path and ".partial-" in change.path for change in changes
    )


# crash-matrix: stages | stager with a consumer's name, at each change that it makes to the file system | no step is dropped before its output is there
def test_a_consumers_steps_wait_until_they_are_staged(
    stager: WatchedStager, reservation: str, folder: Path, sweep: Sweep
) -> None:
    """Acknowledging lets retention drop a step, so a death must never come between that and its output."""
    address, out = f"{reservation}/flow", folder / "out"
    job = StepsJob(address, str(out), format="hdf5", every=2, follow=True, consumer="archive")

    def prepare() -> None:
        shutil.rmtree(out, ignore_errors=True)
        with forebay.Admin() as admin, contextlib.suppress(forebay.StreamNotFoundError):
            admin.remove_stream(address, force=True)
        write(address, 4, retention="consumers:archive")

    def check() -> None:
        check_visible(address, out)
        with forebay.Admin() as admin:
            kept = {step.number for step in admin.steps(address)}
        known = set(recorded_entries(out))
        assert {0, 2} <= kept | known
        stage_steps(job, JsonReporter(StringIO()))
        assert sorted(receipt_entries(out)) == [0, 2]
        check_visible(address, out)

    crash_points(stager, job, folder, prepare, check, sweep)
