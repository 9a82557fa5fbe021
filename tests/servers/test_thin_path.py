# SPDX-License-Identifier: Apache-2.0
"""Three nodes form one pool, a fourth only computes: a reservation over all three, from its making to its end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.ranks import LENGTH, Ranks, Start
from tests.support.cluster import CommandLineCluster
from tests.support.load import until

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("pool")]

ROOT = Path(__file__).resolve().parents[2]

READ = """
import sys
sys.path.insert(0, sys.argv[1])
import forebay
from tests.servers.ranks import check
with forebay.open(sys.argv[2], verify="read") as stream:
    for number, content in enumerate(map(int, sys.argv[3:])):
        check(stream, number, content)
print("all")
"""


#: Nodes 1 to 3 serve, node 4 computes.
FAR = 4


def on_nodes(cluster: CommandLineCluster, nodes: tuple[int, ...]) -> Start:
    """Each rank on its node."""

    def start(rank: int, command: list[str]) -> subprocess.Popen[str]:
        return cluster.start("exec", str(nodes[rank]), "--", *command, stdin=subprocess.PIPE)

    return start


def read(cluster: CommandLineCluster, node: int, *contents: int) -> None:
    """All bytes of the steps from 0 on are those that the ranks wrote when they were told these numbers."""
    program = (sys.executable, "-c", READ, str(ROOT), "run1/flow", *map(str, contents))
    assert cluster.on(node, *program).strip() == "all"


def seen(cluster: CommandLineCluster, node: int) -> list[int]:
    """Numbers of the steps that are kept."""
    return [step["number"] for step in json.loads(cluster.forebay(node, "steps", "run1/flow", "--json"))["steps"]]


def roots(cluster: CommandLineCluster) -> list[Path]:
    return [cluster.folder / f"node{node}" / "root" for node in (1, 2, 3)]


def left(cluster: CommandLineCluster) -> list[Path]:
    """What of reservations lies on any server."""
    return [
        path for root in roots(cluster) for name in ("reservations", "quarantine") for path in (root / name).iterdir()
    ]


def written_bytes(root: Path) -> int:
    """Of segments that hold anything but zeros."""
    return sum(path.stat().st_size for path in root.glob("reservations/*/segments/*") if any(path.read_bytes()))


def test_a_reservation_over_three_nodes(pool: CommandLineCluster) -> None:
    cluster = pool
    cluster.forebay(FAR, "create", "run1", "--servers", "3", "--capacity", "192MiB")
    listed = json.loads(cluster.forebay(2, "ls", "--json"))["reservations"]
    assert [info["name"] for info in listed] == ["run1"]
    # What one server has left is not what the pool has.
    assert "this server  " in cluster.forebay(2, "ls")
    assert "`forebay servers` lists all" in cluster.forebay(2, "ls")
    for root in roots(cluster):
        assert len(list((root / "reservations").iterdir())) == 1
    with Ranks(on_nodes(cluster, (2, FAR)), "run1/flow") as writers:
        for number in range(3):
            assert writers.write(number) == ["done", "done"]
        read(cluster, 1, 0, 1, 2)
        # The rank of node 2 wrote all of its blocks there; that of node 4 wrote to others.
        assert written_bytes(roots(cluster)[1]) >= 3 * LENGTH * 8
        cluster.must("kill", "3")
        # What was on its way there may be refused; after that the others take it.
        written = next(number for number in range(3, 8) if writers.write(number) == ["done", "done"])
        assert seen(cluster, 1)[-1] == 3
        cluster.must("heal", "3")
        until(lambda: is_there(cluster, "node3"), "node 3 is back")
        read(cluster, 1, 0, 1, 2, written)
        again = next(number for number in range(20, 25) if writers.write(number) == ["done", "done"])
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    for node in (1, 2, 3, FAR):
        read(cluster, node, 0, 1, 2, written, again)
    found = json.loads(cluster.forebay(1, "doctor", "--read-data", "--json"))
    assert [finding for finding in found["findings"] if finding["severity"] == "problem"] == []
    cluster.forebay(3, "destroy", "run1", "--force")
    until(lambda: not left(cluster), "nothing of the reservation is left on any server")


def is_there(cluster: CommandLineCluster, name: str) -> bool:
    servers = json.loads(cluster.forebay(1, "servers", "--json"))["servers"]
    return next(server["away_since_ns"] for server in servers if server["server"] == name) is None
