# SPDX-License-Identifier: Apache-2.0
"""A pool of servers under one manager: reservations on different nodes, found by name from every node."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.cluster import CommandLineCluster
from tests.support.load import until
from tests.support.other_user import python_of, python_path
from tests.support.pool_nodes import COMPUTES, asked, refused, servers

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("pool")]

STEPS = 5
NOBODY = 65534

WRITE = f"""
import sys, numpy as np, forebay
rank, address = int(sys.argv[1]), sys.argv[2]
with forebay.open(address, "w", rank=rank, ranks=2) as stream:
    for number in range({STEPS}):
        with stream.step() as step:
            block = np.arange(4000.0) + 10000 * number + rank * 4000
            step.write("T", block, shape=(8000,), start=(rank * 4000,))
"""
READ = f"""
import sys, numpy as np, forebay
with forebay.open(sys.argv[1], verify="read") as stream:
    for number in range({STEPS}):
        expected = np.arange(8000.0) + 10000 * number
        assert np.array_equal(stream[number]["T"][...], expected), number
print("all")
"""


#: Knows nothing of Forebay but the engine's name.
ADIOS2 = f"""
import adios2, numpy as np
io = adios2.Adios().declare_io("simulation")
io.set_engine("Plugin")
io.set_parameters({{"PluginName": "forebay", "PluginLibrary": "forebay_adios2", "Stream": "engine/flow"}})
with adios2.Stream(io, "engine/flow", "w") as stream:
    for number in stream.steps({STEPS}):
        block = np.arange(8000.0) + 10000 * stream.current_step()
        stream.write("T", block, [8000], [0], [8000])
"""


def write(pool: CommandLineCluster, nodes: tuple[int, int], address: str) -> None:
    """Two ranks, each on its node."""
    ranks = [
        pool.start("exec", str(node), "--", sys.executable, "-c", WRITE, str(rank), address)
        for rank, node in enumerate(nodes)
    ]
    for rank in ranks:
        output, errors = rank.communicate()
        assert rank.returncode == 0, output + errors


def check(pool: CommandLineCluster, node: int, address: str) -> None:
    """All that was written is read on this node."""
    assert pool.on(node, sys.executable, "-c", READ, address).strip() == "all"


def test_every_node_sees_the_same_servers(pool: CommandLineCluster) -> None:
    for node in (1, 2, 3, COMPUTES):
        seen = servers(pool, node)
        assert set(seen) == {"node1", "node2", "node3"}
        assert all(server["away_since_ns"] is None and server["drained"] is None for server in seen.values())


@pytest.mark.parametrize("home", [1, 2, 3])
def test_a_reservation_made_on_a_node_without_server_is_used_on_all(pool: CommandLineCluster, home: int) -> None:
    name = f"run{home}"
    pool.forebay(COMPUTES, "create", name, "--capacity", "64MiB", "--on", f"node{home}")
    try:
        assert servers(pool, COMPUTES)[f"node{home}"]["reservations"] == 1
        write(pool, (2, COMPUTES), f"{name}/flow")
        for node in (1, 2, 3, COMPUTES):
            check(pool, node, f"{name}/flow")
            streams = asked(pool, node, "streams", name)["streams"]
            assert [(stream["name"], stream["steps"]) for stream in streams] == [("flow", STEPS)]
            assert [info["name"] for info in asked(pool, node, "ls")["reservations"]] == [name]
    finally:
        pool.forebay(3, "destroy", name)
    for node in (1, COMPUTES):
        assert "no such reservation" in refused(pool, node, "streams", name)
    assert all(server["reservations"] == 0 for server in servers(pool, 1).values())


def test_adios2_finds_the_reservation_by_its_name(pool: CommandLineCluster) -> None:
    pool.forebay(2, "create", "engine", "--capacity", "64MiB", "--on", "node3")
    exports = dict(line.removeprefix("export ").split("=", 1) for line in pool.forebay(1, "env").splitlines())
    try:
        for node in (COMPUTES, 1, 3):
            pool.on(node, sys.executable, "-c", ADIOS2, ADIOS2_PLUGIN_PATH=exports["ADIOS2_PLUGIN_PATH"])
            check(pool, 2, "engine/flow")
    finally:
        pool.forebay(1, "destroy", "engine")


TWO = """
import sys, forebay
with forebay.Admin() as admin:
    for name in ("one", "two", "one"):
        assert admin.streams(name) == [], name
    print("seen", flush=True)
    sys.stdin.readline()
    # Another one of that name by now.
    assert admin.reservation("one").capacity_bytes == 32 << 20
    print("new")
