# SPDX-License-Identifier: Apache-2.0
"""The servers of a pool as the manager knows them, against servers that do as they are told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from forebay.admin import Admin
from forebay.errors import (
    AlreadyExistsError,
    DisconnectedError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
)
from forebay.manager.records import GivenUp, ReservationRow
from forebay.records import ServerInfo
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.pools.admission import FullError
from forebay.workflows.manager.core.pools.placement import Reach
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.http.peer import asking_peer
from tests.support.time_limits import seconds
from tests.unit.workflows.test_manager_reservations import OWNER, FakeServer, request

ADDRESSES = {"ssd2": "node2:7460", "ssd3": "node3:7460"}


class PoolServer(FakeServer):
    """One of several, that hears where reservations lie."""

    def __init__(self, uuid: str) -> None:
        super().__init__()
        self.uuid = uuid
        self.directory: list[tuple[str, str, str]] = []
        self.servers: list[tuple[str, str, str]] = []
        self.met: threading.Barrier | None = None  # of servers that answer when all of them have been asked

    def _meet(self) -> None:
        if self.met is not None:
            self.met.wait(seconds(30))

    def server(self) -> ServerInfo:
        self._check()
        self._meet()
        info = super().server()
        told = {"reserved_bytes": self.taken_bytes(), "reservations": len(self.existing)}
        return ServerInfo(**(info.as_dict() | told))

    def tell_pool_directory(
        self, manager: str, homes: list[tuple[str, str, str]], servers: list[tuple[str, str, str]]
    ) -> None:
        self._check()
        self._meet()
        self.directory, self.servers = homes, servers


class Pool:
    """A manager with servers that can be taken away."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.own = PoolServer("own")
        self.at = {address: PoolServer(name) for name, address in ADDRESSES.items()}
        self.servers = Servers(database, self.connect, "node1:7460")
        self.reservations = Reservations(database, self.servers)

    def connect(self, address: str) -> Admin:
        server = self.at[address] if address else self.own
        if server.away:
            raise DisconnectedError("nobody answers", address)
        return cast(Admin, server)

    def named(self, name: str) -> PoolServer:
        return self.at[ADDRESSES[name]]


@pytest.fixture(autouse=True)
def own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `forebay up --name` sets."""
    monkeypatch.setenv("FOREBAY_SERVER_NAME", "ssd1")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    database = Database(tmp_path / "manager.sqlite")
    made = Pool(database)
    for name, address in ADDRESSES.items():
        made.reservations.take_server(name, address)
    yield made
    database.close()


def test_each_reservation_lies_on_the_emptiest_and_all_servers_hear_of_it(pool: Pool) -> None:
    for name in ("a", "b", "c"):
        pool.reservations.create(request(name))
    assert [sorted(server.existing) for server in (pool.own, *pool.at.values())] == [["a"], ["b"], ["c"]]
    for server in (pool.own, *pool.at.values()):
        assert [(name, place) for name, _, place in server.directory] == [
            ("a", "node1:7460"),
            ("b", "node2:7460"),
            ("c", "node3:7460"),
        ]
    assert pool.reservations.destroy("b", force=False, by=OWNER)
    assert [name for name, _, _ in pool.own.directory] == ["a", "c"]
    addresses = [("own", "ssd1", "node1:7460"), ("ssd2", "ssd2", "node2:7460"), ("ssd3", "ssd3", "node3:7460")]
    assert [server.servers for server in (pool.own, *pool.at.values())] == [addresses] * 3


def test_another_server_at_its_address_is_not_taken_for_it(pool: Pool) -> None:
    """Whoever listens where a server is down may pass the manager's words on to another one."""
    pool.reservations.create(request("kept"), reach=Reach(("ssd2",)))
    pool.servers.link("ssd2").close()
    there = pool.at[ADDRESSES["ssd2"]]
    pool.at[ADDRESSES["ssd2"]] = pool.named("ssd3")
    assert pool.servers.look_at("ssd2") is None
    with pytest.raises(DisconnectedError, match="another one answers"):
        pool.reservations.destroy("kept", force=False, by=OWNER)
    pool.reservations.reconcile()
    pool.at[ADDRESSES["ssd2"]] = there
    assert pool.servers.look_at("ssd2") is not None
    assert "kept" in there.existing


