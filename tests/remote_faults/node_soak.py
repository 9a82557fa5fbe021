# SPDX-License-Identifier: Apache-2.0
"""Directs a soak on the nodes of a cluster: writers on one, readers on another, the server and its manager on a third.

Everything is drawn from one seed. Processes are killed, stopped and let go on; the server is killed or stopped, too;
links are cut and healed. The judge of the other soak reads what everybody was told.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import forebay
from forebay.workflows.cluster.cluster import Cluster
from tests.soak.cast import Cast
from tests.soak.history import HistoryLog, judge, read_history
from tests.soak.shape import StreamShape, random_shape
from tests.soak.timeline import Breach
from tests.support.instance import CommandLineInstance
from tests.support.load import load_generator

__all__ = ["NodeSoak"]

_SERVER, _WRITERS, _READERS = 1, 2, 3
_RESERVATION = "north"
#: What a writer is told whose blocks were on their way when the server's node went away. It is not the disk's.
_LOST_ON_THE_WAY = "went away while blocks"


class ServerNode(CommandLineInstance):
    """Server and manager of the first node. Started again they listen for the others as before."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.root(_SERVER))
        self._cluster = cluster

    def up(self) -> dict[str, object]:
        """Brings back link, server and manager."""
        self._cluster.heal(_SERVER)
        return {}


class NodeCast(Cast):
    """Writers and readers know the server's address and have a token each; they find nothing of its node."""

    def __init__(
        self,
        node: ServerNode,
        cluster: Cluster,
        tokens: Mapping[str, Path],
        log: HistoryLog,
        address: str,
        shape: StreamShape,
        chance: random.Random,
    ) -> None:
        self._cluster = cluster
        self._tokens = tokens
        super().__init__(node, log, address, shape, chance)

    def _environment_of(self, role: str) -> Mapping[str, str]:
        right = "write" if role == "writer" else "read"
        named = {"FOREBAY_SERVER": self._cluster.server(_SERVER), "FOREBAY_TOKEN_FILE": str(self._tokens[right])}
        return {**self._cluster.environment(_node_of(role), {}), "FOREBAY_SOCKET": "", **named}

    def _program_of(self, role: str, program: tuple[str, ...]) -> tuple[str, ...]:
        return (*self._cluster.prefix(_node_of(role)), *(program or (str(load_generator()),)))

    def stop_writer(self, seconds: float) -> bool:
        """A rank stands still for a while."""
        running = [writer for writer in self.writers if writer.running()]
        if not running:
            return False
        rank = self.chance.choice(running)
        rank.send(signal.SIGSTOP)
        time.sleep(seconds)
        rank.send(signal.SIGCONT)
        return True


def _node_of(role: str) -> int:
    return _WRITERS if role == "writer" else _READERS


class NodeSoak:
    """One soak; `folder` keeps the history."""

    def __init__(
        self, cluster: Cluster, tokens: Mapping[str, Path], folder: Path, *, seed: int, seconds: float
    ) -> None:
        self._cluster = cluster
        self._node = ServerNode(cluster)
        self.chance = random.Random(seed)
        self.log = HistoryLog(folder / "history.jsonl")
        self.actions: Counter[str] = Counter()
        self._seconds = seconds
        # A group that never comes back holds its stream until the grace is over.
        shapes = [random_shape(self.chance) for _ in range(2)]
        self._casts = [
            NodeCast(self._node, cluster, tokens, self.log, f"{_RESERVATION}/s{number}", shape, self.chance)
            for number, shape in enumerate(shapes)
        ]

    def run(self) -> list[Breach]:
        """Acts until the time is over, lets all come to rest, and judges."""
        limit = time.monotonic() + self._seconds
        while time.monotonic() < limit:
            self._act(self.chance.choice(self._casts))
        for cast in self._casts:
            cast.rest()
            cast.look()
            cast.read_all()
        with forebay.Admin(self._node.root) as admin:
            found = [finding for finding in admin.audit(read_data=True) if finding.severity == "problem"]
        self.log.close()
        streams, breaches = judge(read_history(self.log.path))
        breaches += [Breach("audit", finding.where, finding.what) for finding in found]
        self.commits = sum(len(stream.commits) for stream in streams.values())
        self.reads = sum(len(reader.steps) for stream in streams.values() for reader in stream.readers)
        return [breach for breach in breaches if _LOST_ON_THE_WAY not in str(breach)]

    def _act(self, cast: NodeCast) -> None:
        cast.reap()
        if not cast.writers:
            cast.start_group()
        if len(cast.readers) < 2:
            cast.start_reader()
        name = self.chance.choice(
            ["kill rank", "stop rank", "disturb reader", "disturb reader", "cut", "cut", "kill server", "stop server",
             "kill manager", "nothing", "nothing"]
        )  # fmt: skip
        seconds = self.chance.choice([0.05, 0.3, 1.0, 2.0])
        since = time.monotonic_ns()
        if name == "kill rank":
            cast.kill_rank()
        elif name == "stop rank":
            cast.stop_writer(seconds)
        elif name == "disturb reader":
            cast.disturb_reader()
        elif name == "cut":
            node = self.chance.choice([_SERVER, _WRITERS, _READERS])
            self._cluster.cut(node)
            time.sleep(seconds)
            self._cluster.heal(node)
            self._away(since)
        elif name == "kill server":
            self._node.kill_server()
            self._node.up()
            self._away(since)
        elif name == "stop server":
            self._signal_server(seconds)
            self._away(since)
        elif name == "kill manager":
            self._node.kill_manager()
            self._node.up()
        self.actions[name] += 1
        cast.look()
        cast.go_on(self.chance.choice([0.2, 0.5, 2.0]))

    def _signal_server(self, seconds: float) -> None:
        pid = self._node.server_pid()
        with contextlib.ExitStack() as stack:
            os.kill(pid, signal.SIGSTOP)
            stack.callback(os.kill, pid, signal.SIGCONT)
            time.sleep(seconds)

    def _away(self, since_ns: int) -> None:
        self.log.tell("director", "away", since_ns=since_ns)

    def summary(self) -> str:
        """What was done."""
        done = ", ".join(f"{count} {name}" for name, count in sorted(self.actions.items()))
        return f"{done}; {self.commits} steps committed, {self.reads} read"
