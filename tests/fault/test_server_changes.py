# SPDX-License-Identifier: Apache-2.0
"""The server dies at a change to its files, is told that it failed, or finds the disk full from there on.

The changes that do not go through its Device are the table of pins, the files of readers that are there, what prepares
the root and the socket, and the emptying of the quarantine. The others are those that the native tests try as well.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.fault.instance import Instance
from tests.fault.watched_instance import WatchedInstance
from tests.support.file_changes import Accident, Change, Moment, deaths, failures, library, quick_folder
from tests.support.load import LoadProcess, until
from tests.support.staging_server import forebayd
from tests.support.sweeps import Sweep

FIRST, SECOND = "on the first day", "on the second day"

#: Directories in one another: more than the server goes down at once.
DEPTH = 33

#: Streams are at an end after these; what holds then is what the native tests look at.
FATAL = re.compile(r"failing sync \./reservations/\?/(segments|streams)/.*")

#: What a sweep would be worth nothing without.
EXPECTED = {
    "mkdir .",
    "open ./lock",
    "allocate ./pins",
    "open ./readers/?",
    "remove ./readers/?",
    "bind ./.forebayd.sock",
    "rename ./.forebayd.sock",
    "rename ./.endpoint.new",
    "rename ./quarantine/destroyed.?.?/files" + "/d" * (DEPTH - 2),
    "remove ./quarantine/destroyed.?.?.?/d/d/file",
    "remove ./quarantine/destroyed.?.brief.?",
    "remove ./reservations/.?.new/segments/0",
}


def readers(instance: WatchedInstance) -> int:
    return len(os.listdir(instance.root / "readers"))


def kept_steps(instance: WatchedInstance) -> set[int]:
    return {step.number for step in instance.insist(lambda admin: admin.steps("kept/round"))}


def empty_quarantine(instance: WatchedInstance) -> None:
    instance.settle(lambda: not os.listdir(instance.root / "quarantine"), "the quarantine is empty")


def give(path: Path, user: int | None) -> None:
    """The tree becomes that user's."""
    if user is not None:
        for each in (path, *path.rglob("*")):
            os.chown(each, user, user)


def fill_files(instance: WatchedInstance, user: int | None) -> None:
    """A tree that is deep, with a directory at its top that its owner has locked."""
    files = Path(instance.insist(lambda admin: admin.reservation("passing")).files_path)
    shutil.rmtree(files / "d", ignore_errors=True)
    deepest = files.joinpath(*["d"] * DEPTH)
    deepest.mkdir(parents=True)
    (deepest / "file").write_bytes(b"content")
    (files / "locked").mkdir(exist_ok=True)
    (files / "locked" / "file").write_bytes(b"content")
    give(files, user)
    (files / "locked").chmod(0)


def first_day(instance: WatchedInstance, user: int | None) -> list[LoadProcess]:
    """Steps are written and held, a reservation and a stream come and go. Returns the readers that are still there."""
    for name in ("kept", "passing"):
        made = instance.insist(lambda admin, name=name: admin.create(name, "8MiB"))  # type: ignore[misc]
        known = instance.insist(lambda admin: [(each.name, each.id) for each in admin.reservations()])
        assert (name, made.id) in known, f"{name} was told to be made as {made.id}; there are {known}"
    instance.write_up_to("kept/flow", 3)
    instance.write_up_to("kept/safe", 2, durability="durable")
    instance.write_up_to("kept/brief", 1)
    instance.write_up_to("kept/round", 2, retention="last:2")
    leaves, *stay = [instance.hold("kept/round") for _ in range(4)]
    instance.write_up_to("kept/round", 4, retention="last:2")
    leaves.succeed()
    instance.settle(lambda: readers(instance) == len(stay), "the file of the reader that has left is gone")
    fill_files(instance, user)
    instance.insist(lambda admin: admin.destroy("passing", force=True))
    empty_quarantine(instance)
    instance.insist(lambda admin: admin.remove_stream("kept/brief", force=True))
    empty_quarantine(instance)
    return stay


