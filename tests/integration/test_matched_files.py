# SPDX-License-Identifier: Apache-2.0
"""Staging of names that match: which are taken, when, how often, and what is never taken."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.errors import (
    AlreadyExistsError,
    BusyError,
    CorruptError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
)
from forebay.manager.jobs import MatchedFilesJob
from forebay.workflows.staging.end_request import EndRequest
from forebay.workflows.staging.matched_files import LOG_PREFIX, stage_matched_files
from forebay.workflows.staging.reporting import JsonReporter
from tests.support.load import until


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the manager gives it to a stage that is asked for again."""
    monkeypatch.setenv("FOREBAY_STAGE_SECRET", "5e" * 32)


@pytest.fixture
def files(reservation: str) -> Path:
    """Where the reservation's files lie."""
    with forebay.Admin() as admin:
        return Path(admin.reservation(reservation).files_path)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def job(reservation: str, out: Path) -> Callable[..., MatchedFilesJob]:
    def make(match: str = "chk?????", **fields: Any) -> MatchedFilesJob:
        return MatchedFilesJob(reservation, "run", str(out), match, **{"wait_closed_seconds": 0.05, **fields})

    return make


class Told:
    """What a stage reports."""

    def __init__(self) -> None:
        self.text = StringIO()
        self.reporter = JsonReporter(self.text)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in map(json.loads, self.text.getvalue().splitlines()) if event["event"] == kind]

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["path"]: row for event in self.events("files") for row in event["files"]}

    @property
    def notes(self) -> str:
        return "\n".join(event["text"] for event in self.events("note"))


def stage(job: MatchedFilesJob, told: Told | None = None) -> dict[str, Any]:
    return stage_matched_files(job, (told or Told()).reporter)


class Following:
    """A stage in a thread of its own."""

    def __init__(self, job: MatchedFilesJob) -> None:
        self.told = Told()
        self.ending = EndRequest()
        self.result: dict[str, Any] = {}
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(job,))
        self._thread.start()

    def _run(self, job: MatchedFilesJob) -> None:
        try:
            self.result = stage_matched_files(job, self.told.reporter, None, self.ending)
        except BaseException as error:
            self.error = error

    def ended(self) -> dict[str, Any]:
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.result

    def end(self) -> dict[str, Any]:
        self.ending.make()
        return self.ended()


@contextmanager
def following(job: MatchedFilesJob) -> Iterator[Following]:
    stage = Following(job)
    try:
        yield stage
    finally:
        stage.ending.make()
        stage._thread.join(60)


def checkpoint(run: Path, number: int, content: str = "state") -> Path:
    """Writes a folder as AMReX does, under another name first."""
    name = f"chk{number:05d}"
    folder = run / f"{name}.temp"
    (folder / "Level_0").mkdir(parents=True)
    (folder / "Header").write_text(f"{content} {number}\n")
    (folder / "Level_0" / "Cell_D_00000").write_bytes(content.encode() * 1000)
    return folder.rename(run / name)


def staged(out: Path) -> list[str]:
    if not out.exists():
        return []
    return sorted(path.name for path in out.iterdir() if not path.name.startswith(LOG_PREFIX))


def check_same(source: Path, target: Path, rows: dict[str, dict[str, Any]]) -> None:
    for path in source.rglob("*"):
        if path.is_file():
            below = path.relative_to(source)
            content = (target / below).read_bytes()
            assert content == path.read_bytes()
            assert rows[f"{source.name}/{below}"]["crc32c"] == f"{forebay.crc32c(content):08x}"


def test_one_in_ten_is_taken_while_the_program_runs(
    files: Path, out: Path, job: Callable[..., MatchedFilesJob]
) -> None:
    # The folder comes later than the stage.
    with following(job(every=10, follow=True, until="done")) as stage:
        (files / "run").mkdir()
        for number in range(0, 210, 10):
            checkpoint(files / "run", number)
            if number == 100:
                until(lambda: (out / "chk00100").exists(), "the second one is taken")
        (files / "run" / "done").touch()
        result = stage.ended()
    assert staged(out) == ["chk00000", "chk00100", "chk00200"]
    assert (result["appeared"], result["staged"], result["ended_by"]) == (21, 3, "done")
    for name in staged(out):
        check_same(files / "run" / name, out / name, stage.told.rows)
    assert len(stage.told.rows) == 6


def test_what_is_written_under_another_name_is_not_taken(
    files: Path, out: Path, job: Callable[..., MatchedFilesJob]
) -> None:
    (files / "run").mkdir()
    (files / "run" / "chk00000.temp").mkdir()
    (files / "run" / "chk00010.old.77").mkdir()
    (files / "run" / ".chk00020").mkdir()
    checkpoint(files / "run", 30)
    assert stage(job("*", exclude=("*.temp", "*.old.*")))["taken"] == ["chk00030"]
    assert staged(out) == ["chk00030"]


