# SPDX-License-Identifier: Apache-2.0
"""Stages of names that match: the stage's process dies at each change that it makes in the destination, or is told that
it failed, and at its named places.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forebay
from forebay.manager.jobs import MatchedFilesJob, job_to_json
from forebay.workflows.staging.matched_files import LOG_PREFIX
from tests.support.file_changes import Accident, Moment, deaths, failures
from tests.support.sweeps import Sweep
from tests.support.watched_mover import SECRET, mover_program
from tests.support.watched_stager import Run, WatchedStager

pytestmark = pytest.mark.timeout(600)

CHOSEN = ["chk00000", "chk00020"]
OWN_FOLDER = ".forebay-incoming-"


@pytest.fixture
def files(server: object) -> Iterator[Path]:
    """A reservation's files, in which a program has written three checkpoints."""
    with forebay.Admin() as admin:
        admin.create("matched", "8MiB")
        files = Path(admin.reservation("matched").files_path)
        for number in (0, 10, 20):
            folder = files / "run" / f"chk{number:05d}"
            folder.mkdir(parents=True)
            (folder / "Header").write_text(f"{number}\n")
            (folder / "data").write_bytes(b"12" * number)
        yield files
        admin.destroy("matched", force=True)


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """As the manager gives it to a stage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOREBAY_STAGE_SECRET", SECRET)
        patch.setenv("FOREBAY_MOVER_BINARY", str(mover_program()))
        yield


@pytest.fixture
def watched(environment: None, server: object, quick: Path) -> Iterator[WatchedStager]:
    with WatchedStager(quick) as stager:
        yield stager


def job_to(folder: Path) -> MatchedFilesJob:
    return MatchedFilesJob("matched", "run", str(folder / "out"), "chk?????", every=2)


def prepare(folder: Path) -> None:
    """The first checkpoint was staged by a run before; its program has written it anew since."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    shutil.copytree(folder / "before", folder / "out")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_visible(files: Path, folder: Path, older: dict[str, bytes]) -> None:
    """Whatever has a name is whole."""
    for name in CHOSEN:
        if (folder / "out" / name).exists():
            found = contents(folder / "out" / name)
            assert found == contents(files / "run" / name) or (name == CHOSEN[0] and found == older)
    assert not (folder / "out" / "chk00010").exists()


def check_complete(files: Path, folder: Path, run: Run) -> None:
    assert run.status == 0, run.output
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert [name for name in names if not name.startswith(LOG_PREFIX)] == CHOSEN
    rows = {row["path"]: row for event in events_of(run) if event["event"] == "files" for row in event["files"]}
    expected = {
        f"{name}/{path}": content for name in CHOSEN for path, content in contents(files / "run" / name).items()
    }
    assert {path: contents(folder / "out")[path] for path in rows} == expected
    for path, content in expected.items():
        assert (rows[path]["size_bytes"], rows[path]["crc32c"]) == (len(content), f"{forebay.crc32c(content):08x}")


def events_of(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.output.splitlines() if line.startswith("{")]


@pytest.fixture
def older(files: Path, folder: Path, watched: WatchedStager) -> dict[str, bytes]:
    """What the run before has staged of the first checkpoint, which has another version since."""
    first_alone = MatchedFilesJob("matched", "run", str(folder / "out"), "chk?????", every=3)
    run = watched.run(first_alone, folder)
    assert run.status == 0, run.output
    (folder / "out").rename(folder / "before")
    found = contents(folder / "before" / CHOSEN[0])
    shutil.rmtree(files / "run" / CHOSEN[0])
    (files / "run" / CHOSEN[0]).mkdir()
    (files / "run" / CHOSEN[0] / "Header").write_text(f"restarted {os.urandom(4).hex()}\n")
    return found


# crash-matrix: stages | stager of names that match, one of which came again, at each change that it makes in the destination, also in the middle of a write | each name is the old or the new version, whole; the next run completes it, counts as if nothing had happened, and its receipt is right
def test_a_stager_that_dies(
    files: Path, folder: Path, older: dict[str, bytes], watched: WatchedStager, sweep: Sweep
) -> None:
    prepare(folder)
    run = watched.run(job_to(folder), folder)
    check_complete(files, folder, run)
    for death in sweep.among(list(deaths(run.changes))):
        prepare(folder)
        dead = watched.run(job_to(folder), folder, death)
        assert dead.status == -signal.SIGKILL, (death, dead.output)
        check_visible(files, folder, older)
        check_complete(files, folder, watched.run(job_to(folder), folder))


# crash-matrix: stages | destination of names that match, at each change that the stager makes there: this one fails, or the disk is full from then on | the stage fails and says why; each name is the old or the new version, whole; the next run completes it
def test_a_failing_destination(
    files: Path, folder: Path, older: dict[str, bytes], watched: WatchedStager, sweep: Sweep
) -> None:
    prepare(folder)
    changes = watched.run(job_to(folder), folder).changes
    for failure in sweep.among(list(failures(changes))):
        prepare(folder)
        failed = watched.run(job_to(folder), folder, failure)
        _check_failure(failed, failure)
        check_visible(files, folder, older)
        check_complete(files, folder, watched.run(job_to(folder), folder))


def _check_failure(run: Run, failure: Accident) -> None:
    assert run.status == 1, (failure, run.output)
    told = events_of(run)[-1]["failure"]
    assert told["code"] == ("no_space" if failure.moment is Moment.FULL else "io_error"), told
    assert told["where"]


# crash-matrix: stages | stager of names that match, before a copy (`staging.matched.taking`) | the next run copies it
# crash-matrix: stages | stager of names that match, between the copy and its name (`staging.matched.finishing`) | the copy has no name; the next run gives it one
# crash-matrix: stages | stager of names that match, between a copy's name and its entry in the log (`staging.matched.placed`) | the next run reads it back, finds it right, and copies nothing
@pytest.mark.parametrize("place", ["taking", "finishing", "placed"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_stager_killed_between_a_copy_and_its_entry(
    files: Path, folder: Path, older: dict[str, bytes], watched: WatchedStager, place: str, count: int
) -> None:
    prepare(folder)
    command = [sys.executable, "-m", "forebay.workflows.staging", json.dumps(job_to_json(job_to(folder)))]
    fail_point = {"FOREBAY_FAIL_POINT": f"staging.matched.{place}:{count}=kill"}
    killed = subprocess.run(command, env=os.environ | fail_point, stdin=subprocess.DEVNULL, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    check_visible(files, folder, older)
    run = watched.run(job_to(folder), folder)
    check_complete(files, folder, run)
    taken = events_of(run)[-1]["result"]["taken"]
    # The one that was written last comes last.
    assert taken == CHOSEN[::-1][count - (place != "placed") :]
