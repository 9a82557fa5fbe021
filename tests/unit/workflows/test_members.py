# SPDX-License-Identifier: Apache-2.0
"""Reservations over several servers: made and ended on all or none, whoever dies or is away."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import AlreadyExistsError, BusyError, DisconnectedError, InvalidArgumentError, NoSpaceError
from forebay.manager.records import GivenUp, MemberRow, ReservationRow, ReservationState
from forebay.records import Severity
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import Database, Held
from forebay.workflows.manager.core.pools.admission import FullError
from forebay.workflows.manager.core.pools.placement import (
    PlacementRequest,
    Reach,
    ServerSpace,
    dealt_bytes,
    place,
)
from forebay.workflows.manager.core.pools.pool_settings import Pool as PoolOfServers
from forebay.workflows.manager.core.pools.pool_settings import PoolSettings
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.why import Why
from tests.unit.workflows.test_manager_reservations import OWNER, Crashed, request
from tests.unit.workflows.test_servers import ADDRESSES, Pool, PoolServer

MIB = 1 << 20
SERVERS = ["ssd1", "ssd2", "ssd3"]


@pytest.fixture(autouse=True)
def own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `forebay up --name` sets."""
    monkeypatch.setenv("FOREBAY_SERVER_NAME", "ssd1")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    database = Database(tmp_path / "manager.sqlite")
    made = Pool(database)
    for server in all_of(made):
        server.pool_bytes = 256 * MIB
    for name, address in ADDRESSES.items():
        made.reservations.take_server(name, address)
    yield made
    database.close()


def all_of(pool: Pool) -> list[PoolServer]:
    return [pool.own, *pool.at.values()]


def at(pool: Pool, name: str) -> PoolServer:
    return pool.own if name in ("", "ssd1") else pool.named(name)


def create(pool: Pool, name: str = "wide", size: int = 90 * MIB, **options: Any) -> ReservationRow:
    """One over all three; its row."""
    pool.reservations.create(request(name, size), **({"servers": 3} | options))
    row = pool.database.reservation(name)
    assert row is not None
    return row


def names_on(pool: Pool) -> list[list[str]]:
    return [sorted(server.existing) for server in all_of(pool)]


def restart(pool: Pool) -> None:
    """Another manager, with what the last one has written down."""
    for server in all_of(pool):
        server.crash_in = None
    pool.servers = Servers(pool.database, pool.connect, "node1:7460")
    pool.reservations = Reservations(pool.database, pool.servers)
    pool.reservations.reconcile()


def test_all_servers_have_it_and_the_home_alone_lists_it(pool: Pool) -> None:
    row = create(pool)
    assert row.state is ReservationState.PRESENT
    assert [member.size_bytes for member in row.members] == [30 * MIB] * 3
    assert sorted(row.servers) == ["", "ssd2", "ssd3"]
    assert row.servers[0] == row.server
    there, away = pool.servers.usable_reservations(Peer(0, 0))
    assert ([info.name for info in there], away) == (["wide"], [])
    for server in all_of(pool):
        info = server.existing["wide"]
        assert info.id == row.id
        assert [member.server for member in info.members] == [member.root_uuid for member in row.members]
    spaces = {space.name: (space.free_bytes, space.homes, space.reservations) for space in pool.servers.spaces()}
    home = row.server or "ssd1"
    assert spaces == {name: (226 * MIB, int(name == home), 1) for name in SERVERS}
    assert [name for name, _, _ in pool.own.directory] == ["wide"]
    assert pool.reservations.destroy("wide", force=False, by=OWNER)
    assert names_on(pool) == [[], [], []]
    assert pool.database.reservations() == []


def test_whoever_asks_again_gets_the_same(pool: Pool) -> None:
    row = create(pool)
    assert create(pool) == row
    assert create(pool, servers=0) == row
    assert create(pool, size=90 * MIB - 5) == row
    with pytest.raises(AlreadyExistsError, match="it lies on 3 servers, not on 2 servers"):
        create(pool, servers=2)
    with pytest.raises(AlreadyExistsError, match="for streams, not 60"):
        create(pool, size=60 * MIB)
    pool.reservations.create(request("alone", MIB))
    with pytest.raises(AlreadyExistsError, match="it lies on 1 server, not on 3 servers"):
        create(pool, "alone", MIB)
    assert [server.created for server in all_of(pool)].count(2) == 1


