# SPDX-License-Identifier: Apache-2.0
"""The manager's disk is full, or refuses its writes: users are told what to do, and nothing that was told is lost."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.cli.failures import ExitStatus
from forebay.workflows.manager.instance.daemon import is_locked
from tests.fault.troubled_workday import FailingWrites, FullDisk, InterruptedWorkday, Trouble, TroubledWorkday
from tests.support.instance import CommandLineInstance
from tests.support.mounted import fill, mounted
from tests.support.sweeps import Sweep

pytestmark = pytest.mark.instance

#: So many changes of its database the shortest workday has at least.
CHANGES_MIN = 30


def on_small_disk(folder: Path) -> CommandLineInstance:
    """The pool is larger than the disk, so that it is the disk that gets full."""
    return CommandLineInstance(folder / "root", up_options=("--oversubscribe",))


@pytest.fixture(params=["full", "failing"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Trouble]]:
    """A folder for roots, and what will be wrong with it."""
    if request.param == "failing":
        yield tmp_path, FailingWrites()
        return
    with mounted(tmp_path / "disk", 64) as disk:
        yield disk, FullDisk()


# crash-matrix: the manager's work | the manager's disk, full or refusing each write, whenever a user asks for something, and when the instance goes down and up | an error that says what to do; everything that was told, which can be looked at meanwhile; asked again when that has passed: everything done, once; doctor finds nothing
@pytest.mark.timeout(600)
def test_each_request_is_refused_clearly_and_done_later(
    place: tuple[Path, Trouble], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, trouble = place
    instance = on_small_disk(folder)
    monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
    day = TroubledWorkday(instance, tmp_path / "day", trouble)
    with instance:
        day.run()
        day.check()
    assert day.told >= 10, "the trouble went unnoticed"


# crash-matrix: starting the manager | the disk, full | an error that says so, and no process that nobody knows; it is started when there is room
def test_a_manager_that_cannot_be_remembered_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mounted(tmp_path / "disk", 64) as disk, on_small_disk(disk) as instance:
        monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
        instance.kill_manager()
        ballast = fill(disk)
        done = instance.run("up")
        assert done.returncode == ExitStatus.ERROR
        assert "the disk is full, and the manager was not started; make room there" in done.stderr
        assert not is_locked(instance.files.manager_lock)
        ballast.unlink()
        assert instance.up()["manager_started"]


# crash-matrix: destroying a reservation | the disk, full | it is destroyed, and there is room
def test_destroying_makes_room_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(tmp_path / "disk", 64) as disk, on_small_disk(disk) as instance:
        monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
        for name in ("one", "other"):
            instance.ask("create", name, "--capacity", "16MiB", "--persistent")
        fill(disk)
        assert instance.run("doctor").returncode == ExitStatus.ERROR
        instance.ask("destroy", "one")
        assert instance.ask("doctor")["clean"] is True
        with instance.manager() as manager:
            assert [row.name for row in manager.reservations()] == ["other"]


# crash-matrix: the manager's database is damaged | found when the manager starts | the manager does not start, and says what to do; then all reservations are known again
def test_a_damaged_database_can_be_moved_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CommandLineInstance(tmp_path / "root") as instance:
        monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
        instance.ask("create", "kept", "--capacity", "16MiB", "--persistent")
        with instance.manager() as manager:
            before = manager.reservations()
        instance.ask("down")  # or all of it would be in its log of changes as well
        database = instance.files.manager_database
        database.write_bytes(b"no database" * 1000)
        done = instance.run("up")
        assert done.returncode == ExitStatus.ERROR
        assert "the manager's database is damaged" in done.stderr
        assert "move the database away with its -wal and -shm, then `forebay up`" in done.stderr
        assert "Traceback" not in done.stderr
        for suffix in ("", "-wal", "-shm"):
            database.with_name(database.name + suffix).unlink(missing_ok=True)
        instance.up()
        with instance.manager() as manager:
            assert manager.reservations() == before
        assert instance.ask("doctor")["clean"] is True


# crash-matrix: the manager's work | the manager's disk, full or refusing each write, from any change of its database on, also amid a request or a stage | an error that says what to do, or a note of the stage, which goes on by itself; asked again when that has passed: everything done, once; doctor finds nothing
@pytest.mark.timeout(1800)
def test_trouble_at_any_change_loses_nothing(
    place: tuple[Path, Trouble],
    sweep: Sweep,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, trouble = place
    for number in sweep.numbers(CHANGES_MIN):
        print(number)
        instance = on_small_disk(folder)
        monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
        day = InterruptedWorkday(instance, tmp_path / str(number), trouble, f"manager.change.before:{number}=stop")
        with contextlib.closing(day):
            day.come_up()
            with instance:
                day.run()
                day.disarm()
                instance.kill_manager()  # or it would stop when it is asked how it is
                instance.up()
                day.check()
        shutil.rmtree(instance.root)
        if day.met == 0:
            sweep.ends_at(number)
            return