def test_servers_are_asked_and_told_side_by_side(pool: Pool) -> None:
    met = threading.Barrier(len(ADDRESSES))
    for server in pool.at.values():
        server.met = met
    assert [space.name for space in pool.servers.spaces()] == ["ssd1", "ssd2", "ssd3"]
    pool.servers.tell_directory(ADDRESSES)
    assert not met.broken


def test_one_that_is_away_gets_nothing_and_keeps_what_it_has(pool: Pool) -> None:
    pool.reservations.create(request("kept"), reach=Reach(("ssd2",)))
    pool.named("ssd2").away = True
    assert pool.servers.look_at("ssd2") is None
    with pytest.raises(FullError, match="ssd2 is away since"):
        pool.reservations.create(request("more"), reach=Reach(("ssd2",)))
    pool.reservations.create(request("other"))
    pool.reservations.reconcile()
    assert [row.server for row in pool.database.reservations()] == ["ssd2", ""]
    with pytest.raises(DisconnectedError, match="server ssd2 cannot be reached"):
        pool.reservations.destroy("kept", force=False, by=OWNER)
    pool.named("ssd2").away = False
    assert pool.servers.look_at("ssd2") is not None
    pool.reservations.reconcile_server("ssd2")
    assert not pool.named("ssd2").existing
    assert [row.name for row in pool.database.reservations()] == ["other"]


def test_one_whose_files_are_not_let_go_of_keeps_no_other_of_its_server_from_going(pool: Pool) -> None:
    for name in ("a", "b"):
        pool.reservations.create(request(name), reach=Reach(("ssd2",)))
    pool.named("ssd2").away = True
    for name in ("a", "b"):
        with pytest.raises(DisconnectedError):
            pool.reservations.destroy(name, force=False, by=OWNER)
    pool.named("ssd2").away = False
    agents = ["away"]

    def let_go(row: ReservationRow) -> None:
        if row.name == "a" and agents:
            raise DisconnectedError("no agent runs on server ssd2")

    pool.reservations.before_destroy(let_go)
    with pytest.raises(DisconnectedError, match="no agent"):
        pool.reservations.reconcile_server("ssd2")
    assert set(pool.named("ssd2").existing) == {"a"}
    agents.clear()
    pool.reservations.reconcile_server("ssd2")
    assert not pool.named("ssd2").existing


def test_what_all_have_is_told_with_those_that_are_away(pool: Pool) -> None:
    for name, server in (("c", "ssd1"), ("b", "ssd2"), ("a", "ssd3")):
        pool.reservations.create(request(name), reach=Reach((server,)))
    there, away = pool.servers.usable_reservations(Peer(0, 0))
    assert ([info.name for info in there], away) == (["a", "b", "c"], [])
    pool.named("ssd2").away = True
    for _ in range(2):  # found out, and known
        there, away = pool.servers.usable_reservations(Peer(0, 0))
        assert ([info.name for info in there], away) == (["a", "c"], ["ssd2"])
    # Somebody made another of this name there, without the manager.
    pool.named("ssd3").existing["c"] = pool.own.existing["c"]
    there, away = pool.servers.usable_reservations(Peer(0, 0))
    assert [info.name for info in there] == ["a", "c"]


def test_a_users_list_counts_no_files_of_others(pool: Pool) -> None:
    stranger = Peer(OWNER.uid + 1, OWNER.gid + 1)
    for name, server in (("b", "ssd2"), ("a", "ssd3"), ("c", "ssd3")):
        pool.reservations.create(request(name), reach=Reach((server,)))
    mine = pool.named("ssd3").existing["a"]
    pool.named("ssd3").existing["a"] = replace(mine, owner_uid=stranger.uid)
    there, away = pool.servers.usable_reservations(stranger)
    assert ([info.name for info in there], away) == (["a"], [])
    assert pool.named("ssd2").counted == []
    assert pool.named("ssd3").counted == [("a", stranger.uid)]


