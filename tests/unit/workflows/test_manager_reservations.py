# SPDX-License-Identifier: Apache-2.0
"""The manager's reservations against a server that refuses, is lost, or forgets, with crashes between any two steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import Connection

from forebay.admin import Admin
from forebay.errors import (
    AlreadyExistsError,
    BusyError,
    DisconnectedError,
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
)
from forebay.manager.records import ReservationRow, ReservationState
from forebay.records import Lifetime, ReservationInfo, ReservationMember, ServerInfo, StreamStatus
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.manager.core.reservations.reservations import Reservations
from tests.support.manager_database import new_database

POOL_BYTES = 100


class Crashed(BaseException):
    """The manager dies here."""


OWNER = Peer(7, 7)


class FakeServer:
    """What the manager asks of a server, in memory. `crash_in` calls from now the manager dies: before or after it."""

    def __init__(self) -> None:
        self.existing: dict[str, ReservationInfo] = {}
        self.busy: set[str] = set()
        self.looks_idle = False
        self.away = False
        self.crash_in: int | None = None
        self.crash_after = False
        self.created = 0
        self.counted: list[tuple[str, int | None]] = []  #: whose files, and in whose turn
        self.uuid = ""
        self.pool_bytes = POOL_BYTES

    def connect(self) -> Admin:
        if self.away:
            raise NotFoundError("no server")
        return cast(Admin, self)

    def close(self) -> None:
        pass

    def server(self) -> ServerInfo:
        return ServerInfo("1", "/", 1, 1, self.pool_bytes, 0, 1, 0, 0, self.uuid, 1)

    def reservations(
        self,
        *,
        shares: bool = False,
        count_files: bool = True,
        names: Iterable[str] | None = None,
        turn_of: int | None = None,
    ) -> list[ReservationInfo]:
        self._check()
        named = self.existing if names is None else list(names)
        found = [info for name, info in self.existing.items() if name in named and (shares or info.home)]
        if count_files:
            self.counted += [(info.name, turn_of) for info in found]
        return found

    def taken_bytes(self) -> int:
        """What reservations and shares take here."""
        taken = 0
        for info in self.existing.values():
            given = [member.capacity_bytes for member in info.members if member.server == self.uuid]
            taken += sum(given) if info.members else info.capacity_bytes
        return taken

    def reservation(self, name: str, *, count_files: bool = True) -> ReservationInfo:
        self._check()
        if name not in self.existing:
            raise NotFoundError("there is none", name)
        return self.existing[name]

    def streams(self, name: str) -> list[Any]:
        self.reservation(name)
        live = name in self.busy and not self.looks_idle
        return [SimpleNamespace(name="flow", status=StreamStatus.LIVE if live else StreamStatus.ENDED)]

    def steps(self, path: str) -> list[Any]:
        self._check()
        return []

    def create(self, name: str, capacity: int, **options: Any) -> ReservationInfo:
        return cast(ReservationInfo, self._call(lambda: self._create(name, capacity, **options)))

    def destroy(self, name: str, *, force: bool = False) -> None:
        self._call(lambda: self._destroy(name, force))

    def change(self, name: str, *, persistent: bool | None, files: int | None) -> ReservationInfo:
        lifetime = Lifetime.PERSISTENT if persistent else Lifetime.JOB
        return cast(ReservationInfo, self._call(lambda: self._change(name, lifetime, files)))

    def _change(self, name: str, lifetime: Lifetime, files: int | None) -> ReservationInfo:
        known = self.existing[name]
        files_bytes = known.files_bytes if files is None else files
        self.existing[name] = replace(known, lifetime=lifetime, files_bytes=files_bytes)
        return self.existing[name]

    def _create(self, name: str, capacity: int, *, persistent: bool, **options: Any) -> ReservationInfo:
        known = self.existing.get(name)
        if known is not None:
            if known.capacity_bytes != capacity:
                raise AlreadyExistsError("it is there", name)
            return known
        members = tuple(ReservationMember(server, size) for server, size in options.get("members", ()))
        here = sum(member.capacity_bytes for member in members if member.server == self.uuid)
        if (here if members else capacity) + self.taken_bytes() > self.pool_bytes:
            raise NoSpaceError("the pool is full", name)
        self.created += 1
        self.existing[name] = ReservationInfo(
            name=name,
            id=options.get("id") or f"id-{self.created}",
            capacity_bytes=capacity,
            used_bytes=0,
            files_bytes=options.get("files", 0),
            files_used_bytes=0,
            segment_bytes=1,
            lifetime=Lifetime.PERSISTENT if persistent else Lifetime.JOB,
            owner_uid=options["owner_uid"],
            owner_gid=options["owner_gid"],
            created_ns=self.created,
            streams=0,
            files_path="/",
            shares=(),
            access_generation=0,
            pool=options.get("pool", ""),
            account=options.get("account", ""),
            members=members,
            home=not members or members[0].server == self.uuid,
        )
        return self.existing[name]

    def _destroy(self, name: str, force: bool) -> None:
        if name in self.busy and not force:
            raise RefusedError("it has writers", name)
        self.existing.pop(name, None)
        self.busy.discard(name)

    def _call(self, change: Any) -> Any:
        self._check()
        dies = False
        if self.crash_in is not None:
            self.crash_in -= 1
            dies = self.crash_in < 0
        if dies and not self.crash_after:
            raise Crashed
        result = change()
        if dies:
            raise Crashed
        return result

    def _check(self) -> None:
        if self.away:
            raise DisconnectedError("the server is away")


def request(name: str, capacity_bytes: int = 10, *, persistent: bool = True, owner_uid: int = 7) -> ReservationRow:
    return ReservationRow(name, capacity_bytes, persistent, owner_uid, owner_uid)


def servers_of(database: Database, server: FakeServer) -> Servers:
    """A pool of this server alone."""
    return Servers(database, lambda _address: server.connect())


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(new_database(tmp_path / "manager.sqlite"))
    yield opened
    opened.close()


@pytest.fixture
def reservations(server: FakeServer, database: Database) -> Reservations:
    return Reservations(database, servers_of(database, server))


def states(database: Database) -> dict[str, ReservationState]:
    return {row.name: row.state for row in database.reservations()}


def test_what_the_server_refuses_is_not_remembered(reservations: Reservations, database: Database) -> None:
    with pytest.raises(NoSpaceError):
        reservations.create(request("big", POOL_BYTES + 1))
    assert states(database) == {}


@pytest.mark.parametrize("name", ["x" * 300_000, "7up", "a/b", ""])
def test_what_can_be_no_name_is_not_written_down(
    reservations: Reservations, server: FakeServer, database: Database, name: str
) -> None:
    server.away = True  # else it would say so itself
    with pytest.raises(InvalidArgumentError, match="not a valid name") as caught:
        reservations.create(request(name))
    assert len(str(caught.value)) < 300
    assert states(database) == {}


def test_a_user_has_so_many_reservations_at_most(
    reservations: Reservations, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.workflows.manager.core.reservations.reservations._OF_ONE_USER_MAX", 2)
    reservations.create(request("one"))
    reservations.create(request("two"))
    with pytest.raises(NoSpaceError, match="user 7 has 2 reservations, as many as may be"):
        reservations.create(request("three"))
    reservations.create(request("two"))  # it is there
    # Whoever waits does not wait for that.
    with pytest.raises(NoSpaceError, match="as many as may be"):
        reservations.create_or_wait(request("three"))
    reservations.create(request("others", owner_uid=8))
    reservations.create(request("jobs"), queues=False)
    for name in ("roots1", "roots2", "roots3"):
        reservations.create(request(name, owner_uid=0))
    assert set(states(database)) == {"one", "two", "others", "jobs", "roots1", "roots2", "roots3"}


def test_findings_see_what_was_removed_past_the_manager_since_the_start(
    reservations: Reservations, server: FakeServer
) -> None:
    reservations.create(request("one"))
    assert reservations.findings() == []
    del server.existing["one"]
    (finding,) = reservations.findings()
    assert "removed its data without the manager" in finding.what


def test_a_change_that_a_lost_server_left_undone_is_done_before_findings_are_told(
    reservations: Reservations, server: FakeServer, database: Database
) -> None:
    reservations.create(request("one"))
    server.away = True
    with pytest.raises(DisconnectedError):
        reservations.destroy("one", force=False, by=None)
    server.away = False
    assert reservations.findings() == []
    assert (states(database), server.existing) == ({}, {})


def test_a_refused_change_of_an_existing_one_leaves_it(
    reservations: Reservations, server: FakeServer, database: Database
) -> None:
    reservations.create(request("one"))
    with pytest.raises(AlreadyExistsError):
        reservations.create(request("one", 20))
    server.busy.add("one")
    with pytest.raises(RefusedError):
        reservations.destroy("one", force=False, by=OWNER)
    assert states(database) == {"one": ReservationState.PRESENT}
    assert database.reservation("one") == replace(
        request("one"), state=ReservationState.PRESENT, id="id-1", created_ns=1
    )
    reservations.destroy("one", force=True, by=OWNER)
    assert states(database) == {}


def test_one_that_was_made_persistent_stays_when_its_last_holder_has_left(
    reservations: Reservations, server: FakeServer, database: Database
) -> None:
    reservations.create(replace(request("one"), persistent=False))
    reservations.change("one", persistent=True, files_bytes=None, by=OWNER)
    reservations.end_unattached("one")
    assert reservations.destroy_non_persistent(force=True) == ([], [])
    assert states(database) == {"one": ReservationState.PRESENT}
    reservations.change("one", persistent=False, files_bytes=None, by=OWNER)
    reservations.end_unattached("one")
    assert (states(database), server.existing) == ({}, {})


def test_one_that_is_to_be_destroyed_is_not_changed(
    reservations: Reservations, server: FakeServer, database: Database
) -> None:
    reservations.create(request("one"))
    server.away = True
    with pytest.raises(DisconnectedError):
        reservations.destroy("one", force=False, by=None)
    server.away = False
    with pytest.raises(BusyError, match="is being destroyed; ask again"):
        reservations.change("one", persistent=True, files_bytes=None, by=OWNER)
    reservations.reconcile()
    assert (states(database), server.existing) == ({}, {})


def test_only_the_owner_destroys_and_for_strangers_there_is_no_such_reservation(
    reservations: Reservations, server: FakeServer
) -> None:
    reservations.create(request("one"))
    stranger = Peer(8, 8)
    assert reservations.destroy("one", force=True, by=stranger) is False
    with pytest.raises(NotFoundError) as unseen:
        reservations.change("one", persistent=True, files_bytes=None, by=stranger)
    with pytest.raises(NotFoundError) as missing:
        reservations.change("two", persistent=True, files_bytes=None, by=stranger)
    assert unseen.value.what == missing.value.what
    # A member of the owner's group may write there, and so may see it.
    with pytest.raises(PermissionDeniedError, match="belongs to user 7"):
        reservations.destroy("one", force=True, by=Peer(8, 8, (7,)))
    reservations.destroy("one", force=False, by=None)
    assert server.existing == {}


def test_a_request_that_the_server_did_not_hear_is_carried_out_when_it_is_back(
    reservations: Reservations, server: FakeServer, database: Database
) -> None:
    reservations.create(request("old"))
    server.away = True
    with pytest.raises(DisconnectedError):
        reservations.create(request("new"))
    with pytest.raises(DisconnectedError):
        reservations.destroy("old", force=False, by=OWNER)
    with pytest.raises(DisconnectedError):
        reservations.reconcile()
    server.away = False
    reservations.reconcile()
    assert set(server.existing) == {"new"}
    assert states(database) == {"new": ReservationState.PRESENT}


def test_what_was_made_past_the_manager_is_taken_over(
    reservations: Reservations, server: FakeServer, database: Database
) -> None:
    server._create("direct", 10, persistent=False, owner_uid=9, owner_gid=9)
    reservations.reconcile()
    row = database.reservation("direct")
    assert row is not None
    assert (row.owner_uid, row.persistent, row.state) == (9, False, ReservationState.PRESENT)


def test_what_vanished_is_told_and_not_made_anew(
    reservations: Reservations, server: FakeServer, database: Database
) -> None:
    reservations.create(request("one"))
    server.existing.clear()
    reservations.reconcile()
    assert states(database) == {"one": ReservationState.LOST}
    assert server.existing == {}
    (finding,) = reservations.findings()
    assert "forebay destroy one" in finding.what
    reservations.destroy("one", force=False, by=OWNER)
    assert reservations.findings() == []


def test_going_down_destroys_what_is_not_persistent(reservations: Reservations, server: FakeServer) -> None:
    reservations.create(request("kept"))
    reservations.create(request("first", persistent=False))
    reservations.create(request("scratch", persistent=False))
    server.busy.add("scratch")
    with pytest.raises(RefusedError, match="nothing was destroyed: scratch/flow is being written"):
        reservations.destroy_non_persistent(force=False)
    assert set(server.existing) == {"first", "kept", "scratch"}
    # The writers come after it was looked.
    server.looks_idle = True
    with pytest.raises(RefusedError, match="it has writers; already destroyed: first"):
        reservations.destroy_non_persistent(force=False)
    assert set(server.existing) == {"kept", "scratch"}
    assert reservations.destroy_non_persistent(force=True) == (["scratch"], [])
    assert set(server.existing) == {"kept"}


class FullDatabase(Database):
    """Of the changes to come, counted from 1, those in `refused` find the disk full."""

    def __init__(self, place: Path | str) -> None:
        super().__init__(place)
        self.refused: set[int] = set()
        self.changes = 0

    def refuse(self, *changes: int) -> None:
        self.refused, self.changes = set(changes), 0

    @contextlib.contextmanager
    def change(self) -> Iterator[Connection]:
        self.changes += 1
        if self.changes in self.refused:
            raise NoSpaceError("the disk is full")
        with super().change() as connection:
            yield connection


@pytest.fixture
def full(tmp_path: Path) -> Iterator[FullDatabase]:
    opened = FullDatabase(new_database(tmp_path / "full.sqlite"))
    yield opened
    opened.close()


@pytest.mark.parametrize("change", [1, 2])
@pytest.mark.parametrize("settles", ["reconcile", "create"])
def test_a_create_that_could_not_be_written_down_is_settled_later(
    server: FakeServer, full: FullDatabase, change: int, settles: str
) -> None:
    reservations = Reservations(full, servers_of(full, server))
    full.refuse(change)
    with pytest.raises(NoSpaceError, match="the disk is full"):
        reservations.create(request("one"))
    # What the server was asked for is not forgotten.
    assert states(full) == ({} if change == 1 else {"one": ReservationState.CREATING})
    if settles == "create":
        reservations.create(request("one"))
    reservations.reconcile()
    assert set(states(full)) == set(server.existing)
    assert set(states(full).values()) <= {ReservationState.PRESENT}
    assert server.created == (1 if settles == "create" or change == 2 else 0)


def test_a_create_whose_refusal_could_not_be_written_down_is_settled_later(
    server: FakeServer, full: FullDatabase
) -> None:
    reservations = Reservations(full, servers_of(full, server))
    # The server says that it has room, and then has none: another manager was faster.
    make = {"persistent": True, "owner_uid": 7, "owner_gid": 7}
    server.create("one", POOL_BYTES, **make)
    full.refuse(2)
    with pytest.raises(NoSpaceError, match="the disk is full"):
        reservations.create(request("two"))
    reservations.reconcile()
    assert states(full) == {"one": ReservationState.PRESENT}


# Without a note of it the row is forgotten as soon as there is room, which the server may make after its answer.
@pytest.mark.parametrize("changes", [(1,), (2,), (1, 2, 3)])
def test_a_destroy_on_a_full_disk_makes_room_or_is_asked_again(
    server: FakeServer, full: FullDatabase, changes: tuple[int, ...]
) -> None:
    reservations = Reservations(full, servers_of(full, server))
    reservations.create(request("one"))
    full.refuse(*changes)
    if 1 in changes:
        reservations.destroy("one", force=False, by=OWNER)
    else:
        with pytest.raises(NoSpaceError, match="the disk is full"):
            reservations.destroy("one", force=False, by=OWNER)
        assert server.existing == {}
        reservations.destroy("one", force=False, by=OWNER)
    assert (states(full), reservations.findings()) == ({}, [])


def test_a_destroy_that_is_refused_on_a_full_disk_leaves_the_reservation(
    server: FakeServer, full: FullDatabase
) -> None:
    reservations = Reservations(full, servers_of(full, server))
    reservations.create(request("one"))
    server.busy.add("one")
    full.refuse(1, 2)
    with pytest.raises(RefusedError):
        reservations.destroy("one", force=False, by=OWNER)
    assert states(full) == {"one": ReservationState.PRESENT}


NAMES = st.sampled_from(["a", "b", "c"])


class ManagerWithCrashes(RuleBasedStateMachine):
    """After any history with crashes, one start brings request and server together."""

    @initialize()
    def begin(self) -> None:
        self.server = FakeServer()
        self.database = Database(Path(":memory:"))
        self.start()

    def start(self) -> None:
        self.reservations = Reservations(self.database, servers_of(self.database, self.server))

    def attempt(self, call: Any) -> str:
        """How it ended: done, an error's code, or a crash, after which a new manager reconciles."""
        try:
            call()
        except ForebayError as error:
            return error.code.value
        except Crashed:
            self.server.crash_in = None
            self.start()
            if not self.server.away:
                self.reservations.reconcile()
            return "crashed"
        return "done"

    @rule(name=NAMES, capacity=st.sampled_from([10, 40, 70]), persistent=st.booleans())
    def create(self, name: str, capacity: int, persistent: bool) -> None:
        outcome = self.attempt(lambda: self.reservations.create(request(name, capacity, persistent=persistent)))
        if outcome == "done":
            assert self.server.existing[name].capacity_bytes == capacity

    @rule(name=NAMES, force=st.booleans())
    def destroy(self, name: str, force: bool) -> None:
        was_busy = name in self.server.busy
        outcome = self.attempt(lambda: self.reservations.destroy(name, force=force, by=OWNER))
        if outcome == "done":
            assert name not in self.server.existing
        if was_busy and not force:
            assert name in self.server.existing

    @rule(name=NAMES)
    def writers_come(self, name: str) -> None:
        if name in self.server.existing:
            self.server.busy.add(name)

    @rule(calls=st.integers(0, 2), after=st.booleans())
    def crash_soon(self, calls: int, after: bool) -> None:
        self.server.crash_in, self.server.crash_after = calls, after

    @rule(away=st.booleans())
    def server_leaves_or_comes(self, away: bool) -> None:
        self.server.away = away
        if not away:
            self.attempt(self.reservations.reconcile)

    @invariant()
    def request_and_server_agree_after_a_start(self) -> None:
        if getattr(self, "server", None) is None or self.server.away or self.server.crash_in is not None:
            return
        self.start()
        self.reservations.reconcile()
        assert {row.name: row.id for row in self.database.reservations()} == {
            info.name: info.id for info in self.server.existing.values()
        }
        assert all(row.state is ReservationState.PRESENT for row in self.database.reservations())

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()


TestManagerWithCrashes = ManagerWithCrashes.TestCase
TestManagerWithCrashes.settings = settings(max_examples=60, stateful_step_count=25)