def test_of_anothers_reservation_only_the_name_is_told(pool: Pool) -> None:
    create(pool)
    other = replace(request("wide", 90 * MIB), owner_uid=8)
    for servers in (0, 2, 3):
        with pytest.raises(AlreadyExistsError, match="taken by a reservation of another user"):
            pool.reservations.create(other, servers=servers)


def test_on_names_all_servers_that_are_meant_and_a_number_chooses_of_them(pool: Pool) -> None:
    assert sorted(create(pool, "both", servers=0, reach=Reach(("ssd2", "ssd3"))).servers) == ["ssd2", "ssd3"]
    one = create(pool, "one", servers=1, reach=Reach(("ssd1", "ssd2")))
    assert (one.members, one.server) == ((), "")
    with pytest.raises(InvalidArgumentError, match="4 servers are asked for, and there are 3"):
        create(pool, "four", servers=4)
    with pytest.raises(InvalidArgumentError, match="3 servers are asked for, and --on names 2"):
        create(pool, "three", servers=3, reach=Reach(("ssd1", "ssd2")))


def test_each_server_gives_as_much_as_servers_want_at_least(pool: Pool) -> None:
    row = create(pool, size=MIB)
    assert [member.size_bytes for member in row.members] == [8 * MIB] * 3
    assert row.capacity_bytes == 24 * MIB
    assert create(pool, size=MIB) == row


def test_a_server_without_room_undoes_what_the_others_made(pool: Pool) -> None:
    # It takes more than it has told.
    pool.named("ssd3").pool_bytes = 5 * MIB
    pool.named("ssd3").server = lambda: replace(PoolServer.server(pool.named("ssd2")), uuid="ssd3")  # type: ignore[method-assign]
    with pytest.raises(FullError, match="the pool is full"):
        create(pool)
    assert names_on(pool) == [[], [], []]
    assert pool.database.reservations() == []


def test_what_is_undone_while_a_server_is_away_goes_when_it_is_back(pool: Pool) -> None:
    full, gone = pool.named("ssd3"), pool.named("ssd2")
    full.pool_bytes = 5 * MIB
    told = replace(PoolServer.server(gone), uuid="ssd3")
    full.server = lambda: told  # type: ignore[method-assign]
    make = gone.create

    def make_and_go(*arguments: Any, **options: Any) -> Any:
        info = make(*arguments, **options)
        gone.away = True
        return info

    gone.create = make_and_go  # type: ignore[method-assign]
    with pytest.raises((FullError, DisconnectedError)):
        create(pool)
    row = pool.database.reservation("wide")
    assert row is not None
    assert list(gone.existing) == ["wide"]
    gone.away = False
    pool.reservations.reconcile_server("ssd2")
    assert names_on(pool) == [[], [], []]
    assert pool.database.reservations() == []


@pytest.mark.parametrize("victim", SERVERS)
@pytest.mark.parametrize("after", [False, True])
def test_a_manager_that_dies_amid_making_it_leaves_what_the_next_one_completes(
    pool: Pool, victim: str, *, after: bool
) -> None:
    server = at(pool, victim)
    server.crash_in, server.crash_after = 0, after
    with pytest.raises(Crashed):
        create(pool)
    restart(pool)
    row = pool.database.reservation("wide")
    assert row is not None
    assert row.state is ReservationState.PRESENT
    assert names_on(pool) == [["wide"]] * 3


