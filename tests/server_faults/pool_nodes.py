# SPDX-License-Identifier: Apache-2.0
"""The nodes of a pool whose servers a test kills, stops, cuts off and starts again, on disks that it can let fail."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import forebay
from forebay.instance import Instance
from forebay.workflows.cluster.cluster import Cluster
from forebay.workflows.manager.instance.daemon import is_locked
from tests.server_faults.plan import SERVERS
from tests.support.frail_disk import FrailDisk
from tests.support.instance import CommandLineInstance
from tests.support.load import load_generator, until
from tests.support.time_limits import seconds

__all__ = ["COMPUTES", "PoolNodes"]

#: The node that only computes.
COMPUTES = 4
_COMMAND_SECONDS_MAX = seconds(120)
#: A server says so when it begins.
_STARTED = " reservations recovered"


class PoolNodes(CommandLineInstance):
    """Four nodes, of which 1 to 3 are one pool under the manager of node 1. As an instance it is the first one's."""

    def __init__(self, cluster: Cluster, environment: Mapping[str, str]) -> None:
        super().__init__(cluster.root(1))
        self.cluster = cluster
        self._environment = dict(environment)
        self._ours = {node: set(cluster.network.processes(node)) for node in cluster.nodes if cluster.network}

    def environment_of(self, node: int) -> dict[str, str]:
        """Of programs on a node."""
        return {**self.cluster.environment(node, self._environment), "FOREBAY_SOCKET": ""}

    def load_on(self, node: int) -> tuple[str, ...]:
        """The load generator, on a node."""
        return (*self.cluster.prefix(node), str(load_generator()))

    def ask_on(self, node: int, *arguments: str) -> dict[str, object]:
        """`forebay ARGUMENTS --json` on a node, which must succeed."""
        done = self.run_on(node, *arguments, "--json")
        assert done.returncode == 0, f"forebay {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}"
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    def run_on(self, node: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`forebay ARGUMENTS` on a node, whatever comes of it."""
        return subprocess.run(
            [*self.cluster.prefix(node), sys.executable, "-m", "forebay", *arguments],
            env=os.environ | self.environment_of(node),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS_MAX,
            check=False,
        )

    # Servers

    def admin(self, node: int) -> forebay.Admin:
        """Of the server of a node, by its socket."""
        return forebay.Admin(self.cluster.root(node), server="")

    def disk(self, node: int) -> FrailDisk:
        return FrailDisk(self.cluster.root(node))

    def log_of(self, node: int) -> str:
        """What the server of a node has written."""
        return Instance(self.cluster.root(node)).server_log.read_text()

    def runs(self, node: int) -> bool:
        """Its server does."""
        return is_locked(Instance(self.cluster.root(node)).server_lock)

    def send_server(self, node: int, sent: signal.Signals) -> None:
        """A signal to the server of a node, if there is one. Returns after a deadly one when the server is gone."""
        if not self.runs(node):
            return
        pid: int = json.loads(Instance(self.cluster.root(node)).server_identity.read_text())["pid"]
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, sent)
            if sent in (signal.SIGKILL, signal.SIGTERM):
                assert select.select([process], [], [], seconds(60))[0], f"the server of node {node} does not end"
        finally:
            os.close(process)

    def kill_node(self, node: int) -> None:
        """All of its processes die, and nobody hears of it."""
        self.cluster.kill(node)

    def bring_back(self, node: int) -> None:
        """Its link and its server, and its manager."""
        self.cluster.heal(node)

    @contextlib.contextmanager
    def standing_still(self, node: int) -> Iterator[None]:
        """The server of a node is stopped meanwhile."""
        self.send_server(node, signal.SIGSTOP)
        try:
            yield
        finally:
            self.send_server(node, signal.SIGCONT)

    def copy_root(self, node: int, copy: Path) -> None:
        """As it is at one moment, but for what clients write meanwhile."""
        shutil.rmtree(copy, ignore_errors=True)
        with self.standing_still(node):
            subprocess.run(["cp", "-a", self.cluster.root(node), copy], check=True, timeout=_COMMAND_SECONDS_MAX)

    def is_older(self, node: int, copy: Path) -> bool:
        """The server has synced something since: else nothing tells that copy from its root."""
        return _syncs(self.cluster.root(node)) > _syncs(copy)

    def put_back(self, node: int, copy: Path) -> None:
        """The server dies, and its root is that copy from now on."""
        self.send_server(node, signal.SIGKILL)
        shutil.rmtree(self.cluster.root(node))
        copy.rename(self.cluster.root(node))

    # What is left

    def _missing(self, reservation: str, home: int) -> list[int]:
        """Members that the home has not found, or not yet again, by what its log says of them last."""
        last = dict.fromkeys(range(1, len(SERVERS)), False)
        said = re.compile(rf"reservation {reservation}: member (\d+)\b(.*)")
        for line in self.log_of(home).splitlines():
            if _STARTED in line:
                last = dict.fromkeys(last, False)
            elif found := said.search(line):
                last[int(found[1])] = found[2].endswith("is there")
        return [number for number, there in last.items() if not there]

    def await_pool(self, reservation: str, home: int) -> None:
        """Returns when the home has found all members of the reservation, and the manager all servers."""
        until(lambda: self._missing(reservation, home) == [], f"the home of {reservation} has found all members")

        def are_known() -> bool:
            servers = self.ask_on(1, "servers")["servers"]
            assert isinstance(servers, list)
            return all(server["away_since_ns"] is None for server in servers)

        until(are_known, "the manager has found all servers")

    def leftovers(self) -> list[str]:
        """Files of reservations on servers, processes beside servers and manager, and mounts of nobody."""
        found = [
            str(path)
            for node in SERVERS
            for folder in ("reservations", "quarantine")
            for path in (self.cluster.root(node) / folder).iterdir()
        ]
        for node in self.cluster.nodes:
            assert self.cluster.network is not None
            allowed = 0 if node == COMPUTES else 2 if node == 1 else 1
            running = self.cluster.network.processes(node)
            if len(running) > allowed:
                found.append(f"{len(running)} processes on node {node}")
        mounts = Path("/proc/self/mounts").read_text()
        return [*found, *([f"a mount below {self.cluster.folder}"] if str(self.cluster.folder) in mounts else [])]


def _syncs(root: Path) -> int:
    """So often the server of a root has synced its shares."""
    return sum(int(path.read_text().split()[0]) for path in (root / "reservations").glob("*/syncs"))
