# SPDX-License-Identifier: Apache-2.0
"""A stage that dies at any change to the file system leaves nothing half done in sight; the next run completes it.

What counts as a change is in tests/support/crash_points.py. BP5 and HDF5 write an output without it: a death comes
before all of that or behind it, since the syncs that follow count.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.workflows.staging.files import TREE_RECEIPT_NAME, stage_files
from forebay.workflows.staging.job import FilesJob, StepsJob
from forebay.workflows.staging.reporting import JsonReporter
from forebay.workflows.staging.steps import stage_steps
from tests.support.crash_points import crash_points
from tests.support.staged_output import check_destination, read_bp5, receipt_entries, stray_names

SUFFIX = {"bp5": ".bp", "hdf5": ".h5"}


def reporter() -> JsonReporter:
    return JsonReporter(StringIO())


def field(number: int, epoch: int) -> NDArray[np.float64]:
    return np.arange(500, dtype=np.float64) + number + 100 * epoch


def write(address: str, mode: Any, count: int) -> None:
    with forebay.open(address, mode, force=True) as stream:
        for _ in range(count):
            with stream.step() as step:
                step["T"] = field(stream.next_step, stream.epoch)


def read(path: Path) -> np.ndarray[Any, Any]:
    if path.suffix == ".bp":
        return read_bp5(path, "T")
    with h5py.File(path) as file:
        array: np.ndarray[Any, Any] = file["T"][...]
        return array


def check_visible(out: Path) -> None:
    """Whatever has its name is whole, and the receipt is true."""
    if not out.exists():
        return
    visible = [path for path in out.iterdir() if not path.name.startswith(".") and path.name != "receipt.json"]
    for path in visible:
        number = int(path.name.split(".")[1])
        assert any(np.array_equal(read(path), field(number, epoch)) for epoch in (1, 2))
    if (out / "receipt.json").exists():
        check_destination(out)
        for entry in receipt_entries(out).values():
            np.testing.assert_array_equal(read(out / entry["output"]), field(entry["step"], entry["epoch"]))


def check_complete(address: str, out: Path, epoch: int, count: int = 2) -> None:
    entries = receipt_entries(out)
    assert sorted(entries) == list(range(count))
    assert {entry["epoch"] for entry in entries.values()} == {epoch}
    check_visible(out)
    assert stray_names(out) == set()
    with forebay.Admin() as admin:
        assert all(step.staged for step in admin.steps(address))


@pytest.mark.parametrize("output_format", ["bp5", "hdf5"])
# crash-matrix: stages | stager, before and behind each change that it makes to the file system itself (the writing of one output, by BP5 or HDF5, counts as one) | what has its name is whole; the next run completes it and leaves nothing behind
def test_steps(reservation: str, tmp_path: Path, output_format: str) -> None:
    address, out = f"{reservation}/flow", tmp_path / "out"
    write(address, "w", 4)
    job = StepsJob(address, str(out), format=output_format)

    def check() -> None:
        check_visible(out)
        stage_steps(job, reporter())
        check_complete(address, out, epoch=1, count=4)

    deaths = crash_points(lambda: stage_steps(job, reporter()), lambda: shutil.rmtree(out, ignore_errors=True), check)
    assert deaths > 40


@pytest.mark.parametrize("output_format", ["bp5", "hdf5"])
# crash-matrix: stages | stager, before and behind each such change (the writing of one output counts as one), while outputs of an older epoch are replaced | each output is the old or the new one, whole; the next run completes it
def test_steps_that_replace_those_of_an_older_epoch(reservation: str, tmp_path: Path, output_format: str) -> None:
    address, out, old = f"{reservation}/flow", tmp_path / "out", tmp_path / "old"
    write(address, "w", 2)
    stage_steps(StepsJob(address, str(old), format=output_format), reporter())
    write(address, "w", 2)
    job = StepsJob(address, str(out), format=output_format)

    def prepare() -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(old, out)

    def check() -> None:
        check_visible(out)
        stage_steps(job, reporter())
        check_complete(address, out, epoch=2)

    assert crash_points(lambda: stage_steps(job, reporter()), prepare, check) > 60


# crash-matrix: stages | stager with a consumer's name, before and behind each such change (the writing of one output counts as one) | no step is dropped before its output is there
def test_a_consumers_steps_wait_until_they_are_staged(reservation: str, tmp_path: Path) -> None:
    """Acknowledging lets retention drop a step, so a death must never come between that and its output."""
    out = tmp_path / "out"
    points = itertools.count()
    job = StepsJob("", str(out), every=2, follow=True, consumer="archive")

    def prepare() -> None:
        nonlocal job
        job = replace(job, stream=f"{reservation}/flow-{next(points)}")
        shutil.rmtree(out, ignore_errors=True)
        with forebay.open(job.stream, "w", retention="consumers:archive") as stream:
            for _ in range(6):
                with stream.step() as step:
                    step["T"] = field(stream.next_step, stream.epoch)

    def check() -> None:
        check_visible(out)
        stage_steps(job, reporter())
        assert sorted(receipt_entries(out)) == [0, 2, 4]
        check_visible(out)

    assert crash_points(lambda: stage_steps(job, reporter()), prepare, check) > 60


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "a" / "b").mkdir(parents=True)
    (source / "one").write_bytes(b"1" * 5000)
    (source / "a" / "two").write_bytes(os.urandom(3000))
    (source / "a" / "b" / "three").write_bytes(b"")
    (source / "a" / "link").symlink_to("../one")
    # Copying it is a change as well, where the file system has such attributes.
    with contextlib.suppress(OSError):
        os.setxattr(source / "one", "user.origin", b"test")
    return source


def same_tree(left: Path, right: Path) -> bool:
    def described(root: Path) -> dict[str, object]:
        found: dict[str, object] = {}
        for path in root.rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.is_symlink():
                found[name] = ("link", path.readlink())
            elif path.is_dir():
                found[name] = ("directory", path.stat().st_mode)
            elif name != TREE_RECEIPT_NAME:
                found[name] = (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns)
        return found

    return described(left) == described(right)


def check_tree(job: FilesJob, source: Path, target: Path, prepare: Callable[[], object], whole_or_absent: bool) -> None:
    def check() -> None:
        if whole_or_absent:
            assert not target.exists() or same_tree(source, target)
        stage_files(job, reporter())
        assert same_tree(source, target)
        assert not [path for path in target.parent.iterdir() if path.name.startswith(".")]

    assert crash_points(lambda: stage_files(job, reporter()), prepare, check) > 30


# crash-matrix: stages | stager of files, a new tree, before and behind each change (each opening for writing, and each write of up to 4 MiB, counts as one) | the tree is whole or not there; the next run completes it
def test_a_new_tree(reservation: str, tree: Path) -> None:
    with forebay.Admin() as admin:
        target = Path(admin.reservation(reservation).files_path) / "inputs"
    job = FilesJob(reservation, "inputs", str(tree), inward=True)
    check_tree(job, tree, target, lambda: shutil.rmtree(target, ignore_errors=True), whole_or_absent=True)


# crash-matrix: stages | stager of files, a tree that was there, before and behind each change (each opening for writing, and each write of up to 4 MiB, counts as one) | the next run completes it
def test_a_tree_that_is_brought_up_to_date(reservation: str, tree: Path, tmp_path: Path) -> None:
    with forebay.Admin() as admin:
        inside = Path(admin.reservation(reservation).files_path) / "results"
    shutil.copytree(tree, inside, symlinks=True)
    target = tmp_path / "pfs" / "results"
    target.parent.mkdir()

    def prepare() -> None:
        shutil.rmtree(target, ignore_errors=True)
        (target / "a").mkdir(parents=True)
        (target / "one").write_bytes(b"0" * 5000)

    check_tree(
        FilesJob(reservation, "results", str(target), inward=False), inside, target, prepare, whole_or_absent=False
    )