@pytest.mark.parametrize("victim", SERVERS)
@pytest.mark.parametrize("after", [False, True])
def test_a_manager_that_dies_amid_ending_it_leaves_what_the_next_one_ends(
    pool: Pool, victim: str, *, after: bool
) -> None:
    create(pool)
    server = at(pool, victim)
    server.crash_in, server.crash_after = 0, after
    with pytest.raises(Crashed):
        pool.reservations.destroy("wide", force=False, by=OWNER)
    restart(pool)
    assert names_on(pool) == [[], [], []]
    assert pool.database.reservations() == []


def test_one_that_ends_while_a_member_is_away_ends_there_when_it_is_back(pool: Pool) -> None:
    row = create(pool)
    member = next(server for server in row.servers[1:] if server)
    at(pool, member).away = True
    pool.servers.look_at(member)
    assert pool.reservations.destroy("wide", force=False, by=OWNER)
    left = pool.database.reservation("wide")
    assert left is not None
    assert left.state is ReservationState.DESTROYING
    assert pool.own.directory == []
    with pytest.raises(BusyError, match="is being destroyed"):
        create(pool)
    (note,) = [found for found in pool.reservations.findings() if found.where == "reservation wide"]
    assert (note.severity, f"finished when {member} is back" in note.what) == (Severity.NOTE, True)
    restart(pool)
    assert pool.database.reservation("wide") is not None
    at(pool, member).away = False
    pool.servers.look_at(member)
    pool.reservations.reconcile_server(member)
    assert names_on(pool) == [[], [], []]
    assert pool.database.reservations() == []
    create(pool)


def test_one_whose_home_is_away_is_not_ended_elsewhere(pool: Pool) -> None:
    row = create(pool)
    at(pool, row.server).away = True
    with pytest.raises(DisconnectedError, match="reservation wide is destroyed when that server is back"):
        pool.reservations.destroy("wide", force=False, by=OWNER)
    assert sum(names == ["wide"] for names in names_on(pool)) == 3
    at(pool, row.server).away = False
    for server in row.servers:
        pool.reservations.reconcile_server(server)
    assert names_on(pool) == [[], [], []]


def test_a_server_that_lost_a_member_call_is_asked_again_as_soon_as_it_answers(pool: Pool) -> None:
    row = create(pool)
    member = row.servers[1]
    at(pool, member).away = True
    pool.reservations.destroy("wide", force=False, by=OWNER)
    assert pool.servers.is_unfinished(member)
    assert not pool.servers.is_unfinished(member)


def test_a_share_of_no_reservation_is_destroyed_once_its_home_says_so(pool: Pool) -> None:
    row = create(pool)
    home, member = row.server, row.servers[1]
    pool.database.forget_reservation("wide")
    # Whether the home has it is not known.
    at(pool, home).away = True
    pool.servers.look_at(home)
    pool.reservations.reconcile_server(member)
    assert list(at(pool, member).existing) == ["wide"]
    # It has: it is the manager's database that lost it.
    at(pool, home).away = False
    pool.servers.look_at(home)
    pool.reservations.reconcile_server(member)
    known = pool.database.reservation("wide")
    assert known is not None
    assert (known.id, known.members) == (row.id, row.members)
    # It has not.
    pool.database.forget_reservation("wide")
    del at(pool, home).existing["wide"]
    for server in row.servers[1:]:
        pool.reservations.reconcile_server(server)
    assert names_on(pool) == [[], [], []]


def test_shares_of_one_whose_home_lost_it_are_destroyed(pool: Pool) -> None:
    row = create(pool)
    del at(pool, row.server).existing["wide"]
    for server in row.servers:
        pool.reservations.reconcile_server(server)
    assert names_on(pool) == [[], [], []]
    lost = pool.database.reservation("wide")
    assert lost is not None
    assert lost.state is ReservationState.LOST
    # It is created again, empty.
    assert create(pool).state is ReservationState.PRESENT
    assert names_on(pool) == [["wide"]] * 3


