# SPDX-License-Identifier: Apache-2.0
"""Stages of files and trees: the mover dies at each change that it makes, or is told that it failed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.support.file_changes import Accident, Change, Moment, deaths, failures
from tests.support.sweeps import Sweep
from tests.support.watched_mover import WatchedMover, run_mover
from tests.support.watched_stager import Run

# Each test is a whole sweep, on a disk that may be slow to sync.
pytestmark = pytest.mark.timeout(600)

OLD_CONTENT = b"0" * 5000
OWN_FOLDER = ".forebay-incoming-"


@pytest.fixture
def tree(folder: Path) -> Path:
    source = folder / "source"
    (source / "empty").mkdir(parents=True)
    (source / "a" / "b").mkdir(parents=True)
    (source / "one").write_bytes(b"1" * 5000)
    (source / "a" / "two").write_bytes(os.urandom(3000))
    (source / "a" / "b" / "three").write_bytes(b"")
    (source / "a" / "link").symlink_to("../one")
    os.link(source / "one", source / "a" / "same")
    # Copying it is a change as well, where the file system has such attributes.
    with contextlib.suppress(OSError):
        os.setxattr(source / "one", "user.origin", b"test")
    return source


def described(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = ("link", path.readlink())
        elif path.is_dir():
            found[name] = ("directory", path.stat().st_mode)
        else:
            status = path.stat()
            found[name] = (path.read_bytes(), status.st_mode, status.st_mtime_ns, status.st_nlink)
    return found


@dataclass(frozen=True, slots=True)
class FileStage:
    """A stage, and how what it leaves is checked."""

    source: Path
    place: Path  #: holds the target; changes in it are seen
    target: Path
    inward: bool
    was_there: bool  #: an older target, without much in it if it is a tree
    request: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        shutil.rmtree(self.place)
        self.place.mkdir()
        if self.was_there and self.source.is_dir():
            (self.target / "a").mkdir(parents=True)
            (self.target / "one").write_bytes(OLD_CONTENT)
        elif self.was_there:
            self.target.write_bytes(OLD_CONTENT)
        (self.place / f"{OWN_FOLDER}00000000").mkdir()  # somebody else's

    def check_visible(self) -> None:
        """Each file that has its name is whole, or what was there before."""
        if not self.was_there and self.target.exists():
            assert described(self.source) == described(self.target)
        if "whole" in self.request:
            # The older tree, all of it, or the new one.
            if set(described(self.target)) != {"a", "one"}:
                assert described(self.source) == described(self.target)
            return
        if not self.source.is_dir():
            if self.was_there or self.target.exists():
                assert self.target.read_bytes() in (OLD_CONTENT, self.source.read_bytes())
            return
        for path in self.target.rglob("*"):
            below = path.relative_to(self.target)
            if path.is_file() and not below.parts[0].startswith(OWN_FOLDER) and OWN_FOLDER not in str(below):
                assert path.read_bytes() in ((self.source / below).read_bytes(), OLD_CONTENT)

    def check_complete(self) -> None:
        assert (
            described(self.source) == described(self.target)
            if self.source.is_dir()
            else (self.source.read_bytes() == self.target.read_bytes())
        )
        assert {path.name for path in self.place.iterdir()} == {self.target.name, f"{OWN_FOLDER}00000000"}

    def check(self) -> None:
        self.check_visible()
        status, events = run_mover(self.request)
        assert status == 0, events[-1]
        self.check_complete()
        rows = {row["path"]: row for event in events if event["event"] == "files" for row in event["files"]}
        for path, row in rows.items():
            content = (self.target / path).read_bytes()
            assert (len(content), f"{forebay.crc32c(content):08x}") == (row["size_bytes"], row["crc32c"])
        files = [path for path in self.source.rglob("*") if path.is_file() and not path.is_symlink()] or [self.source]
        assert len(rows) == len(files)


@pytest.fixture
def make_stage(folder: Path, tree: Path) -> Callable[[str], FileStage]:
    def make(which: str) -> FileStage:
        (folder / "files").mkdir()
        (folder / "outside").mkdir()
        inward = not which.startswith("older tree, ")
        source = tree
        if not inward:
            # cp keeps second names; the copy is what is staged out.
            shutil.rmtree(folder / "files")
            shutil.copytree(tree, folder / "files" / "source", symlinks=True)
            source = folder / "files" / "source"
        place = folder / ("files" if inward else "outside")
        path = "target" if inward else "source"
        outside = (tree / "one" if "file" in which else tree) if inward else place / "target"
        request = {
            "inside": str(folder / "files"),
            "inward": str(int(inward)),
            "path": path,
            "outside": str(outside),
        }
        if which.endswith("whole"):
            request |= {"whole": "1", "replaces": "1"}
        return FileStage(
            tree / "one" if "file" in which else source, place, place / "target", inward, "older" in which, request
        )

    return make


@contextlib.contextmanager
def told_of(accident: Accident, run: Run) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        last = "".join(f"\n  {change}" for change in run.changes[-10:])
        error.add_note(f"after an accident {accident}; the last changes:{last}\nthe output:\n{run.output}")
        raise


def changes_of(mover: WatchedMover, stage: FileStage) -> list[Change]:
    """Those of a run without accident."""
    stage.prepare()
    run = mover.run(stage.place)
    assert run.status == 0, run.output
    return run.changes


def number_of(changes: list[Change], kind: str, path: str) -> int:
    return max(number for number, change in enumerate(changes) if (change.kind, change.path) == (kind, path))


def check_order(changes: list[Change], stage: FileStage) -> None:
    """What was built was synced before it got its name, and the name after it; then the folder went."""
    folder = f"./{OWN_FOLDER}????????"
    renamed = number_of(changes, "rename", f"{folder}/e0")
    written = max(number for number, change in enumerate(changes) if change.kind == "write" and "/e0" in change.path)
    synced = [number for number, change in enumerate(changes) if change.kind == "sync"]
    assert any(written < number < renamed for number in synced)
    assert number_of(changes, "sync", ".") > renamed
    assert number_of(changes, "remove", f"{folder}/secret") > renamed


STAGES = ["new tree", "older tree", "older tree, out", "older tree, whole", "new file", "older file"]


# crash-matrix: stages | mover of files, a tree or a file that is new or was there, at each change that it makes to the file system, also in the middle of a write | a new tree is whole or not there, one that is exchanged is all old or all new, each file is the old or the new one, whole; the next run takes over what is right, completes it and leaves nothing of this one
@pytest.mark.parametrize("which", STAGES)
def test_a_mover_that_dies(which: str, make_stage: Callable[[str], FileStage], quick: Path, sweep: Sweep) -> None:
    stage = make_stage(which)
    mover = WatchedMover(stage.request, quick)
    changes = changes_of(mover, stage)
    stage.check()
    if which.startswith("new"):
        check_order(changes, stage)
    for death in sweep.among(list(deaths(changes))):
        stage.prepare()
        run = mover.run(stage.place, death)
        with told_of(death, run):
            assert run.status == -signal.SIGKILL
            stage.check()


# crash-matrix: stages | destination of files, a tree or a file that is new or was there, at each change that the mover makes there: this one fails, or the disk is full from then on, with room for half of a write | the stage fails and says why, or has done everything; a new tree is whole or not there, each file of an older one is the old or the new one, whole and synced; the next run completes it
@pytest.mark.parametrize("which", STAGES)
def test_a_mover_to_a_failing_disk(
    which: str, make_stage: Callable[[str], FileStage], quick: Path, sweep: Sweep
) -> None:
    stage = make_stage(which)
    mover = WatchedMover(stage.request, quick)
    reasons = {
        Moment.FAILING: (os.strerror(errno.EIO),),
        Moment.FULL: (os.strerror(errno.ENOSPC),),
    }
    for failure in sweep.among(list(failures(changes_of(mover, stage)))):
        stage.prepare()
        run = mover.run(stage.place, failure)
        with told_of(failure, run):
            if run.status == 0:
                assert failure.change.kind != "sync"
                stage.check_complete()
            else:
                assert run.status == 1
                told = json.loads(run.output.splitlines()[-1])
                assert told["event"] == "failed"
                assert told["code"] in ("io_error", "no_space")
                assert told["where"]
                assert any(text in told["what"] for text in reasons[failure.moment]), told
            stage.check()


# crash-matrix: stages | mover of files, behind the sync of a batch (`mover.batch.synced`) | what was copied is compared with the source and taken over
def test_a_mover_killed_behind_the_sync_goes_on(make_stage: Callable[[str], FileStage]) -> None:
    stage = make_stage("new tree")
    stage.prepare()
    status, _ = run_mover(stage.request, {"FOREBAY_FAIL_POINT": "mover.batch.synced=kill"})
    assert status == -signal.SIGKILL
    status, events = run_mover(stage.request)
    assert status == 0
    assert events[-1]["kept"] == 3
    stage.check_complete()


def stopped_at(stage: FileStage, place: str, change: Callable[[], object]) -> dict[str, Any]:
    """The last event of a mover that is stopped there, while `change` is made."""

    def told(event: dict[str, Any], process: subprocess.Popen[bytes]) -> bool:
        if event["event"] != "plan":
            return False
        assert process.stdin is not None
        process.stdin.write(b"g")
        process.stdin.flush()
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        change()
        process.send_signal(signal.SIGCONT)
        return True

    status, events = run_mover(stage.request, {"FOREBAY_FAIL_POINT": f"{place}=stop"}, told)
    assert status == 1
    return events[-1]


# crash-matrix: stages | a program that writes a file while it is copied (`mover.file.copied`) | the stage fails and names the file; nothing of it stays
def test_a_file_that_changes_under_the_copy_is_refused(make_stage: Callable[[str], FileStage]) -> None:
    stage = make_stage("new file")
    stage.prepare()

    def append() -> None:
        with stage.source.open("ab") as growing:
            growing.write(b"more")

    failure = stopped_at(stage, "mover.file.copied", append)
    assert "changed while" in failure["what"]
    assert failure["where"] == str(stage.source)
    assert [path.name for path in stage.place.iterdir()] == [f"{OWN_FOLDER}00000000"]


# crash-matrix: stages | storage that lost what was written (`mover.batch.synced`) | the stage fails and says so; the target gets no name
def test_bytes_that_storage_lost_are_told(make_stage: Callable[[str], FileStage]) -> None:
    stage = make_stage("new file")
    stage.prepare()

    def damage() -> None:
        (copy,) = stage.place.glob(f"{OWN_FOLDER}*/e0")
        with copy.open("r+b") as file:
            file.write(b"damage")

    assert "reads back differently" in stopped_at(stage, "mover.batch.synced", damage)["what"]
    assert not stage.target.exists()