"""


def test_a_user_finds_what_others_share_on_any_server_and_nothing_else(pool: CommandLineCluster) -> None:
    names = {"own": "node1", "theirs": "node3", "closed": "node2"}
    if (python := python_of(NOBODY)) is None:
        pytest.skip("there is no Python that other users can start and that finds the tests' packages")
    as_nobody = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
    program = ("env", f"PYTHONPATH={python_path()}", str(python), "-m", "forebay")
    for name, server in names.items():
        pool.forebay(1, "create", name, "--capacity", "64MiB", "--on", server)
    try:
        for name in ("own", "theirs"):
            pool.forebay(2, "share", name, "--user", str(NOBODY), "--rights", "read")
        seen = json.loads(pool.on(COMPUTES, *as_nobody, *program, "ls", "--json"))
        assert sorted(info["name"] for info in seen["reservations"]) == ["own", "theirs"]
    finally:
        for name in names:
            pool.forebay(1, "destroy", name)


USE = """
import sys, numpy as np, forebay
with forebay.open("mine/flow", "w") as stream, stream.step() as step:
    step.write("T", np.arange(9.0))
with forebay.open("mine/flow") as stream:
    assert np.array_equal(stream[0]["T"][...], np.arange(9.0))
"""


def test_a_user_token_says_who_asks_where_munge_does_not(pool: CommandLineCluster) -> None:
    if (python := python_of(NOBODY)) is None:
        pytest.skip("there is no Python that other users can start and that finds the tests' packages")
    as_nobody = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
    program = ("env", f"PYTHONPATH={python_path()}")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        token = f"{folder}/nobody.token"
        # The roots of the servers are in a folder of root's: MUNGE knows who asks for it.
        pool.on(COMPUTES, *as_nobody, *program, str(python), "-m", "forebay", "token", "user", "--output", token)
        by_token = (*as_nobody, *program, "FOREBAY_MUNGE_SOCKET=/nowhere", f"FOREBAY_TOKEN_FILE={token}", str(python))
        pool.on(COMPUTES, *by_token, "-m", "forebay", "create", "mine", "--capacity", "64MiB", "--on", "node3")
        try:
            assert asked(pool, 1, "show", "mine")["reservation"]["owner_uid"] == NOBODY
            pool.on(COMPUTES, *by_token, "-c", USE)
            seen = json.loads(pool.on(COMPUTES, *by_token, "-m", "forebay", "ls", "--json"))
            assert [info["name"] for info in seen["reservations"]] == ["mine"]
            assert "root gets no user token" in refused(pool, 1, "token", "user")
            assert "a day at most" in refused(pool, 1, "token", "user", "--ttl", "2d")
            assert "cannot be revoked" in refused(pool, 1, "token", "revoke", token)
        finally:
            pool.forebay(1, "destroy", "mine")


def test_one_connection_reaches_several_reservations_of_a_server(pool: CommandLineCluster) -> None:
    for name in ("one", "two"):
        pool.forebay(2, "create", name, "--capacity", "64MiB", "--on", "node3")
    try:
        for node in (1, COMPUTES):
            with pool.start("exec", str(node), "--", sys.executable, "-c", TWO, stdin=subprocess.PIPE) as program:
                assert program.stdout is not None
                assert program.stdout.readline() == "seen\n"
                pool.forebay(2, "destroy", "one")
                pool.forebay(2, "create", "one", "--capacity", "32MiB", "--on", "node3")
                output, errors = program.communicate("\n")
                assert output == "new\n", errors
                pool.forebay(2, "destroy", "one")
                pool.forebay(2, "create", "one", "--capacity", "64MiB", "--on", "node3")
    finally:
        for name in ("one", "two"):
            pool.forebay(2, "destroy", name)


def test_steps_of_another_server_are_staged_out_and_files_are_refused(pool: CommandLineCluster, tmp_path: Path) -> None:
    pool.forebay(1, "create", "far", "--capacity", "64MiB", "--files", "16MiB", "--on", "node3")
    try:
        write(pool, (2, COMPUTES), "far/flow")
        out = tmp_path / "out"
        staged = asked(pool, COMPUTES, "stage-out", "far/flow", str(out), "--steps", "0,2", "--format", "bp5")
        assert staged["stage"]["state"] == "succeeded"
        steps = json.loads(pool.forebay(2, "steps", "far/flow", "--json"))["steps"]
        assert [step["number"] for step in steps if step["staged"]] == [0, 2]
        assert "lie on server node3" in refused(pool, 1, "stage-out", "far:data", str(tmp_path / "files"))
    finally:
        pool.forebay(1, "destroy", "far")


def test_the_emptiest_server_is_taken_and_a_name_is_taken_once(pool: CommandLineCluster) -> None:
    names = ["a", "b", "c"]
    try:
        for name in names:
            pool.forebay(2, "create", name, "--capacity", "128MiB")
        assert [server["reservations"] for server in servers(pool, 2).values()] == [1, 1, 1]
        # It is known wherever it lies.
        assert "128" in refused(pool, 3, "create", "a", "--capacity", "32MiB")
        assert "has room" in refused(pool, 3, "create", "d", "--capacity", "200MiB")
    finally:
        for name in names:
            pool.forebay(2, "destroy", name)


def test_a_server_that_dies_is_away_and_comes_back_with_all_it_had(pool: CommandLineCluster) -> None:
    pool.forebay(1, "create", "kept", "--capacity", "64MiB", "--on", "node3")
    try:
        write(pool, (3, 1), "kept/flow")
        pool.must("kill", "3")
        until(lambda: servers(pool, COMPUTES)["node3"]["away_since_ns"] is not None, "node 3 is away")
        # Others go on, and nothing new lies there.
        pool.forebay(2, "create", "meanwhile", "--capacity", "64MiB")
        pool.forebay(COMPUTES, "destroy", "meanwhile")
        assert "node3 is away since" in refused(pool, 2, "create", "x", "--capacity", "32MiB", "--on", "node3")
        found = pool.run("exec", "1", "--", sys.executable, "-m", "forebay", "doctor")
        assert "server node3" in found.stdout
        pool.must("heal", "3")
        until(lambda: servers(pool, 1)["node3"]["away_since_ns"] is None, "node 3 is back")
        for node in (1, 3, COMPUTES):
            check(pool, node, "kept/flow")
    finally:
        pool.forebay(1, "destroy", "kept")


def test_open_streams_and_names_need_no_manager(pool: CommandLineCluster) -> None:
    pool.forebay(1, "create", "alone", "--capacity", "64MiB", "--on", "node3")
    try:
        write(pool, (3, 2), "alone/flow")
        pool.must("kill", "1")
        check(pool, 2, "alone/flow")
        # Also after a restart of the server that introduces.
        pool.forebay(2, "down")
        started = asked(pool, 2, "up")
        assert started["server_started"]
        assert any("manager cannot be reached now" in note for note in started["notes"])
        check(pool, 2, "alone/flow")
        pool.must("heal", "1")
    finally:
        if not next(node for node in pool.ask("status")["nodes"] if node["node"] == 1)["serves"]:
            pool.must("heal", "1")
        pool.forebay(1, "destroy", "alone")


def test_a_drained_and_a_retired_server_take_nothing_new(pool: CommandLineCluster) -> None:
    pool.forebay(1, "create", "last", "--capacity", "64MiB", "--on", "node2")
    pool.forebay(3, "drain", "node2", "--reason", "disk")
    assert "node2 is drained (disk)" in refused(pool, 1, "create", "x", "--capacity", "32MiB", "--on", "node2")
    pool.forebay(3, "undrain", "node2")
    told = asked(pool, 1, "servers", "retire", "node2")
    assert told == {"server": "node2", "reservations": ["last"], "left": False}
    assert "node2 is retired" in refused(pool, 1, "create", "x", "--capacity", "32MiB", "--on", "node2", "--wait")
    assert "node2 is retired" in refused(pool, 1, "undrain", "node2")
    pool.forebay(1, "destroy", "last")
    until(lambda: "node2" not in servers(pool, 1), "node 2 has left the pool")
    pool.forebay(2, "down")
    pool.must("heal", "2")  # joins again
    assert "node2" in servers(pool, 1)


def test_a_server_with_another_key_is_let_in_nowhere(pool: CommandLineCluster, tmp_path: Path) -> None:
    key = tmp_path / "other.key"
    pool.forebay(2, "servers", "key", str(key))
    pool.forebay(2, "down")
    try:
        assert "another key" in refused(pool, 2, "up", "--pool-key", str(key))
    finally:
        pool.forebay(2, "down")
        own = json.loads((pool.folder / "node2" / "root" / "pool.json").read_text())
        pool.forebay(2, "up", "--pool-key", str(pool.folder / "pool.key"), "--join", own["manager"])