def test_a_stale_share_of_an_older_one_of_that_name_is_destroyed(pool: Pool) -> None:
    old = create(pool, servers=2, reach=Reach(("ssd1", "ssd2")))
    member = old.servers[1]
    share = at(pool, member).existing["wide"]
    pool.reservations.destroy("wide", force=False, by=OWNER)
    new = pool.reservations.create(request("wide", MIB), reach=Reach(("ssd3",)))
    at(pool, member).existing["wide"] = share
    pool.reservations.reconcile_server(member)
    assert not at(pool, member).existing
    assert pool.named("ssd3").existing["wide"].id == new.id


def test_with_a_lost_home_it_is_gone_and_its_shares_go(pool: Pool) -> None:
    row = create(pool, servers=2, reach=Reach(("ssd2", "ssd3")))
    away = row.servers[1]
    for server in row.servers:
        at(pool, server).away = True
        pool.servers.look_at(server)
    assert pool.reservations.give_up_server(row.server) == GivenUp(row.server, ("wide",), ())
    # The member has to hear of it yet.
    at(pool, away).away = False
    pool.servers.look_at(away)
    pool.reservations.reconcile_server(away)
    assert not at(pool, away).existing
    assert pool.database.reservations() == []


def test_with_a_lost_member_it_stays_and_says_so(pool: Pool) -> None:
    row = create(pool)
    member = next(server for server in row.servers[1:] if server)
    at(pool, member).away = True
    assert pool.reservations.give_up_server(member) == GivenUp(member, (), ("wide",))
    known = pool.database.reservation("wide")
    assert known is not None
    assert [one.server for one in known.members if one.lost] == [member]
    (problem,) = [found for found in pool.reservations.findings() if found.where == "reservation wide"]
    assert problem.severity is Severity.PROBLEM
    assert f"what lay on {member} is lost" in problem.what
    # It is back with what it had.
    at(pool, member).away = False
    pool.reservations.take_server(member, ADDRESSES[member])
    assert pool.database.reservation("wide") == row
    at(pool, member).away = True
    pool.reservations.give_up_server(member)
    assert pool.reservations.destroy("wide", force=False, by=OWNER)
    assert pool.database.reservations() == []


def test_why_names_the_servers_that_are_not_there(pool: Pool) -> None:
    row = create(pool)
    why = Why(pool.database)
    why.away_since = pool.servers.away_since
    assert [answer.subject for answer in why.tell("wide", OWNER)] == ["reservation wide"]
    member = next(server for server in row.servers[1:] if server)
    at(pool, member).away = True
    pool.servers.look_at(member)
    _, answer = why.tell("wide", OWNER)
    assert (answer.subject, answer.state) == (f"reservation wide on {member}", "away")
    assert answer.since_ns
    assert "steps that have a part there are unavailable" in answer.waits_for
    assert f"forebay servers forget {member} --lost" in answer.ends
    pool.reservations.give_up_server(member)
    _, answer = why.tell("wide", OWNER)
    assert (answer.subject, answer.state, answer.since_ns) == (f"reservation wide on {member}", "lost", None)


def test_why_says_that_nothing_goes_without_the_home(pool: Pool) -> None:
    row = create(pool, servers=2, reach=Reach(("ssd2", "ssd3")))
    why = Why(pool.database)
    why.away_since = pool.servers.away_since
    at(pool, row.server).away = True
    pool.servers.look_at(row.server)
    _, answer = why.tell("wide", OWNER)
    assert "nothing of the reservation can be used without its home" in answer.waits_for


def test_a_server_that_lost_its_share_is_told_of(pool: Pool) -> None:
    row = create(pool)
    del at(pool, row.servers[1]).existing["wide"]
    pool.reservations.reconcile_server(row.servers[1])
    found = [finding.what for finding in pool.reservations.findings() if finding.where == "reservation wide"]
    assert len(found) == 1
    assert "is lost" in found[0]


def test_a_database_that_was_lost_learns_of_all_as_servers_join_again(pool: Pool, tmp_path: Path) -> None:
    row = create(pool, servers=2, reach=Reach(("ssd2", "ssd3")))
    for order in (row.servers, row.servers[::-1]):
        database = Database(tmp_path / f"{uuid.uuid4().hex}.sqlite")
        fresh = Pool(database)
        fresh.own, fresh.at = pool.own, pool.at
        for server in order:
            fresh.reservations.take_server(server, ADDRESSES[server])
        for server in order:
            fresh.reservations.reconcile_server(server)
        assert names_on(fresh) == [[], ["wide"], ["wide"]]
        known = database.reservation("wide")
        assert known is not None
        assert (known.id, known.members) == (row.id, row.members)
        database.close()


