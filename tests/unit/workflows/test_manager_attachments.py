# SPDX-License-Identifier: Apache-2.0
"""Attachments in the manager's memory."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest
import sqlalchemy

from forebay.errors import BusyError, InvalidArgumentError, NoSpaceError, NotFoundError, RefusedError
from forebay.manager.process_identity import process_identity
from forebay.manager.records import AttachmentKind, AttachmentRow, ReservationRow, ReservationState
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database import attachment_table
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.reservations import attachments as attachments_module
from forebay.workflows.manager.core.reservations import in_use
from forebay.workflows.manager.core.reservations.attachments import Attachments, Hold
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.why import Why
from tests.support.manager_database import new_database

HOUR_NS = 3600 * 10**9


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(new_database(tmp_path / "manager.sqlite"))
    for name, persistent in (("run1", False), ("kept", True)):
        opened.put_reservation(ReservationRow(name, 1, persistent, 7, 7, state=ReservationState.PRESENT))
    yield opened
    opened.close()


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many transactions have begun that change something."""
    count = 0
    change = Database.change

    def counted(self: Database) -> AbstractContextManager[sqlalchemy.Connection]:
        nonlocal count
        count += 1
        return change(self)

    monkeypatch.setattr(Database, "change", counted)
    return lambda: count


@pytest.fixture
def table(database: Database) -> AttachmentTable:
    return AttachmentTable(database)


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[str]:
    """Grows with each call of a module's function."""
    plain = getattr(module, name)
    calls: list[str] = []

    def call(*arguments: object) -> object:
        calls.append(name)
        return plain(*arguments)

    monkeypatch.setattr(module, name, call)
    return calls


def holder(name: str = "a", reservation: str = "run1", uid: int = 7, **values: float) -> AttachmentRow:
    return AttachmentRow(reservation, AttachmentKind.USER, name, uid, **values)  # type: ignore[arg-type]


def test_a_reservation_is_left_when_its_last_holder_is(table: AttachmentTable) -> None:
    table.put(holder("a"))
    table.put(holder("b"))
    assert table.end(holder("a"), "detached")
    assert table.unattached() == []
    assert table.end(holder("b"), "detached")
    (left,) = table.unattached()
    assert (left.reservation, left.last_holder, left.reason) == ("run1", "b (detached)", "")


def test_a_persistent_reservation_is_never_left(table: AttachmentTable) -> None:
    table.put(holder("a", "kept"))
    assert table.end(holder("a", "kept"), "detached")
    assert table.unattached() == []


def test_the_same_name_of_two_users_are_two_holders(table: AttachmentTable) -> None:
    table.put(holder("a", uid=7))
    table.put(holder("a", uid=8))
    assert not table.end(holder("a", uid=9), "detached")
    assert table.end(holder("a", uid=7), "detached")
    assert [row.owner_uid for row in table.of("run1")] == [8]


def test_attaching_again_renews_and_ends_the_leaving(table: AttachmentTable) -> None:
    first = table.put(holder(ttl_seconds=5, expires_ns=5))
    again = table.put(holder(ttl_seconds=9, expires_ns=9))
    assert (again.id, again.expires_ns) == (first.id, 9)
    table.end(holder(), "detached")
    table.put(holder("b"))
    assert table.unattached() == []


def test_nobody_attaches_to_what_is_being_destroyed_and_nothing_attached_is_destroyed(
    table: AttachmentTable, database: Database
) -> None:
    table.put(holder("a"))
    with pytest.raises(RefusedError, match=r"in use by a \(user 7\)"):
        table.doom("run1")
    table.end(holder("a"), "detached")
    table.doom("run1")
    with pytest.raises(BusyError, match="destroying"):
        table.put(holder("a"))
    database.forget_reservation("run1")
    assert table.unattached() == []
    with pytest.raises(NotFoundError):
        table.put(holder("a"))


