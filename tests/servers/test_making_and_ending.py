# SPDX-License-Identifier: Apache-2.0
"""A reservation over several servers is made on all of them or on none, and ends on all, whoever dies or is away."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.reservation_of_pool import (
    NAME,
    NODES,
    is_empty,
    leave_nothing,
    listed,
    mortal_manager,
    on_disk,
    root,
)
from tests.support.cluster import CommandLineCluster
from tests.support.load import until
from tests.support.pool_nodes import COMPUTES, asked, refused, servers

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("members")]

MIB = 1 << 20
CAPACITY_BYTES = 256 * MIB

#: What the servers of two nodes say of its streams, asked themselves.
ASK_SERVER = f"""
import forebay
with forebay.Admin(server="") as admin:
    try:
        print(admin.streams("{NAME}"))
    except forebay.RefusedError as error:
        print(error)
"""


#: Steps 1 and 3 have a part on each server, the others lie on the home.
WRITE = f"""
import forebay, numpy
with forebay.open("{NAME}/flow", "w") as stream:
    for number in range(4):
        with stream.step() as step:
            step["n"] = number
            if number % 2:
                step["T"] = numpy.full(4_000_000, float(number))
"""
FOLLOW = f"""
import forebay
with forebay.open("{NAME}/flow") as stream:
    print([(step.number, int(step["n"][()]), step.skipped) for step in stream.follow(timeout=60)])