def test_a_share_holds_its_server(pool: Pool) -> None:
    row = create(pool, servers=2, reach=Reach(("ssd2", "ssd3")))
    assert pool.servers.retire(row.servers[1]) == ["wide"]
    assert not pool.servers.leave_if_retired(row.servers[1])
    pool.reservations.destroy("wide", force=False, by=OWNER)
    assert pool.servers.leave_if_retired(row.servers[1])


def test_a_server_is_drained_for_shares_too(pool: Pool) -> None:
    pool.servers.drains.drain("ssd3", "disk", 0)
    with pytest.raises(FullError, match="ssd3 is drained"):
        create(pool)
    assert sorted(create(pool, servers=2).servers) == ["", "ssd2"]


def test_what_is_held_on_a_server_is_its_share(pool: Pool) -> None:
    row = create(pool)
    pool.reservations.create(request("alone", 10 * MIB), reach=Reach(("ssd1",)))
    assert sum(held.size_bytes * held.count for held in pool.database.held()) == 100 * MIB
    assert sorted(held.size_bytes for held in pool.database.held(server="")) == [10 * MIB, 30 * MIB]
    assert pool.database.held(server="ssd2") == [Held("", "", row.owner_uid, 30 * MIB)]
    pools = pool.reservations.pools
    own = Reach((server_name(),))
    assert pools.has_room(request("job", 216 * MIB), [], own)
    assert not pools.has_room(request("job", 217 * MIB), [], own)


@pytest.fixture
def striped(pool: Pool) -> Pool:
    """As the configuration says it of the pool."""
    settings = PoolSettings({"": PoolOfServers("default", granularity_bytes=16 * MIB, is_striped=True)})
    pool.reservations = Reservations(pool.database, pool.servers, settings)
    return pool


@pytest.mark.parametrize(("units", "servers"), [(0.5, 1), (1, 1), (1.5, 1), (2, 2), (3, 3), (9, 3)])
def test_a_striped_pool_takes_as_many_servers_as_there_are_units(striped: Pool, units: float, servers: int) -> None:
    row = create(striped, size=round(units * 16 * MIB), servers=0)
    assert len(row.servers) == servers
    assert create(striped, size=round(units * 16 * MIB), servers=0) == row


def test_in_a_striped_pool_a_number_and_names_count_first(striped: Pool) -> None:
    assert len(create(striped, "two", servers=2).servers) == 2
    assert create(striped, "named", servers=0, reach=Reach(("ssd2",))).servers == ("ssd2",)


def test_a_striped_pool_takes_the_servers_that_have_room(striped: Pool) -> None:
    striped.servers.drains.drain("ssd3", "disk", 0)
    assert sorted(create(striped, servers=0).servers) == ["", "ssd2"]
    create(striped, "full", 200 * MIB, reach=Reach(("ssd2",)), servers=1)
    assert create(striped, "alone", servers=0).servers == ("",)


def test_a_job_is_striped_although_its_files_may_lie_on_one_server_alone(striped: Pool) -> None:
    own = Reach(home_on=("ssd1",))
    job = replace(request("job", 48 * MIB), files_bytes=160 * MIB)
    pools = striped.reservations.pools
    assert pools.has_room(job, [], own)
    striped.reservations.create(job, queues=False, reach=own)
    row = striped.reservations.find("job")
    assert row.servers == ("", *sorted(row.servers[1:]))
    assert sorted(row.servers) == ["", "ssd2", "ssd3"]
    assert sum(held.size_bytes for held in striped.database.held(server="")) == 176 * MIB
    # Asked again, as a setup is that was not answered.
    assert striped.reservations.create(job, queues=False, reach=own).name == "job"
    assert not pools.has_room(replace(job, name="job2"), [], own)
    assert pools.has_room(replace(job, name="job2"), [], Reach())
    assert not pools.has_room(replace(job, name="job3"), [replace(job, name=f"job{n}") for n in (4, 5)], Reach())


