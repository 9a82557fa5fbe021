# SPDX-License-Identifier: Apache-2.0
"""Files of other servers on the manager's node: mounted while stages move them, and no longer."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.errors import StorageError
from forebay.manager.jobs import FilesJob, Job, MatchedFilesJob, StepsJob
from forebay.manager.records import ReservationRow
from forebay.workflows.files.node_mounts import NodeMounts, Wanted
from forebay.workflows.files.stage_trees import StageTrees
from tests.support.time_limits import seconds

ID = "0b0e1b52-92b2-4bdf-a2a1-d4be2a0c6d7f"
JOB = FilesJob("far", "data", "/tmp/data", inward=True)
USER = 7


class _Mounts(NodeMounts):
    """A kernel that remembers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mounted: list[str] = []
        self.fails = False

    def mount(self, wanted: Wanted, deadline: float) -> None:
        del deadline
        if self.fails:
            raise StorageError("the server does not answer: it is not mounted in time")
        self.place(wanted.id).mkdir(exist_ok=True)
        self.mounted = [wanted.source]

    def detach(self, reservation: str, deadline: float) -> None:
        del deadline
        self.mounted.clear()
        self._remove_place(self.place(reservation))


class _Shown:
    """A driver that remembers."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.reaches_it = True

    def reaches(self, reservation: ReservationRow) -> bool:
        return bool(reservation) and self.reaches_it

    def open_for_stages(self, reservation: ReservationRow, uid: int) -> Wanted:
        del uid
        self.open.add(reservation.id)
        return Wanted(reservation.id, "home:/export", 700)

    def close_for_stages(self, reservation_id: str) -> None:
        self.open.remove(reservation_id)


@pytest.fixture
def mounts(tmp_path: Path) -> _Mounts:
    return _Mounts(tmp_path / "stage-trees")


@pytest.fixture
def shown() -> _Shown:
    return _Shown()


def _row(name: str, server: str) -> ReservationRow:
    return ReservationRow(
        name=name, capacity_bytes=1, persistent=True, owner_uid=1, owner_gid=1, created_ns=1, server=server, id=ID
    )


@pytest.fixture
def trees(mounts: _Mounts, shown: _Shown) -> StageTrees:
    rows = {"far": _row("far", "node2"), "near": _row("near", "")}
    made = StageTrees(mounts, shown, rows.get, lambda _, uid: uid == USER, 1.0)
    made.start()
    return made


def test_stages_share_a_mount_which_goes_with_the_last(trees: StageTrees, mounts: _Mounts, shown: _Shown) -> None:
    first, second = trees.hold(JOB, USER), trees.hold(JOB, USER)
    assert first == second == (ID, mounts.folder / ".mounts" / ID)
    trees.release(ID)
    assert mounts.mounted == ["home:/export"]
    assert shown.open == {ID}
    trees.release(ID)
    assert mounts.mounted == []
    assert shown.open == set()
    assert list((mounts.folder / ".mounts").iterdir()) == []


def test_files_that_match_are_mounted_too(trees: StageTrees) -> None:
    job = MatchedFilesJob("far", "run", "/tmp/out", match="*", complete="rename", follow=True)
    assert trees.hold(job, USER) is not None


@pytest.mark.parametrize("job", [StepsJob("far/flow", "/tmp/out"), FilesJob("near", "a", "/tmp/a", inward=False)])
def test_what_needs_no_mount_gets_none(trees: StageTrees, mounts: _Mounts, job: Job) -> None:
    assert trees.hold(job, USER) is None
    assert mounts.mounted == []


def test_a_pool_without_a_driver_gets_none(trees: StageTrees, shown: _Shown) -> None:
    shown.reaches_it = False
    assert trees.hold(JOB, USER) is None


def test_who_may_not_use_the_files_has_nobody_mount_them(trees: StageTrees, mounts: _Mounts, shown: _Shown) -> None:
    assert trees.hold(JOB, USER + 1) is None
    assert (mounts.mounted, shown.open) == ([], set())


def test_what_cannot_be_mounted_is_closed_again(trees: StageTrees, mounts: _Mounts, shown: _Shown) -> None:
    mounts.fails = True
    with pytest.raises(StorageError, match="not mounted in time"):
        trees.hold(JOB, USER)
    assert shown.open == set()
    mounts.fails = False
    assert trees.hold(JOB, USER) is not None


def test_one_users_stages_leave_agents_to_others(mounts: _Mounts, shown: _Shown) -> None:
    """Each may start an NFS server on its home, and an agent carries out few calls at once."""
    rows = {name: replace(_row(name, "node2"), id=ID[:-1] + name[-1]) for name in ("far0", "far1", "far2", "far3")}
    begun: queue.Queue[tuple[str, int]] = queue.Queue()
    go = threading.Event()
    open_for_stages = shown.open_for_stages

    def open_slowly(reservation: ReservationRow, uid: int) -> Wanted:
        begun.put((reservation.name, uid))
        assert go.wait(seconds(60))
        return open_for_stages(reservation, uid)

    shown.open_for_stages = open_slowly  # type: ignore[method-assign]
    trees = StageTrees(mounts, shown, rows.get, lambda *_: True, 1.0)
    trees.start()
    with ThreadPoolExecutor(4) as threads:
        held = [threads.submit(trees.hold, replace(JOB, reservation=f"far{number}"), USER) for number in range(3)]
        try:
            for _ in range(2):
                assert begun.get(timeout=seconds(60))[1] == USER
            held.append(threads.submit(trees.hold, replace(JOB, reservation="far3"), USER + 1))
            assert begun.get(timeout=seconds(60)) == ("far3", USER + 1)
        finally:
            go.set()
        assert all(one.result(seconds(60)) is not None for one in held)


def test_what_an_earlier_manager_left_mounted_goes_at_the_start(
    mounts: _Mounts, shown: _Shown, trees: StageTrees
) -> None:
    trees.hold(JOB, USER)
    following = StageTrees(mounts, shown, lambda _: None, lambda *_: True, 1.0)
    following.start()
    assert mounts.mounted == []
    assert list((mounts.folder / ".mounts").iterdir()) == []