"""


def create(pool: CommandLineCluster, node: int = COMPUTES, *options: str) -> dict[str, Any]:
    """Over three servers, unless options say otherwise."""
    made = asked(pool, node, "create", NAME, "--capacity", "96MiB", *(options or ("--servers", "3")))
    reservation: dict[str, Any] = made["reservation"]
    return reservation


def members(pool: CommandLineCluster, node: int = COMPUTES) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = asked(pool, node, "show", NAME, "--members")["members"]
    return shown


def member_node(pool: CommandLineCluster) -> int:
    """A node that has a share, but neither the home nor the manager."""
    return next(int(row["server"].removeprefix("node")) for row in members(pool)[1:] if row["server"] != "node1")


@pytest.fixture(autouse=True)
def all_is_as_it_was(pool: CommandLineCluster) -> Iterator[None]:
    """Whatever a test leaves is ended, and the servers have nothing."""
    yield
    leave_nothing(pool)


def test_it_is_made_listed_once_and_ended_from_nodes_without_its_home(pool: CommandLineCluster) -> None:
    made = create(pool)
    assert made["capacity_bytes"] == 96 * MIB
    assert [member["capacity_bytes"] for member in made["members"]] == [32 * MIB] * 3
    for node in (*NODES, COMPUTES):
        assert listed(pool, node) == [NAME]
    for server in servers(pool, COMPUTES).values():
        assert (server["reservations"], server["free_bytes"]) == (1, CAPACITY_BYTES - 32 * MIB)
    # Each has its own segments, which are numbered through.
    rows = members(pool)
    assert sorted(row["server"] for row in rows) == ["node1", "node2", "node3"]
    assert {row["state"] for row in rows} == {"present"}
    first = 0
    for row in rows:
        there = on_disk(pool, int(row["server"].removeprefix("node")))
        assert there == {made["id"]: list(range(first, first + row["segments"]))}
        assert row["segments"] >= 4
        first += row["segments"]
    # Asked again it is the same, and another one of its name is refused.
    assert create(pool, 2)["id"] == made["id"]
    assert "3 servers, not on 2" in refused(pool, 2, "create", NAME, "--capacity", "96MiB", "--servers", "2")
    shown = pool.forebay(1, "show", NAME, "--members")
    assert "node3" in shown
    assert "present" in shown
    assert asked(pool, 3, "destroy", NAME)["existed"]
    for node in (*NODES, COMPUTES):
        assert listed(pool, node) == []
    until(lambda: is_empty(pool), "nothing is left on any server")
    assert {server["free_bytes"] for server in servers(pool, 1).values()} == {CAPACITY_BYTES}


def test_who_asks_a_member_hears_which_server_is_the_home(pool: CommandLineCluster) -> None:
    create(pool)
    home, *others = (row["server"] for row in members(pool))
    said = {name: pool.on(int(name.removeprefix("node")), sys.executable, "-c", ASK_SERVER) for name in (home, *others)}
    assert said[home] == "[]\n"
    for name in others:
        assert f"the reservation's home is server {home}" in said[name]
    # Routed, the same question goes there.
    for node in NODES:
        assert asked(pool, node, "streams", NAME)["streams"] == []


def test_on_names_its_servers_and_its_files_lie_on_the_home(pool: CommandLineCluster) -> None:
    made = create(pool, 1, "--on", "node2,node3", "--files", "16MiB")
    rows = members(pool)
    assert sorted(row["server"] for row in rows) == ["node2", "node3"]
    assert on_disk(pool, 1) == {}
    free = {name: server["free_bytes"] for name, server in servers(pool, 1).items()}
    home = rows[0]["server"]
    assert free[home] == CAPACITY_BYTES - rows[0]["capacity_bytes"] - 16 * MIB
    assert Path(made["files_path"]).is_relative_to(root(pool, int(home.removeprefix("node"))))


def test_what_does_not_fit_on_all_is_made_on_none(pool: CommandLineCluster) -> None:
    assert "the whole pool" in refused(pool, 1, "create", NAME, "--capacity", "900MiB", "--servers", "3")
    assert "4 servers are asked for" in refused(pool, COMPUTES, "create", NAME, "--capacity", "96MiB", "--servers", "4")
    assert is_empty(pool)


def test_servers_and_all_that_they_have_come_back_after_a_restart(pool: CommandLineCluster) -> None:
    made = create(pool)
    before = {node: on_disk(pool, node) for node in NODES}
    for node in (2, 3):
        pool.must("kill", str(node))
        pool.must("heal", str(node))
        until(lambda: servers(pool, 1)[f"node{node}"]["away_since_ns"] is None, "it is back")  # noqa: B023
    assert {node: on_disk(pool, node) for node in NODES} == before
    assert listed(pool, 2) == listed(pool, 3) == [NAME]
    assert {row["state"] for row in members(pool)} == {"present"}
    assert create(pool)["id"] == made["id"]
    problems = [finding for finding in asked(pool, 1, "doctor")["findings"] if finding["severity"] == "problem"]
    assert problems == []


# crash-matrix: creating a reservation over several servers | manager, when all but the home have their share, at `manager.members.created` | it is created when the manager is back
def test_a_manager_killed_before_the_home_is_asked_completes_it_when_it_is_back(pool: CommandLineCluster) -> None:
    mortal_manager(pool, "manager.members.created")
    refused(pool, COMPUTES, "create", NAME, "--capacity", "96MiB", "--servers", "3")
    # The home decides, and it has nothing yet.
    assert sum(bool(on_disk(pool, node)) for node in NODES) == 2
    assert listed(pool, 3) == []
    pool.must("heal", "1")
    until(lambda: listed(pool, COMPUTES) == [NAME], "it is made")
    assert all(on_disk(pool, node) for node in NODES)
    assert len({name for node in NODES for name in on_disk(pool, node)}) == 1


# crash-matrix: creating a reservation over several servers | manager, when all but the home have their share, and one of these servers | it can be destroyed, and nothing is left when that server is back
def test_one_that_was_left_half_made_can_be_ended(pool: CommandLineCluster) -> None:
    mortal_manager(pool, "manager.members.created")
    refused(pool, COMPUTES, "create", NAME, "--capacity", "96MiB", "--servers", "3")
    victim = next(node for node in (2, 3) if on_disk(pool, node))
    pool.must("kill", str(victim))
    pool.must("heal", "1")
    pool.forebay(1, "destroy", NAME)
    pool.must("heal", str(victim))
    until(lambda: is_empty(pool), "nothing is left on any server")
    assert listed(pool, COMPUTES) == []


# crash-matrix: destroying a reservation over several servers | manager, when the home has destroyed it, at `manager.home.destroyed` | it is gone at once, and from the other servers when the manager is back
def test_a_manager_killed_when_the_home_has_ended_it_ends_it_elsewhere_when_it_is_back(
    pool: CommandLineCluster,
) -> None:
    create(pool)
    mortal_manager(pool, "manager.home.destroyed")
    refused(pool, 3, "destroy", NAME)
    assert sum(bool(on_disk(pool, node)) for node in NODES) == 2
    pool.must("heal", "1")
    until(lambda: is_empty(pool), "nothing is left on any server")
    assert listed(pool, COMPUTES) == []
    assert all(finding["severity"] != "problem" for finding in asked(pool, 1, "doctor")["findings"])


# crash-matrix: destroying a reservation over several servers | a server other than the home, when it is destroyed | it is gone at once, and from that server when it is back
def test_a_member_that_is_away_when_it_ends_ends_its_share_when_it_is_back(pool: CommandLineCluster) -> None:
    create(pool)
    victim = member_node(pool)
    pool.must("kill", str(victim))
    until(lambda: servers(pool, 1)[f"node{victim}"]["away_since_ns"] is not None, "it is away")
    assert [row["state"] for row in members(pool) if row["server"] == f"node{victim}"] == ["away"]
    assert asked(pool, COMPUTES, "destroy", NAME)["existed"]
    assert listed(pool, COMPUTES) == []
    assert on_disk(pool, victim)
    assert "is being destroyed" in refused(pool, 1, "create", NAME, "--capacity", "96MiB", "--servers", "2")
    doctor = pool.run("exec", "1", "--", sys.executable, "-m", "forebay", "doctor")
    assert f"which is finished when node{victim} is back" in " ".join(doctor.stdout.split())
    pool.must("heal", str(victim))
    until(lambda: is_empty(pool), "nothing is left on any server")
    # The name is free again.
    create(pool)


def test_a_share_holds_its_server_in_the_pool(pool: CommandLineCluster) -> None:
    create(pool)
    victim = member_node(pool)
    told = asked(pool, COMPUTES, "servers", "retire", f"node{victim}")
    assert told == {"server": f"node{victim}", "reservations": [NAME], "left": False}
    pool.forebay(1, "destroy", NAME)
    until(lambda: f"node{victim}" not in servers(pool, 1), "it has left the pool")
    pool.forebay(victim, "down")
    pool.must("heal", str(victim))
    assert f"node{victim}" in servers(pool, 1)


def test_a_server_that_left_says_that_it_joins_again(pool: CommandLineCluster) -> None:
    asked(pool, COMPUTES, "servers", "retire", "node3")
    until(lambda: "node3" not in servers(pool, 1), "it has left the pool")
    (note,) = asked(pool, 3, "up")["notes"]
    assert "this server has joined the pool as node3; its manager is at " in note
    assert "node3" in servers(pool, 1)
    assert asked(pool, 3, "up")["notes"] == []


def test_a_drained_server_gets_no_share(pool: CommandLineCluster) -> None:
    pool.forebay(1, "drain", "node3", "--reason", "disk")
    try:
        assert "node3 is drained" in refused(pool, 1, "create", NAME, "--capacity", "96MiB", "--servers", "3")
        create(pool, 1, "--servers", "2")
        assert on_disk(pool, 3) == {}
    finally:
        pool.forebay(1, "undrain", "node3")


def test_with_a_member_that_is_given_up_it_stays_and_says_what_it_has_lost(pool: CommandLineCluster) -> None:
    create(pool)
    pool.on(COMPUTES, sys.executable, "-c", WRITE)
    before = ("stage-out", f"{NAME}/flow", str(pool.folder / "before"))
    pool.forebay(COMPUTES, *before)
    victim = member_node(pool)
    pool.must("kill", str(victim))
    until(lambda: servers(pool, 1)[f"node{victim}"]["away_since_ns"] is not None, "it is away")
    told = asked(pool, 1, "servers", "forget", f"node{victim}", "--lost")
    assert told == {"server": f"node{victim}", "lost": [], "damaged": [NAME]}
    assert listed(pool, COMPUTES) == [NAME]
    assert [row["server"] for row in members(pool) if row["state"] == "lost"] == [f"node{victim}"]
    assert f"reservation {NAME} on node{victim}" in [one["subject"] for one in asked(pool, 1, "why", NAME)["answers"]]
    doctor = pool.run("exec", "1", "--", sys.executable, "-m", "forebay", "doctor")
    assert f"what lay on node{victim} is lost" in " ".join(doctor.stdout.split())
    # What can still be read is read by who follows, and nobody waits for the rest.
    assert pool.on(COMPUTES, sys.executable, "-c", FOLLOW).strip() == "[(0, 0, 0), (2, 2, 1)]"
    steps = asked(pool, COMPUTES, "steps", f"{NAME}/flow")
    assert [step["number"] for step in steps["steps"]] == [0, 2]
    assert steps["stream"]["lost"] == [{"first": 1, "last": 1}, {"first": 3, "last": 3}]
    assert "Lost with a server of the reservation: 1, 3" in pool.forebay(COMPUTES, "steps", f"{NAME}/flow")
    out = ("stage-out", f"{NAME}/flow", str(pool.folder / "out"))
    assert "the chosen steps 1, 3 were dropped by retention, or went with a server" in refused(pool, COMPUTES, *out)
    assert "2 were gone (1, 3)" in pool.forebay(COMPUTES, *out, "--accept-gaps")
    # What was staged out before they went is there.
    assert "0 steps staged out, 4 were there already; receipt" in pool.forebay(COMPUTES, *before)
    pool.forebay(1, "destroy", NAME)
    # It comes back after all: the home says that there is no such reservation.
    pool.must("heal", str(victim))
    until(lambda: is_empty(pool), "nothing is left on any server")


def test_with_a_home_that_is_given_up_it_is_gone(pool: CommandLineCluster) -> None:
    create(pool, 1, "--on", "node2,node3")
    home = int(members(pool)[0]["server"].removeprefix("node"))
    pool.must("kill", str(home))
    until(lambda: servers(pool, 1)[f"node{home}"]["away_since_ns"] is not None, "it is away")
    assert asked(pool, 1, "servers", "forget", f"node{home}", "--lost") == {
        "server": f"node{home}",
        "lost": [NAME],
        "damaged": [],
    }
    until(lambda: not on_disk(pool, 5 - home), "its share is gone")
    assert listed(pool, COMPUTES) == []
    # Whoever comes back with a reservation is the home of it again, and its share is missing.
    pool.must("heal", str(home))
    until(lambda: listed(pool, COMPUTES) == [NAME], "it is taken over")