def test_holders_go_with_their_reservation_but_survive_its_changes(table: AttachmentTable, database: Database) -> None:
    table.put(holder("a"))
    known = database.reservation("run1")
    assert known is not None
    database.put_reservation(known)
    assert len(table.of("run1")) == 1
    database.forget_reservation("run1")
    assert table.all() == []


def test_only_who_is_attached_is_extended(table: AttachmentTable) -> None:
    table.put(holder(ttl_seconds=5, expires_ns=5))
    assert table.extend(holder(ttl_seconds=60, expires_ns=60)).expires_ns == 60
    with pytest.raises(NotFoundError, match="b is not attached to run1"):
        table.extend(holder("b", ttl_seconds=60, expires_ns=60))


def test_nobody_expires_for_the_time_in_which_the_manager_was_away(table: AttachmentTable) -> None:
    now = time.time_ns()
    table.put(holder("short", ttl_seconds=2, expires_ns=now - HOUR_NS))
    table.put(holder("long", ttl_seconds=7200, expires_ns=now - HOUR_NS))
    table.put(holder("far", ttl_seconds=7200, expires_ns=now + HOUR_NS))
    table.give_time(60)
    left_seconds = {row.holder: ((row.expires_ns or 0) - now) / 1e9 for row in table.all()}
    assert 2 <= left_seconds["short"] < 30
    assert 60 <= left_seconds["long"] < 90
    assert left_seconds["far"] == 3600


def test_the_start_waits_for_no_transaction_of_each_attachment(
    table: AttachmentTable, changes: Callable[[], int]
) -> None:
    for number in range(20):
        table.put(holder(str(number), ttl_seconds=30, expires_ns=1))
    before = changes()
    table.give_time(60)
    assert changes() == before + 1