def night(instance: WatchedInstance, user: int | None, dies: LoadProcess) -> None:
    """A reader dies while no server is there, and a reservation is half made, as by a server that died over it."""
    dies.kill()
    unfinished = instance.root / "reservations" / f".{uuid.uuid4()}.new"
    (unfinished / "segments").mkdir(parents=True)
    (unfinished / "segments" / "0").write_bytes(b"")
    give(unfinished, user)


def second_day(instance: WatchedInstance, stays: LoadProcess, dies: LoadProcess, *, wait: bool) -> None:
    """A reader goes on with what it holds, another one is gone without a word: the server looks for that in turns."""
    assert kept_steps(instance) == {0, 2, 3}
    dies.kill()
    instance.write_up_to("kept/flow", 4)
    instance.write_up_to("kept/round", 6, retention="last:2")
    assert 0 in kept_steps(instance)
    assert stays.ask("compare", "compared")["views"] > 0
    stays.ask("release", "released")
    stays.succeed()
    if wait:
        instance.settle(lambda: readers(instance) == 0, "the files of readers are gone")


def last_day(instance: WatchedInstance) -> None:
    """All is there, and nothing else."""
    instance.come_up()
    until(lambda: not os.listdir(instance.root / "quarantine"), "the quarantine is empty")
    for address, count in {"kept/flow": 4, "kept/safe": 2}.items():
        kept = instance.check(address)
        assert sorted(kept) == list(range(count))
        assert instance.committed[address].items() <= kept.items()
    instance.write_up_to("kept/round", 7, retention="last:2")
    assert sorted(instance.check("kept/round")) == [5, 6]  # nobody holds another one
    assert instance.problems() == []
    with instance.admin() as admin:
        assert [reservation.name for reservation in admin.reservations()] == ["kept"]
        assert [stream.name for stream in admin.streams("kept")] == ["flow", "round", "safe"]
    until(lambda: readers(instance) == 0, "the files of readers are gone")
    assert list(instance.root.rglob(".*")) == []
    instance.go_down()
    assert " error " not in instance.log()


def days(folder: Path, accidents: Mapping[str, Accident], user: int | None = None) -> dict[str, list[Change]]:
    """On a new root; returns the changes that the servers made."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    give(folder, user)
    with WatchedInstance(folder, user=user) as instance:
        try:
            instance.come_up(accidents.get(FIRST))
            stays, *others = first_day(instance, user)
            first = instance.go_down()
            night(instance, user, others[0])
            instance.come_up(accidents.get(SECOND))
            second_day(instance, stays, others[1], wait=FIRST not in accidents)
            second = instance.go_down()
            last_day(instance)
        except BaseException as error:
            for day, accident in accidents.items():
                error.add_note(f"with the accident {day}: {accident}; the server's log:\n{instance.log()}")
            raise
    return {FIRST: first, SECOND: second}


def possible_accidents(changes: Mapping[str, list[Change]]) -> list[tuple[str, Accident]]:
    return [
        (day, accident)
        for day, made in changes.items()
        for accident in (*deaths(made), *failures(made))
        if not FATAL.match(str(accident))
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the root, in which the socket lies as well."""
    with quick_folder(tmp_path) as quick:
        quick.chmod(0o711)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(quick / "instance" / "root"))
        yield quick / "instance"


@pytest.fixture
def other_user(folder: Path) -> int:
    """Who may run the server, but needs permissions, as root does not."""
    if os.geteuid() != 0:
        pytest.skip("only root can start the server as another user")
    for path in (forebayd().resolve(), library(), folder.parent):
        if any(not place.stat().st_mode & 0o001 for place in (path, *path.parents)):
            pytest.skip(f"{path} cannot be reached by other users")
    return 65534