@pytest.mark.parametrize("force", [False, True])
def test_going_down_destroys_what_lies_on_one_that_is_away_when_it_is_back(pool: Pool, *, force: bool) -> None:
    for name, server in (("a", "ssd1"), ("b", "ssd2"), ("kept", "ssd2")):
        pool.reservations.create(request(name, persistent=name == "kept"), reach=Reach((server,)))
    pool.named("ssd2").away = True
    pool.servers.look_at("ssd2")
    assert pool.reservations.destroy_non_persistent(force=force) == (["a"], ["b"])
    pool.named("ssd2").away = False
    pool.servers.look_at("ssd2")
    pool.reservations.reconcile_server("ssd2")
    assert set(pool.named("ssd2").existing) == {"kept"}
    assert [row.name for row in pool.database.reservations()] == ["kept"]


def test_jobs_of_a_scheduler_have_the_room_of_servers_on_which_they_may_lie(pool: Pool) -> None:
    pools = pool.reservations.pools
    pool.reservations.create(request("elsewhere", 90), reach=Reach(("ssd2",)))
    own = Reach(home_on=("ssd1",))
    assert pools.has_room(request("job", 90), [], own)
    pool.reservations.create(request("job1", 60), queues=False, reach=own)
    assert pool.reservations.find("job1").server == ""
    # The others would have it, and a job's files would be reached on one node only.
    assert not pools.has_room(request("job2", 60), [], own)
    with pytest.raises(FullError, match="none of ssd1 has room"):
        pool.reservations.create(request("job2", 60), queues=False, reach=own)
    # Where nodes see files of all servers, of which one lacks an agent now.
    assert pools.has_room(request("job2", 60), [], Reach())
    without = {"ssd3": "no agent runs on server ssd3"}
    assert not pools.has_room(request("job2", 60), [], Reach(without=without))
    with pytest.raises(FullError, match="has 50 B of 300 B free"):
        pool.reservations.create(request("job2", 60), queues=False, reach=Reach(without=without))
    pool.reservations.create(request("job2", 60), queues=False)
    assert pool.reservations.find("job2").server == "ssd3"


def test_room_that_was_promised_is_not_promised_again(pool: Pool) -> None:
    """Each of the three servers has room for one more of them."""
    pools = pool.reservations.pools
    promised = [request(f"job{number}", 60) for number in range(3)]
    assert pools.has_room(request("job", 60), promised[:2], Reach())
    assert not pools.has_room(request("job", 60), promised, Reach())


def test_a_setup_that_was_begun_waits_for_its_own_server(pool: Pool) -> None:
    pools = pool.reservations.pools
    pool.reservations.create(request("job", 90), queues=False, reach=Reach(("ssd2",)))
    assert pools.has_room(request("job", 90), [], Reach())
    assert not pools.has_room(request("job", 90), [], Reach(without={"ssd2": "no agent runs on server ssd2"}))
    # One that was begun goes on where it is, also where nothing new would come to lie.
    without = Reach(without={"ssd2": "no agent"})
    assert pool.reservations.create(request("job", 90), queues=False, reach=without).name == "job"
    pool.named("ssd2").away = True
    assert not pools.has_room(request("job", 90), [], Reach())


def test_a_name_is_taken_in_the_whole_pool(pool: Pool) -> None:
    pool.reservations.create(request("a"), reach=Reach(("ssd3",)))
    with pytest.raises(AlreadyExistsError):
        pool.reservations.create(request("a", 50))
    assert pool.reservations.create(request("a")).name == "a"
    assert not pool.own.existing


def test_one_with_reservations_joins_with_them_if_their_names_are_free(tmp_path: Path) -> None:
    database = Database(tmp_path / "manager.sqlite")
    pool = Pool(database)
    make = {"persistent": True, "owner_uid": 7, "owner_gid": 7}
    pool.named("ssd2").create("theirs", 10, **make)
    pool.named("ssd3").create("taken", 10, **make)
    pool.reservations.create(request("taken"))
    pool.reservations.take_server("ssd2", ADDRESSES["ssd2"])
    assert pool.reservations.find("theirs").server == "ssd2"
    with pytest.raises(AlreadyExistsError, match="a reservation taken is in the pool already"):
        pool.reservations.take_server("ssd3", ADDRESSES["ssd3"])
    database.close()