def test_what_others_have_is_not_read_for_a_user(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has thousands of attachments makes nobody else's list long in coming."""
    database.put_reservation(ReservationRow("run2", 1, False, 8, 8, state=ReservationState.PRESENT))
    table = AttachmentTable(database)
    for one in (holder("a"), holder("b", uid=8), holder("c", "run2", uid=8), holder("d", "run2", uid=7)):
        table.put(one)
    for number in range(20):
        table.put(holder(str(number), "run2", uid=9))
    read = counted(monkeypatch, attachment_table, "_row")
    why = Why(database)
    assert [row.holder for row in why.visible_attachments(Peer(7, 7))] == ["a", "b", "d"]
    assert len(read) == 3
    assert len(why.visible_attachments(Peer(8, 8))) == 23
    assert len(why.visible_attachments(Peer(0, 0))) == 24


def test_attachments_of_one_process_cost_as_one(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked at each second."""
    attachments = Attachments(database, cast(Reservations, SimpleNamespace(end_unattached=lambda _: None)))
    own = process_identity(os.getpid())
    for number in range(20):
        attachments.table.put(dataclasses.replace(holder(str(number), "kept"), pid=os.getpid(), process=own))
    attachments.table.put(dataclasses.replace(holder("gone", "kept"), pid=os.getpid(), process="another"))
    looks = [counted(monkeypatch, module, "process_identity") for module in (in_use, attachments_module)]
    read = counted(monkeypatch, attachment_table, "_row")
    attachments.settle()
    assert sum(map(len, looks)) <= 3
    assert len(read) == 1
    assert len(attachments.table.all()) == 20


def test_what_names_a_process_goes_with_its_number(database: Database) -> None:
    """Else nothing bounds what of it is kept."""
    attachments = Attachments(database, cast(Reservations, SimpleNamespace()))
    hold = Hold("run1", "a", process="x" * 100_000)
    with pytest.raises(InvalidArgumentError, match="goes with its number"):
        attachments.attach(hold, Peer(7, 7))


def test_one_users_attachments_leave_places_for_others(table: AttachmentTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_ATTACHMENTS_MAX", 20), ("_RESERVE", 5), ("_FEW", 2), ("_OF_ONE_USER_MAX", 17)):
        monkeypatch.setattr(f"forebay.workflows.manager.core.database.attachment_table.{name}", value)
    for number in range(15):
        table.put(holder(f"h{number}", uid=8))
    with pytest.raises(NoSpaceError, match="the last 5 places are for users who have fewer than 2"):
        table.put(holder("h15", uid=8))
    table.put(holder("h3", uid=8))  # renewed
    table.put(holder("a", uid=7))
    table.put(holder("b", uid=7))
    table.put(AttachmentRow("run1", AttachmentKind.JOB, "17", 8))
    # In all reservations together, jobs aside.
    for number in range(2):
        table.put(holder(f"h{number}", "kept", uid=8))
    with pytest.raises(NoSpaceError, match="user 8 has 17 attachments, as many as may be"):
        table.put(holder("h2", "kept", uid=8))
    for number in range(30, 32):
        table.put(holder(f"root{number}", uid=0))
    with pytest.raises(NoSpaceError, match="takes no more"):
        table.put(holder("c", uid=0))


def test_many_that_end_together_take_few_transactions(database: Database, changes: Callable[[], int]) -> None:
    """A transaction takes milliseconds, and what others let go waits behind all of them."""
    destroyed: list[str] = []
    attachments = Attachments(database, cast(Reservations, SimpleNamespace(end_unattached=destroyed.append)))
    database.put_reservation(ReservationRow("run2", 1, False, 8, 8, state=ReservationState.PRESENT))
    for number in range(600):
        attachments.table.put(holder(str(number), ttl_seconds=1.0, expires_ns=1))
    attachments.table.put(holder("b", "run2", uid=8, ttl_seconds=1.0, expires_ns=1))
    attachments.table.put(holder("stays", "kept"))
    before = changes()
    attachments.settle()
    assert changes() - before <= 6
    assert sorted(destroyed) == ["run1", "run2"]
    assert [row.holder for row in attachments.table.all()] == ["stays"]


def left_by_its_last_holder(
    database: Database, stages: Sequence[tuple[int, StageState]], **fields: object
) -> list[str]:
    """What was destroyed, and why the reservation is there still, if it is."""
    destroyed: list[str] = []
    reservations = SimpleNamespace(end_unattached=destroyed.append)
    attachments = Attachments(database, cast(Reservations, reservations))
    for uid, state in stages:
        job = {"kind": "files", "reservation": "run1", **fields}
        database.change_stage(database.add_stage(job, uid, uid, 0o22).id, state=state)
    attachments.table.put(holder("a"))
    attachments.table.end(holder("a"), "detached")
    attachments.settle()
    return destroyed or [row.reason for row in attachments.table.unattached()]


def test_stages_that_others_ask_for_keep_no_reservation(database: Database) -> None:
    """Anybody can ask for one: it fails when its turn comes, but waits before, up to 10 000 of them."""
    assert left_by_its_last_holder(database, [(8, StageState.QUEUED)] * 3) == ["run1"]


@pytest.mark.parametrize("stage", [(7, StageState.QUEUED), (0, StageState.QUEUED), (8, StageState.RUNNING)])
def test_stages_of_the_owner_and_those_that_run_are_waited_for(
    database: Database, stage: tuple[int, StageState]
) -> None:
    assert left_by_its_last_holder(database, [stage, (8, StageState.QUEUED)]) == ["stage 1 is not over"]


def test_stages_of_others_that_follow_or_take_long_keep_no_reservation(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = [(8, StageState.RUNNING)]
    assert left_by_its_last_holder(database, running, follow=True) == ["run1"]
    monkeypatch.setattr("forebay.workflows.manager.core.reservations.attachments._OTHERS_STAGES_SECONDS", 0.0)
    assert left_by_its_last_holder(database, running) == ["run1"]


def test_a_stage_of_the_owner_that_follows_is_waited_for(database: Database) -> None:
    assert left_by_its_last_holder(database, [(7, StageState.RUNNING)], follow=True) == ["stage 1 is not over"]
