# SPDX-License-Identifier: Apache-2.0
"""A pool of servers for benchmarks: each server on a node of its own, and one node more, which only computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.programs import Program, build_directory
from tests.bench.remote_bench import nodes, token_environment
from tests.bench.workbench import MIB, RESERVATION, Workbench
from tests.support.load import until
from tests.support.server_pool import ServerPool

__all__ = ["BenchPool", "Place", "bench_pool"]

_PORT = 7460


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program runs, and how it finds the reservation from there."""

    prefix: tuple[str, ...]
    environment: dict[str, str]

    def native(self, command: str, *options: str, reservation: str = RESERVATION) -> Program:
        """``bench_native`` on a stream of the reservation."""
        arguments = [command, "--address", f"{reservation}/steps", *options]
        return Program("bench_native", arguments, self.environment, prefix=self.prefix)


class BenchPool:
    """A running pool; servers are numbered from 0."""

    def __init__(self, folder: Path, pool: ServerPool, prefixes: Sequence[tuple[str, ...]]) -> None:
        self._folder = folder
        self._pool = pool
        self._prefixes = prefixes

    def reserve(self, members: Sequence[int], share_bytes: int, name: str = RESERVATION) -> None:
        """Makes a reservation that takes as much from each of these servers, the home first."""
        home = self._pool.servers[members[0]]
        before = home.log().count(" is there")
        self._pool.create(name, [(member, share_bytes) for member in members])
        others = len(members) - 1
        until(lambda: home.log().count(" is there") >= before + others, "the other members are there")

    def off_the_pool(self, home: int) -> Place:
        """The node that only computes."""
        with self._pool.admin(home) as admin:
            environment = token_environment(admin, self._folder, self._pool.addresses[home])
        return Place(self._prefixes[-1], environment | {"FOREBAY_TRANSPORT": "tcp"})

    def on(self, server: int) -> Place:
        """The node of a server, which introduces its programs to the others."""
        return Place(self._prefixes[server], {"FOREBAY_ROOT": str(self._pool.servers[server].root)})


@contextlib.contextmanager
def bench_pool(
    bench: Workbench, servers: int, capacity_bytes: int, *, rate: str | None = None, disk: Sequence[str] = ()
) -> Iterator[BenchPool]:
    """A pool of so many servers with so many bytes each. They sync only when somebody asks: what is measured is not
    this machine's own disk.

    Parameters
    ----------
    rate : str, optional
        What the links of the servers' nodes carry; that of the last node has no limit.
    disk : sequence of str
        Options of ``bench_server`` that make the disk of each server slow. None: it is forebayd, on the real one.
    """
    own = range(1, servers + 1)
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(nodes(rate, servers + 1, limited=own))
        folder = stack.enter_context(bench.scratch())
        roots = [folder / "pool" / f"server{number}" for number in range(servers)]
        for root in roots:
            root.mkdir(parents=True)
        # No node sees the socket of another one's server, or its clients would take that way.
        prefixes = [
            network.prefix(node, hidden=[root for number, root in enumerate(roots, 1) if number != node])
            for node in network.nodes
        ]
        pool = ServerPool(
            folder / "pool",
            servers,
            capacity=str(capacity_bytes + 256 * MIB),
            options=("--flush-interval-ms", "-1", *disk),
            addresses=[f"{network.address(node)}:{_PORT}" for node in own],
            prefixes=prefixes,
            program=build_directory() / "tests" / "bench" / "bench_server" if disk else None,
        )
        stack.enter_context(pool)
        for server in pool.servers:
            # Nobody needs its bytes any more, so they are not synced.
            stack.callback(server.kill)
        yield BenchPool(folder, pool, prefixes)