# crash-matrix: the server's own files | server, killed at each change to the table of pins, the files of readers, the lock, the socket or the quarantine: before it, and after each removal and renaming | all that was committed; what readers hold; what was destroyed goes with the next server; nothing is left behind
# crash-matrix: the server's own files | disk, at each of these changes: it fails, or the disk is full from there on | the server does not start, and says what to do, or goes on and says what it leaves for the next one; no reader fails over it, and nothing is lost
@pytest.mark.timeout(1800)
def test_a_server_that_has_an_accident_at_a_change_loses_nothing(sweep: Sweep, folder: Path) -> None:
    changes = days(folder, {})
    assert {f"{change.kind} {change.path}" for made in changes.values() for change in made} >= EXPECTED
    for day, accident in sweep.among(possible_accidents(changes)):
        days(folder, {day: accident})


# crash-matrix: the server's own files | server that is not root, killed before it unlocks a directory that is being deleted; or that change fails | the directory goes with the next server
def test_a_server_that_cannot_unlock_a_directory_deletes_it_later(folder: Path, other_user: int) -> None:
    unlocks = [
        (day, accident)
        for day, accident in possible_accidents(days(folder, {}, other_user))
        if accident.change.kind == "chmod" and "/files/locked" in accident.change.path
    ]
    assert len(unlocks) == 2
    for day, accident in unlocks:
        days(folder, {day: accident}, other_user)


# crash-matrix: holding steps | disk, when the server is started while readers hold steps of a stream whose journal cannot be read then | the steps as they were, also when a later server can read them
def test_steps_are_held_over_a_start_that_cannot_read_them(folder: Path) -> None:
    """They would be dropped under their readers else, and their space be written again."""
    journal = Change("write", "./reservations/?/streams/round/journal.1", 1)
    for moment in (Moment.FAILING, Moment.FULL):
        days(folder, {SECOND: Accident(journal, moment)})


# crash-matrix: destroying a reservation | the server's user, who may not delete what another user has put there | all else goes; the rest when it may be deleted
def test_what_cannot_be_deleted_keeps_nothing_else_in_quarantine(folder: Path, other_user: int) -> None:
    """However much it is: the server deletes a few hundred files at a time."""
    folder.mkdir()
    give(folder, other_user)
    with Instance(folder / "root", user=other_user) as instance:
        instance.create("r", "8MiB")
        with instance.admin() as admin:
            files = Path(admin.reservation("r").files_path)
        for number in range(1000):
            (files / f"{number}").touch()
            if number % 100 == 0:
                foreign = files / f"foreign-{number}"
                foreign.mkdir()
                (foreign / "file").touch()
        with instance.admin() as admin:
            admin.destroy("r")
        told = "quarantine could not be emptied: cannot delete: Permission denied"
        until(lambda: told in instance.log(), "the operator is told")
        (destroyed,) = (instance.root / "quarantine").iterdir()
        assert len([path for path in destroyed.rglob("*") if path.is_file()]) == 10
        give(destroyed, other_user)
        instance.restart()
        until(lambda: not os.listdir(instance.root / "quarantine"), "the rest is gone, too")


# crash-matrix: destroying a reservation | server's user, who may not delete a file of another user's, beside folders that are deeper than the server goes down at once | the folders go, however deep
def test_what_is_deep_goes_beside_what_cannot_be_deleted(folder: Path, other_user: int) -> None:
    folder.mkdir()
    give(folder, other_user)
    with Instance(folder / "root", user=other_user) as instance:
        instance.create("r", "8MiB")
        with instance.admin() as admin:
            files = Path(admin.reservation("r").files_path)
        deepest = files.joinpath(*["d"] * (3 * DEPTH))
        deepest.mkdir(parents=True)
        (deepest / "file").touch()
        give(files / "d", other_user)
        (files / "foreign").mkdir()
        (files / "foreign" / "kept").touch()
        with instance.admin() as admin:
            admin.destroy("r")
        told = "quarantine could not be emptied: cannot delete: Permission denied"
        until(lambda: told in instance.log(), "the operator is told")
        left = [path.name for path in (instance.root / "quarantine").rglob("*") if not path.is_dir()]
        assert left == ["kept"]
        assert not list((instance.root / "quarantine").rglob("d"))