def test_numbers_in_names_choose(files: Path, out: Path, job: Callable[..., MatchedFilesJob]) -> None:
    (files / "run").mkdir()
    for number in (50, 100, 150, 200):
        (files / "run" / f"plt{number:05d}.h5").write_text(str(number))
    (files / "run" / "pltlast.h5").write_text("no number")
    assert stage(job("plt*.h5", multiple_of=100))["staged"] == 2
    assert staged(out) == ["plt00100.h5", "plt00200.h5"]


def test_a_stage_that_is_asked_for_again_counts_on_and_copies_nothing_twice(
    files: Path, out: Path, job: Callable[..., MatchedFilesJob]
) -> None:
    (files / "run").mkdir()
    for number in range(0, 30, 10):
        checkpoint(files / "run", number)
    assert stage(job(every=2))["taken"] == ["chk00000", "chk00020"]
    inode = (out / "chk00020").stat().st_ino
    for number in range(30, 60, 10):
        checkpoint(files / "run", number)
    told = Told()
    result = stage(job(every=2), told)
    assert (result["taken"], result["kept"], result["staged"]) == (["chk00040"], 2, 3)
    assert (out / "chk00020").stat().st_ino == inode
    # The receipt names all that was placed, also by the run before.
    assert {path.partition("/")[0] for path in told.rows} == {"chk00000", "chk00020", "chk00040"}


def test_a_name_that_comes_again_is_a_new_version_of_the_same_number(
    files: Path, out: Path, job: Callable[..., MatchedFilesJob]
) -> None:
    run = files / "run"
    run.mkdir()
    checkpoint(run, 0)
    (run / "chk00000" / "only in the first").write_text("x")
    checkpoint(run, 10)
    stage(job(every=2))
    # A restarted run puts the old one aside, and writes both anew.
    for number in (0, 10):
        (run / f"chk{number:05d}").rename(run / f"chk{number:05d}.old.1")
        checkpoint(run, number, "restarted")
    told = Told()
    result = stage(job(every=2), told)
    assert (result["taken"], result["replaced"], result["appeared"]) == (["chk00000"], ["chk00000"], 2)
    assert "came again" in told.notes
    assert staged(out) == ["chk00000"]
    check_same(run / "chk00000", out / "chk00000", told.rows)
    # Nothing is left of the older copy, neither at the destination nor in the receipt.
    assert not (out / "chk00000" / "only in the first").exists()
    assert set(told.rows) == {"chk00000/Header", "chk00000/Level_0/Cell_D_00000"}


def test_a_marker_tells_when_folders_and_files_are_complete(
    files: Path, out: Path, job: Callable[..., MatchedFilesJob]
) -> None:
    run = files / "run"
    (run / "chk00000").mkdir(parents=True)
    (run / "chk00001").write_text("file")
    with following(job(complete="marker=.done", follow=True, until="end")) as stage:
        until(lambda: any(out.glob(LOG_PREFIX + "*")), "the stage has begun")
        (run / "chk00000" / "data").write_text("late")
        (run / "chk00002").mkdir()
        (run / "chk00000" / ".done").touch()
        # The mover's own folder goes just after the name has come.
        until(lambda: staged(out) == ["chk00000"], "the folder is taken")
        (run / "chk00001.done").touch()
        until(lambda: (out / "chk00001").exists(), "the file is taken")
        (run / "end").touch()
        result = stage.ended()
    assert (out / "chk00000" / "data").read_text() == "late"
    assert (out / "chk00001").read_text() == "file"
    assert result["left"] == ["chk00002"]
    assert "were not complete at the end" in stage.told.notes


def test_closed_waits_for_the_last_writer(files: Path, out: Path, job: Callable[..., MatchedFilesJob]) -> None:
    run = files / "run"
    run.mkdir()
    with following(job("wrfout*", complete="closed", follow=True)) as stage:
        with (run / "wrfout_1").open("w") as writer:
            writer.write("first")
            writer.flush()
            (run / "wrfout_2").write_text("whole")
            until(lambda: staged(out) == ["wrfout_2"], "the closed one is taken")
            writer.write(" and last")
        until(lambda: (out / "wrfout_1").exists(), "the other one is taken when it is closed")
        with (run / "wrfout_3").open("w") as open_one:
            open_one.write("half")
            open_one.flush()
            result = stage.end()
    assert (out / "wrfout_1").read_text() == "first and last"
    assert staged(out) == ["wrfout_1", "wrfout_2"]
    assert (result["left"], result["ended_by"]) == (["wrfout_3"], "asked to end")


