# SPDX-License-Identifier: Apache-2.0
"""Stages of files and trees."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

import forebay
from forebay.manager.jobs import FilesJob
from forebay.workflows.staging.files import stage_files
from forebay.workflows.staging.reporting import JsonReporter
from tests.support.crash_points import crash_points, failure_points
from tests.support.file_changes import Change
from tests.support.sweeps import Sweep
from tests.support.watched_stager import WatchedStager

# Each test is a whole sweep, on a disk that may be slow to sync.
pytestmark = pytest.mark.timeout(600)

OLD_CONTENT = b"0" * 5000


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
            else:
                found[name] = (path.read_bytes(), path.stat().st_mode, path.stat().st_mtime_ns)
        return found

    return described(left) == described(right)


def check_files(source: Path, target: Path, before: bytes) -> None:
    """Each file that has its name is whole, or what was there before."""
    for path in target.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            assert path.read_bytes() in ((source / path.relative_to(target)).read_bytes(), before)


def naming(changes: list[Change], place: str, path: Path) -> int:
    """When what is found as ``path`` got its name in the folder ``place``; a file was whole and synced before."""
    last = {(change.kind, change.path): number for number, change in enumerate(changes)}
    if path.is_dir():
        return last["mkdir", f"{place}/{path.name}"]
    hidden = f"{place}/.{path.name}.partial-????????"
    if path.is_symlink():
        assert last["link", hidden] < last["rename", hidden]
    else:
        made = ["open", "write"] if path.stat().st_size else ["open"]
        order = [last[kind, hidden] for kind in (*made, "sync", "rename")]
        assert order == sorted(order)
    return last["rename", hidden]


def sync_behind(changes: list[Change], number: int, folder: str) -> int:
    """The first sync of the folder behind that change."""
    syncs = [place for place, change in enumerate(changes) if (change.kind, change.path) == ("sync", folder)]
    later = [place for place in syncs if place > number]
    assert later, f"no sync of {folder} behind {changes[number]}"
    return later[0]


@dataclass(frozen=True, slots=True)
class TreeStage:
    """A stage of files, and how what it leaves is checked."""

    job: FilesJob
    source: Path
    target: Path
    was_there: bool  #: the target, with an older "one" and without much else

    def prepare(self) -> None:
        shutil.rmtree(self.target, ignore_errors=True)
        if self.was_there:
            (self.target / "a").mkdir(parents=True)
            (self.target / "one").write_bytes(OLD_CONTENT)

    def check_visible(self) -> None:
        if self.was_there:
            assert (self.target / "one").is_file()
        else:
            assert not self.target.exists() or same_tree(self.source, self.target)
        check_files(self.source, self.target, OLD_CONTENT)

    def check_complete(self) -> None:
        assert same_tree(self.source, self.target)
        check_files(self.source, self.target, OLD_CONTENT)
        assert not [path for path in self.target.parent.iterdir() if path.name.startswith(".")]

    def check_order(self, changes: list[Change]) -> None:
        """All that the tree holds was durable, names included, before a new tree got its name, or the stage ended."""
        top = f"./{self.target.name}" if self.was_there else f"./.{self.target.name}.incoming"
        renamed = len(changes) if self.was_there else changes.index(Change("rename", top, 1))
        for path in self.target.rglob("*"):
            place = "/".join([top, *path.relative_to(self.target).parts[:-1]])
            assert sync_behind(changes, naming(changes, place, path), place) < renamed
        if not self.was_there:
            sync_behind(changes, renamed, ".")

    def check(self) -> None:
        self.check_visible()
        stage_files(self.job, JsonReporter(StringIO()))
        self.check_complete()


@pytest.fixture
def new_tree(reservation: str, tree: Path) -> TreeStage:
    with forebay.Admin() as admin:
        target = Path(admin.reservation(reservation).files_path) / "inputs"
    job = FilesJob(reservation, "inputs", str(tree), inward=True)
    return TreeStage(job, tree, target, was_there=False)


@pytest.fixture
def older_tree(reservation: str, tree: Path, folder: Path) -> TreeStage:
    with forebay.Admin() as admin:
        inside = Path(admin.reservation(reservation).files_path) / "results"
    shutil.copytree(tree, inside, symlinks=True)
    target = folder / "results"
    job = FilesJob(reservation, "results", str(target), inward=False)
    return TreeStage(job, inside, target, was_there=True)


# crash-matrix: stages | stager of files, a new tree, at each change that it makes to the file system, also in the middle of a write | the tree is whole or not there; the next run completes it
def test_a_new_tree(stager: WatchedStager, new_tree: TreeStage, sweep: Sweep) -> None:
    changes = crash_points(stager, new_tree.job, new_tree.target.parent, new_tree.prepare, new_tree.check, sweep)
    new_tree.check_order(changes)


# crash-matrix: stages | stager of files, a tree that was there, at each change that it makes to the file system, also in the middle of a write | each file is the old or the new one, whole; the next run completes it
def test_a_tree_that_is_brought_up_to_date(stager: WatchedStager, older_tree: TreeStage, sweep: Sweep) -> None:
    changes = crash_points(
        stager, older_tree.job, older_tree.target.parent, older_tree.prepare, older_tree.check, sweep
    )
    older_tree.check_order(changes)


@dataclass(frozen=True, slots=True)
class FileStage:
    """A stage of one file over an older one, and how what it leaves is checked."""

    job: FilesJob
    source: Path
    target: Path

    def prepare(self) -> None:
        for path in self.target.parent.iterdir():
            path.unlink()
        self.target.write_bytes(OLD_CONTENT)
        (self.target.parent / ".other.partial-00000000").write_bytes(b"somebody else's")

    def check_visible(self) -> None:
        assert self.target.read_bytes() in (OLD_CONTENT, self.source.read_bytes())

    def check_complete(self) -> None:
        self.check_visible()
        names = {path.name for path in self.target.parent.iterdir()}
        assert names == {"one", ".other.partial-00000000"}

    def check(self) -> None:
        self.check_visible()
        stage_files(self.job, JsonReporter(StringIO()))
        self.check_complete()


@pytest.fixture
def older_file(reservation: str, tree: Path) -> FileStage:
    with forebay.Admin() as admin:
        files = Path(admin.reservation(reservation).files_path)
    return FileStage(FilesJob(reservation, "one", str(tree / "one"), inward=True), tree / "one", files / "one")


# crash-matrix: stages | stager of one file, over an older one, at each change that it makes to the file system, also in the middle of a write | the old file or the new one, whole; the next run completes it and leaves nothing of this one
def test_a_file(stager: WatchedStager, older_file: FileStage, sweep: Sweep) -> None:
    folder = older_file.target.parent
    changes = crash_points(stager, older_file.job, folder, older_file.prepare, older_file.check, sweep)
    # It is durable before the stage says that it has succeeded.
    sync_behind(changes, naming(changes, ".", older_file.target), ".")


# crash-matrix: stages | destination of one file, at each change that the stager makes there: this one fails, or the disk is full from then on, with room for half of a write | the stage fails and says why, or has done everything; the old file or the new one, whole; the next run completes it
def test_a_file_to_a_failing_disk(stager: WatchedStager, older_file: FileStage, sweep: Sweep) -> None:
    stage = older_file
    failure_points(stager, stage.job, stage.target.parent, stage.prepare, stage.check, stage.check_complete, sweep)


# crash-matrix: stages | destination of files, a new tree or one that was there, at each change that the stager makes there: this one fails, or the disk is full from then on, with room for half of a write | the stage fails and says why, or has done everything; a new tree is whole or not there, each file of an older one is the old or the new one, whole and synced; the next run completes it
@pytest.mark.parametrize("which", ["new_tree", "older_tree"])
def test_a_tree_to_a_failing_disk(
    stager: WatchedStager, which: str, request: pytest.FixtureRequest, sweep: Sweep
) -> None:
    tree: TreeStage = request.getfixturevalue(which)
    failure_points(stager, tree.job, tree.target.parent, tree.prepare, tree.check, tree.check_complete, sweep)