def test_a_job_that_comes_again_waits_for_the_server_that_has_some_of_its_last_run(pool: Pool) -> None:
    create(pool, "job1")
    pool.named("ssd2").away = True
    pool.servers.look_at("ssd2")
    assert pool.reservations.destroy("job1", force=True, by=None)
    with pytest.raises(BusyError, match="being destroyed"):
        create(pool, "job1")
    pools = pool.reservations.pools
    assert pools.has_room(request("job2", MIB), [], Reach())
    assert not pools.has_room(request("job1", MIB), [], Reach())
    pool.named("ssd2").away = False
    pool.servers.look_at("ssd2")
    pool.reservations.reconcile_server("ssd2")
    assert pools.has_room(request("job1", MIB), [], Reach())


def test_a_striped_setup_that_was_begun_has_room_once_its_servers_are_there(striped: Pool) -> None:
    job = request("job", 600 * MIB)  # more than any server has, and than is left beside it
    striped.named("ssd3").crash_in = 0
    with pytest.raises((Crashed, DisconnectedError)):
        striped.reservations.create(job, queues=False)
    striped.named("ssd3").crash_in = None
    known = striped.reservations.find("job")
    assert (known.state, len(known.servers)) == (ReservationState.CREATING, 3)
    pools = striped.reservations.pools
    striped.named("ssd3").away = True
    striped.servers.look_at("ssd3")
    assert not pools.has_room(job, [], Reach())
    striped.named("ssd3").away = False
    striped.servers.look_at("ssd3")
    assert pools.has_room(job, [], Reach())
    assert striped.reservations.create(job, queues=False).name == "job"


def test_files_grow_on_the_home_as_far_as_it_has_room(pool: Pool) -> None:
    row = create(pool)
    free = 226 * MIB
    pool.reservations.pools.check_growth(row, free)
    with pytest.raises(NoSpaceError):
        pool.reservations.pools.check_growth(row, free + MIB)


def test_members_are_written_down_with_their_row(pool: Pool) -> None:
    members = (MemberRow("", "u1", 5), MemberRow("ssd2", "u2", 6, lost=True))
    row = ReservationRow("r", 11, True, 7, 7, members=members)
    pool.database.put_reservation(row)
    pool.database.put_reservation(ReservationRow("q", 1, True, 7, 7))
    assert pool.database.reservation("r") == row
    assert [len(known.members) for known in pool.database.reservations()] == [0, 2]
    pool.database.put_reservation(replace(row, members=members[:1]))
    assert pool.database.reservation("r") == replace(row, members=members[:1])
    pool.database.forget_reservation("r")
    assert pool.database.reservation("r") is None
    pool.database.put_reservation(replace(row, members=()))
    assert pool.database.reservation("r") == replace(row, members=())


@pytest.mark.parametrize("files_bytes", [0, 1, 40])
def test_shares_have_the_least_that_each_server_gives_and_the_home_its_files(files_bytes: int) -> None:
    servers = [ServerSpace(name, 100, 100 - number) for number, name in enumerate("abc")]
    wanted = PlacementRequest(30 + files_bytes, files_bytes, servers=3, share_bytes_min=8)
    placed = place(servers, wanted, 1)
    assert placed is not None
    streams = [share.size_bytes - share.files_bytes for share in placed.shares]
    assert sum(streams) == dealt_bytes(wanted, 1) == 30
    assert min(streams) >= 8
    assert [share.files_bytes for share in placed.shares if share.server == placed.home] == [files_bytes]
    small = replace(wanted, size_bytes=1 + files_bytes)
    assert dealt_bytes(small, 1) == 24
    full = [replace(servers[0], free_bytes=7), *servers[1:]]
    assert place(full, wanted, 1) is None
