# SPDX-License-Identifier: Apache-2.0
"""Nodes for the benchmarks of remote clients: a server on the first, and what its clients on the others need."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import forebay
from forebay.workflows.cluster.network import Network, why_not
from tests.bench.measure import Figures
from tests.bench.programs import Timeline
from tests.bench.workbench import MIB, RESERVATION, Workbench
from tests.support.staging_server import StagingServer

__all__ = ["SERVER_NODE", "RemoteInstance", "live_figures", "nodes", "remote_instance", "token_environment"]

SERVER_NODE, WRITER_NODE, READER_NODE = 1, 2, 3
_PORT = 7460


@dataclass(frozen=True, slots=True)
class RemoteInstance:
    """A running server with one reservation."""

    network: Network
    local_environment: dict[str, str]  #: of clients on the server's node
    environment: dict[str, str]  #: of clients on other nodes

    def address(self) -> str:
        """Of the stream that is measured."""
        return f"{RESERVATION}/steps"

    def over(self, transport: str) -> dict[str, str]:
        """The environment of remote clients whose bytes travel so."""
        return {**self.environment, "FOREBAY_TRANSPORT": transport}


@contextlib.contextmanager
def nodes(rate: str | None = None, count: int = 3, *, limited: Collection[int] | None = None) -> Iterator[Network]:
    """So many nodes; SystemExit where there can be none. The rate is that of all links, or of the nodes ``limited``."""
    if reason := why_not():
        raise SystemExit(f"no benchmark of remote clients: {reason}")
    with Network(f"fbb{os.getpid()}", count, rate, limited=limited) as network:
        yield network


def token_environment(admin: forebay.Admin, folder: Path, server: str) -> dict[str, str]:
    """What clients of the reservation need on other nodes; the token lies in the folder."""
    token = folder / "token"
    token.touch(0o600)
    token.write_text(admin.create_token(RESERVATION, rights=("read", "write"), lifetime=3600) + "\n")
    return {"FOREBAY_ROOT": "/nonexistent", "FOREBAY_SERVER": server, "FOREBAY_TOKEN_FILE": str(token)}


def live_figures(writer: Timeline, reader: Timeline, step_bytes: int, warmup: int) -> Figures:
    """Of steps that a reader follows while they are written."""
    if len(reader.steps) != len(writer.steps):
        raise RuntimeError(f"the reader got {len(reader.steps)} of {len(writer.steps)} steps")
    # From when the reader holds the last step of the warm-up, by which all space and buffers were used once: a virtual
    # machine's memory is many times slower at its first use.
    seconds = (reader.steps[-1][2] - reader.steps[warmup - 1][2]) * 1e-9
    both = list(zip(writer.steps, reader.steps, strict=True))[warmup:]
    latencies = [(read[2] - written[2]) * 1e-9 for written, read in both]
    return {
        "end_to_end_bytes_per_second": (len(reader.steps) - warmup) * step_bytes / seconds,
        "after_call_seconds": statistics.median(latencies),
    }


@contextlib.contextmanager
def remote_instance(
    bench: Workbench, network: Network, capacity_bytes: int, *, encrypts: bool = True
) -> Iterator[RemoteInstance]:
    """A server that listens on its node."""
    with bench.scratch() as folder, contextlib.ExitStack() as stack:
        server = StagingServer(
            folder / "root",
            capacity=str(capacity_bytes + 256 * MIB),
            options=(
                *("--listen", f"0.0.0.0:{_PORT}", "--fabric", "tcp", "--fabric-peers", "trusted"),
                *("--control-encryption", "on" if encrypts else "off"),
            ),
            prefix=network.prefix(SERVER_NODE),
        )
        server.start()
        stack.callback(server.kill)
        with forebay.Admin(server.root) as admin:
            admin.create(RESERVATION, capacity_bytes)
            remote = token_environment(admin, folder, f"{network.address(SERVER_NODE)}:{_PORT}")
        yield RemoteInstance(network, {"FOREBAY_ROOT": str(server.root)}, remote)