def test_what_a_program_has_open_is_refused_by_name_whatever_the_rule_says(
    files: Path, out: Path, job: Callable[..., MatchedFilesJob]
) -> None:
    run = files / "run"
    run.mkdir()
    for number in (0, 10):
        checkpoint(run, number)
    with (run / "chk00000" / "Header").open("a") as writer:
        with pytest.raises(RefusedError, match="chk00000 was not staged") as refused:
            stage(job())
        assert refused.value.where == str(run / "chk00000" / "Header")
        # It keeps no other name from being taken.
        assert staged(out) == ["chk00010"]
        writer.write("late")
    assert stage(job())["taken"] == ["chk00000"]
    assert (out / "chk00000" / "Header").read_text().endswith("late")


def test_a_name_that_went_before_it_was_taken_fails_the_stage_at_its_end(
    files: Path, out: Path, job: Callable[..., MatchedFilesJob]
) -> None:
    run = files / "run"
    run.mkdir()
    for number in (0, 10):
        checkpoint(run, number)
    with (run / "chk00000" / "Header").open("a"), pytest.raises(RefusedError):
        stage(job())
    shutil.rmtree(run / "chk00000")
    with pytest.raises(NotFoundError, match="went before they could be taken: chk00000"):
        stage(job())
    assert stage(job(accept_gaps=True))["missed"] == ["chk00000"]
    # It comes again, and is taken.
    checkpoint(run, 0)
    assert stage(job())["missed"] == []
    assert staged(out) == ["chk00000", "chk00010"]


def test_what_somebody_else_put_there_is_not_replaced(
    files: Path, out: Path, job: Callable[..., MatchedFilesJob]
) -> None:
    (files / "run").mkdir()
    checkpoint(files / "run", 0)
    (out / "chk00000").mkdir(parents=True)
    (out / "chk00000" / "mine").write_text("mine")
    with pytest.raises(AlreadyExistsError, match="--replace"):
        stage(job())
    assert (out / "chk00000" / "mine").read_text() == "mine"
    stage(job(replace=True))
    assert not (out / "chk00000" / "mine").exists()


def test_a_folder_that_is_not_there_is_an_error_unless_it_may_come(
    files: Path, out: Path, job: Callable[..., MatchedFilesJob]
) -> None:
    with pytest.raises(NotFoundError, match="there is no such folder"):
        stage(job())
    with following(job(follow=True)) as stage_later:
        stage_later.end()
    assert stage_later.result["staged"] == 0
    (files / "run").mkdir()
    assert stage(job())["staged"] == 0


def test_links_and_devices_are_not_taken(files: Path, out: Path, job: Callable[..., MatchedFilesJob]) -> None:
    run = files / "run"
    run.mkdir()
    (run / "chk00000").symlink_to("/etc/passwd")
    os.mkfifo(run / "chk00001")
    checkpoint(run, 2)
    told = Told()
    assert stage(job(), told)["taken"] == ["chk00002"]
    assert "neither file nor folder" in told.notes


def test_the_log_is_the_stage_s_own(files: Path, out: Path, job: Callable[..., MatchedFilesJob]) -> None:
    (files / "run").mkdir()
    checkpoint(files / "run", 0)
    stage(job())
    (log,) = out.glob(LOG_PREFIX + "*")
    assert log.stat().st_mode & 0o777 == 0o600
    with following(job(follow=True)) as first:
        until(lambda: bool(first.told.events("progress")), "the first one follows")
        with pytest.raises(BusyError, match="another process"):
            stage(job())
    content = log.read_bytes()
    # Half a line at the end was written when the stage was killed.
    log.write_bytes(content + b"12345678 {")
    assert stage(job())["kept"] == 1
    log.write_bytes(content.replace(b"chk00000", b"chk00001", 1))
    with pytest.raises(CorruptError, match="damaged"):
        stage(job())
    elsewhere = out.parent / "elsewhere"
    log.rename(elsewhere)
    log.symlink_to(elsewhere)
    with pytest.raises(PermissionDeniedError, match="follower's own log"):
        stage(job())
    log.unlink()
    os.link(elsewhere, log)
    with pytest.raises(PermissionDeniedError, match="follower's own log"):
        stage(job())


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"match": "a/b"}, "--match"),
        ({"match": ""}, "--match"),
        ({"exclude": ("a/b",)}, "--exclude"),
        ({"complete": "marker="}, "--complete"),
        ({"complete": "marker=a/b"}, "--complete"),
        ({"complete": "done"}, "--complete"),
        ({"every": 2, "multiple_of": 2}, "give one of them"),
        ({"every": 0}, "too small"),
    ],
)
def test_rules_that_are_none_are_refused(
    files: Path, job: Callable[..., MatchedFilesJob], fields: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        stage(job(**fields))


@pytest.mark.parametrize("path", ["../x", "/etc", "link", "file"])
def test_no_folder_outside_of_the_reservation_is_followed(reservation: str, files: Path, out: Path, path: str) -> None:
    (files / "link").symlink_to("/etc")
    (files / "file").touch()
    with pytest.raises(InvalidArgumentError):
        stage(MatchedFilesJob(reservation, path, str(out), "passwd"))
    assert not (out / "passwd").exists()
