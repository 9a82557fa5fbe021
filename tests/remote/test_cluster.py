# SPDX-License-Identifier: Apache-2.0
"""`forebay cluster`: nodes that see nothing of each other but by the network, and that can be cut off and killed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay.manager.process_identity import process_identity
from tests.support.cluster import CommandLineCluster

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("cluster")]

WRITE = """
import numpy as np, forebay
with forebay.open("run1/flow", "w") as stream:
    for number in range(3):
        with stream.step() as step:
            step["T"] = np.full(1000, number, "f8")
"""
READ = """
import forebay
with forebay.open("run1/flow", verify="read") as stream:
    print([float(stream[summary.number]["T"][...].sum()) for summary in stream.steps()])
"""


@pytest.fixture(scope="module")
def cluster(nodes_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLineCluster]:
    """Three nodes with networks of their own, and a reservation on the first."""
    folder = tmp_path_factory.mktemp("cluster")
    with CommandLineCluster(folder, "--nodes", "3", "--netns", "--capacity", "128MiB", "--rate", "1gbit") as up:
        up.forebay(1, "create", "run1", "--capacity", "64MiB")
        yield up


def sockets(cluster: CommandLineCluster, node: int) -> Path:
    """The folder of the sockets of a node's daemons."""
    return Path((cluster.folder / f"node{node}/root/endpoint").read_text().strip()).parent


def remote(cluster: CommandLineCluster, tmp_path: Path, rights: str) -> dict[str, str]:
    """What programs on other nodes need for `run1` on node 1."""
    token = tmp_path / f"{rights}.token"  # of each test its own
    cluster.forebay(1, "token", "create", "run1", "--rights", rights, "--output", str(token))
    return {"FOREBAY_SERVER": "node1:7460", "FOREBAY_TOKEN_FILE": str(token)}


def test_nodes_write_and_read_by_the_network_alone(cluster: CommandLineCluster, tmp_path: Path) -> None:
    cluster.on(2, sys.executable, "-c", WRITE, **remote(cluster, tmp_path, "write"))
    seen = cluster.on(3, sys.executable, "-c", READ, **remote(cluster, tmp_path, "read"))
    assert seen.strip() == "[0.0, 1000.0, 2000.0]"
    # There was no other way: neither the server's files nor its sockets exist for the others.
    for hidden in (cluster.folder / "node1" / "root", sockets(cluster, 1)):
        assert os.path.exists(hidden)
        for node in (2, 3):
            assert cluster.run("exec", str(node), "--", "test", "-e", str(hidden)).returncode == 1
        assert cluster.run("exec", "1", "--", "test", "-e", str(hidden)).returncode == 0


def test_killed_node_loses_nothing_that_was_committed(cluster: CommandLineCluster, tmp_path: Path) -> None:
    cluster.on(2, sys.executable, "-c", WRITE, **remote(cluster, tmp_path, "write"))
    reading = remote(cluster, tmp_path, "read")
    cluster.must("kill", "1")
    dead = cluster.ask("status")["nodes"][0]
    assert (dead["link"], dead["serves"], dead["processes"]) == ("cut", False, 0)
    assert cluster.ask("heal", "1")["serves"]
    assert cluster.on(3, sys.executable, "-c", READ, **reading).strip() == "[0.0, 1000.0, 2000.0]"


def test_cut_node_is_not_reached_and_healed_it_is(cluster: CommandLineCluster, tmp_path: Path) -> None:
    reading = remote(cluster, tmp_path, "read")
    cluster.must("cut", "3")
    state = cluster.ask("status")["nodes"][2]
    assert (state["link"], state["serves"]) == ("cut", True)
    done = cluster.run("exec", "3", "--", sys.executable, "-m", "forebay", "streams", "run1", **reading)
    assert done.returncode != 0
    assert "node1:7460" in done.stderr
    cluster.must("heal", "3")
    cluster.forebay(3, "streams", "run1", **reading)


def test_down_leaves_nothing(nodes_possible: None, tmp_path: Path) -> None:
    with CommandLineCluster(tmp_path / "cluster", "--nodes", "1", "--netns", "--capacity", "64MiB") as cluster:
        label = json.loads((cluster.folder / "cluster.json").read_text())["label"]
        assert {path.name for path in Path("/run/netns").glob(f"{label}-*")} == {f"{label}-1", f"{label}-switch"}
        place = sockets(cluster, 1)
        pid = int(cluster.on(1, "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"))
        cluster.must("down")
        assert not cluster.folder.exists()
        assert not place.exists()
        assert not list(Path("/run/netns").glob(f"{label}-*"))
        assert process_identity(pid) is None
        again = cluster.run("status")
        assert again.returncode != 0
        assert "forebay cluster up" in again.stderr


def test_links_have_the_rate_that_was_asked_for(cluster: CommandLineCluster) -> None:
    assert "rate 1Gbit" in cluster.on(2, "tc", "qdisc", "show", "dev", "eth0")
    assert cluster.ask("status")["congestion_control"] in ("cubic", "bbr", "reno")


def test_exit_status_is_that_of_the_command(cluster: CommandLineCluster) -> None:
    assert cluster.run("exec", "2", "--", "sh", "-c", "exit 7").returncode == 7
    assert cluster.on(2, "forebay", "--version").startswith(f"forebay {forebay.__version__}")
