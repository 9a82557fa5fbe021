# SPDX-License-Identifier: Apache-2.0
"""A cluster on one machine: nodes with an instance each, whose servers listen for the others.

With namespaces each node has its own network, and sees nothing of the others' files. Without them (no root needed) the
nodes are processes that find each other's servers at ports of this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from forebay import _core
from forebay.errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    DisconnectedError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from forebay.instance import Instance
from forebay.workflows.cluster.network import Network, kill_processes, why_not
from forebay.workflows.manager.instance.daemon import is_locked

__all__ = ["NODES_MAX", "Cluster", "NodeState", "default_folder"]

NODES_MAX = 32
_PORT = 7460
_STATE = "cluster.json"
_MARK = "FOREBAY_CLUSTER_NODE"
_COMMAND_SECONDS_MAX = 180.0
_END_SECONDS_MAX = 30.0


def default_folder() -> Path:
    """``$FOREBAY_CLUSTER``, else ``forebay-cluster`` under ``$XDG_STATE_HOME``."""
    named = os.environ.get("FOREBAY_CLUSTER")
    if named:
        return Path(os.path.abspath(named))
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "forebay-cluster")


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node, as `forebay cluster status` shows it."""

    node: int
    server: str  #: HOST:PORT, where other nodes find it
    root: Path
    link: str  #: up, cut, or none: without namespaces there is no link
    serves: bool
    processes: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What the state file says."""

    label: str
    ports: list[int]
    namespaces: bool
    rate: str | None
    capacity: str
    fabric: str | None
    servers: int = 0  #: of one pool, on the first nodes, the manager on node 1; 0: each node has an instance of its own


class Cluster:
    """A cluster that is up, below ``folder``."""

    def __init__(self, folder: Path, plan: _Plan) -> None:
        self.folder = folder
        self._plan = plan
        self.nodes = range(1, len(plan.ports) + 1)
        self.network = Network(plan.label, len(plan.ports), plan.rate) if plan.namespaces else None

    @classmethod
    def up(
        cls,
        folder: Path,
        nodes: int,
        *,
        namespaces: bool = False,
        rate: str | None = None,
        capacity: str = "1GiB",
        fabric: str | None = None,
        servers: int = 0,
    ) -> Cluster:
        """Makes the nodes and starts their instances; nothing is left of one that cannot be started.

        Parameters
        ----------
        servers : int
            So many nodes, from 1 on, form one pool of servers under the manager on node 1; the others only compute. 0:
            each node has an instance of its own.

        Raises
        ------
        AlreadyExistsError
            There is one in this folder, or files that are not a cluster's.
        UnsupportedError
            Namespaces were asked for, and cannot be had.
        """
        if not 1 <= nodes <= NODES_MAX:
            raise InvalidArgumentError(f"a cluster has 1 to {NODES_MAX} nodes, not {nodes}")
        if namespaces and (reason := why_not()):
            raise UnsupportedError(f"no nodes with networks of their own: {reason}; leave out --netns")
        if not 0 <= servers <= nodes:
            raise InvalidArgumentError(f"{nodes} nodes have at most {nodes} servers, not {servers}")
        if rate is not None and not namespaces:
            raise InvalidArgumentError("only links have a rate; give --netns, too")
        if folder.exists() and any(folder.iterdir()):
            if (folder / _STATE).exists():
                raise AlreadyExistsError("a cluster is there; end it with `forebay cluster down`", str(folder))
            raise AlreadyExistsError("the folder has other files; name another with --folder", str(folder))
        ports = [_PORT] * nodes if namespaces else _free_ports(nodes)
        label = f"fb{secrets.token_hex(3)}"
        cluster = cls(folder, _Plan(label, ports, namespaces, rate, capacity, fabric, servers))
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # First, so that `down` knows of whatever comes next.
        (folder / _STATE).write_text(json.dumps(asdict(cluster._plan), indent=1) + "\n")
        try:
            for node in cluster.nodes:
                cluster.root(node).parent.mkdir()
                cluster._sockets(node).mkdir(mode=0o700)
            lines = [f"{cluster.host(node)} node{node}" for node in cluster.nodes]
            cluster._hosts.write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
            if cluster.network is not None:
                cluster.network.add()
            if servers:
                key = cluster._pool_key
                key.touch(mode=0o600)
                key.write_text(_core.new_pool_key())
                # The others join the first one's manager.
                cluster._start_instances([1])
            cluster._start_instances([node for node in cluster.serving if not (servers and node == 1)])
        except BaseException:
            cluster.down()
            raise
        return cluster

    @property
    def serving(self) -> range:
        """The nodes that have a server."""
        return range(1, (self._plan.servers or len(self.nodes)) + 1)

    @property
    def _pool_key(self) -> Path:
        return self.folder / "pool.key"

    @classmethod
    def find(cls, folder: Path) -> Cluster:
        """The one that is up there; NotFoundError if none is."""
        try:
            plan = json.loads((folder / _STATE).read_text())
        except FileNotFoundError:
            raise NotFoundError(
                "there is no cluster; make one with `forebay cluster up --nodes N`", str(folder)
            ) from None
        return cls(folder, _Plan(**plan))

    def host(self, node: int) -> str:
        """Its address."""
        return "127.0.0.1" if self.network is None else self.network.address(node)

    def server(self, node: int) -> str:
        """HOST:PORT of its server. With namespaces ``nodeK`` is the host's name, too."""
        return f"{self.host(node)}:{self._plan.ports[self._check(node) - 1]}"

    def root(self, node: int) -> Path:
        """Of its instance."""
        return self.folder / f"node{node}" / "root"

    def prefix(self, node: int) -> tuple[str, ...]:
        """What runs a command on this node, which sees no other node's files."""
        self._check(node)
        if self.network is None:
            return ()
        if not self.network.exists():
            raise NotFoundError(
                "the nodes are gone, by a boot for example; run `forebay cluster down`", str(self.folder)
            )
        others = [other for other in self.nodes if other != node]
        hidden = [path for other in others for path in (self.root(other).parent, self._sockets(other))]
        return self.network.prefix(node, hidden=hidden, hosts=self._hosts)

    def environment(self, node: int, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment for programs on this node: they find its instance unless they name a server."""
        kept = {name: value for name, value in environment.items() if name != "FOREBAY_SOCKET"}
        if node not in self.serving:
            # Where no server is, the manager's node knows the way.
            kept.setdefault("FOREBAY_SERVER", self.server(1))
        own = {"FOREBAY_ROOT": str(self.root(node)), "XDG_RUNTIME_DIR": str(self._sockets(node))}
        # Without namespaces every node is this one: a server that is named is to be another's all the same.
        apart = {} if self.network is not None else {"FOREBAY_TRANSPORT": environment.get("FOREBAY_TRANSPORT", "tcp")}
        return kept | own | (apart if "FOREBAY_SERVER" in kept else {}) | {_MARK: self._mark(node)}

    def cut(self, node: int) -> None:
        """Its link carries nothing any more."""
        self._links(node, "cut").cut(node)

    def kill(self, node: int) -> None:
        """The node fails: its link goes first, so that nobody hears its processes die."""
        self._check(node)
        if self.network is not None:
            self.network.cut(node)
        self._end(node)

    def heal(self, node: int) -> None:
        """The link is back, and the instance runs again if it does not."""
        self._check(node)
        if self.network is not None:
            self.prefix(node)
            self.network.heal(node)
        if node in self.serving and not self._serves(node):
            self._start_instances([node])

    def status(self) -> Iterator[NodeState]:
        """Each node."""
        for node in self.nodes:
            link = "none"
            if self.network is not None:
                link = "gone" if not self.network.exists() else "cut" if self.network.is_cut(node) else "up"
            running = self._processes(node)
            yield NodeState(node, self.server(node), self.root(node), link, self._serves(node), len(running))

    def down(self) -> None:
        """Ends everything that runs on the nodes, and removes them with all their data."""
        for node in self.nodes:
            self._end(node)
        if self.network is not None:
            self.network.remove()
        for path in (*self.folder.iterdir(), *map(self._sockets, self.nodes)):
            if path.name != _STATE:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        (self.folder / _STATE).unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _sockets(self, node: int) -> Path:
        """Where its daemons listen for programs of the node; paths of sockets have to be short."""
        return Path(tempfile.gettempdir(), f"{self._plan.label}-{node}")

    @property
    def _hosts(self) -> Path:
        return self.folder / "hosts"

    def _check(self, node: int) -> int:
        if node not in self.nodes:
            raise NotFoundError(f"there is no node {node}; the cluster has 1 to {len(self.nodes)}", str(self.folder))
        return node

    def _links(self, node: int, what: str) -> Network:
        self._check(node)
        if self.network is None:
            raise UnsupportedError(f"these nodes have no links to {what}; only `forebay cluster up --netns` makes them")
        self.prefix(node)
        return self.network

    def _mark(self, node: int) -> str:
        return f"{self._plan.label}/{node}"

    def _serves(self, node: int) -> bool:
        instance = Instance(self.root(node))
        joined = bool(self._plan.servers) and node != 1
        return is_locked(instance.server_lock) and (joined or is_locked(instance.manager_lock))

    def _start_instances(self, nodes: range | list[int]) -> None:
        elsewhere = {"FOREBAY_SERVER", "FOREBAY_TOKEN_FILE", "FOREBAY_TRANSPORT"}
        environment = {name: value for name, value in os.environ.items() if name not in elsewhere}
        starts = {
            node: subprocess.Popen(
                [*self.prefix(node), sys.executable, "-P", "-m", "forebay", "up", *self._server_options(node)],
                env=self.environment(node, environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for node in nodes
        }
        failures = []
        for node, start in starts.items():
            _, errors = start.communicate(timeout=_COMMAND_SECONDS_MAX)
            if start.returncode != 0:
                failures.append(f"node {node}: {errors.strip()}")
        if failures:
            raise DisconnectedError("; ".join(failures))

    def _server_options(self, node: int) -> list[str]:
        """Of `forebay up`; none if only the manager is missing, for a server that runs does not change its own."""
        if is_locked(Instance(self.root(node)).server_lock):
            return []
        fabric = [] if self._plan.fabric is None else ["--fabric", self._plan.fabric, "--fabric-peers", "trusted"]
        pool: list[str] = []
        if self._plan.servers:
            pool = ["--pool-key", str(self._pool_key), "--name", f"node{node}"]
            pool += ["--join", self.server(1)] if node != 1 else []
        return ["--capacity", self._plan.capacity, "--listen", self.server(node), *fabric, *pool]

    def _processes(self, node: int) -> list[int]:
        if self.network is not None:
            return self.network.processes(node)
        mark = f"{_MARK}={self._mark(node)}".encode()
        found = []
        for process in Path("/proc").iterdir():
            try:
                if process.name.isdecimal() and mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
            except OSError:
                continue  # It has ended, or is another user's.
        return [pid for pid in sorted(found) if pid != os.getpid()]

    def _end(self, node: int) -> None:
        """Kills all, also who was started meanwhile."""
        deadline = time.monotonic() + _END_SECONDS_MAX
        while running := self._processes(node):
            if time.monotonic() > deadline:
                raise DeadlineExceededError(f"processes {running[:3]} of node {node} do not end", str(self.folder))
            kill_processes(running)
            time.sleep(0.02)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [made.getsockname()[1] for made in sockets]