@pytest.mark.parametrize(("name", "address"), [("ssd2", "node3:7460"), ("ssd9", "node2:7460"), ("ssd9", "node3:7460")])
def test_a_name_a_root_and_an_address_stay_those_of_one_server(pool: Pool, name: str, address: str) -> None:
    with pytest.raises(AlreadyExistsError, match="has this name, root or address"):
        pool.servers.join(name, address)


@pytest.mark.parametrize("name", ["", "a b", "7", "x" * 65, "/etc"])
def test_a_server_has_a_name(pool: Pool, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="a server of a pool has a name of its own"):
        pool.servers.join(name, ADDRESSES["ssd2"])
    with pytest.raises(InvalidArgumentError, match="a server of a pool has a name of its own"):
        pool.servers.join(server_name(), ADDRESSES["ssd2"])


def test_joining_again_changes_nothing(pool: Pool) -> None:
    before = pool.servers.others()
    pool.reservations.take_server("ssd2", ADDRESSES["ssd2"])
    assert pool.servers.others() == before


def test_a_retired_server_leaves_with_its_last_reservation(pool: Pool) -> None:
    pool.reservations.create(request("last"), reach=Reach(("ssd2",)))
    assert pool.servers.retire("ssd2") == ["last"]
    assert not pool.servers.leave_if_retired("ssd2")
    # An error that says "not now" would let `forebay create --wait` wait for ever.
    with pytest.raises(InvalidArgumentError, match="ssd2 is retired and leaves the pool; name others: there are "):
        pool.reservations.create(request("more"), reach=Reach(("ssd2",)))
    with pytest.raises(InvalidArgumentError, match="3 servers are asked for, and there are 2: the others are retired"):
        pool.reservations.create(request("more"), servers=3)
    with pytest.raises(RefusedError, match="ssd2 is retired: it takes nothing new"):
        pool.servers.check_stays("ssd2")
    pool.servers.check_stays("ssd3")
    pool.reservations.destroy("last", force=False, by=OWNER)
    assert pool.servers.leave_if_retired("ssd2")
    assert pool.servers.names() == ["", "ssd3"]
    with pytest.raises(NotFoundError, match="there is no server ssd2"):
        pool.servers.key_of("ssd2")


def test_only_a_server_that_does_not_answer_is_given_up(pool: Pool) -> None:
    pool.reservations.create(request("lost"), reach=Reach(("ssd2",)))
    with pytest.raises(RefusedError, match="ssd2 answers"):
        pool.reservations.give_up_server("ssd2")
    with pytest.raises(RefusedError, match="cannot be given up"):
        pool.reservations.give_up_server("")
    pool.named("ssd2").away = True
    assert pool.reservations.give_up_server("ssd2") == GivenUp("ssd2", ("lost",), ())
    assert pool.servers.names() == ["", "ssd3"]
    # The name is free again.
    pool.reservations.create(request("lost"), reach=Reach(("ssd3",)))


def test_a_manager_without_a_pool_takes_no_server(tmp_path: Path) -> None:
    database = Database(tmp_path / "manager.sqlite")
    alone = Servers(database, lambda _address: cast(Admin, PoolServer("own")))
    with pytest.raises(RefusedError, match="no pool of servers"):
        alone.join("ssd2", ADDRESSES["ssd2"])
    database.close()


def test_the_server_alone_asks_in_the_name_of_others() -> None:
    header = [(b"forebay-for", b"1000 1001 4,5")]
    assert asking_peer(Peer(0, 0), header) == Peer(1000, 1001, frozenset({4, 5, 1001}))
    assert asking_peer(Peer(0, 0), [(b"forebay-for", b"1000 1001")]) == Peer(1000, 1001, frozenset({1001}))
    assert asking_peer(Peer(12345, 1), []) == Peer(12345, 1)
    with pytest.raises(PermissionDeniedError, match="only the server asks in another user's name"):
        asking_peer(Peer(12345, 1), header)
    for spoilt in (b"", b"1000", b"-1 0", b"root 0", b"1 2 x", b"99999999999 1"):
        with pytest.raises(InvalidArgumentError):
            asking_peer(Peer(0, 0), [(b"forebay-for", spoilt)])
    with pytest.raises(InvalidArgumentError):
        asking_peer(Peer(0, 0), header * 2)
