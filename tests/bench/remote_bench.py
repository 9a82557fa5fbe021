# SPDX-License-Identifier: Apache-2.0
"""Nodes for the benchmarks of remote clients: a server on the first, and what its clients on the others need."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import forebay
from forebay.workflows.cluster.network import Network, why_not
from tests.bench.workbench import MIB, RESERVATION, Workbench
from tests.support.staging_server import StagingServer

__all__ = ["SERVER_NODE", "RemoteInstance", "nodes", "remote_instance"]

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
def nodes(rate: str | None = None) -> Iterator[Network]:
    """Three nodes; SystemExit where there can be none."""
    if reason := why_not():
        raise SystemExit(f"no benchmark of remote clients: {reason}")
    with Network(f"fbb{os.getpid()}", 3, rate) as network:
        yield network


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
                *("--listen", f"0.0.0.0:{_PORT}", "--fabric", "tcp"),
                *("--control-encryption", "on" if encrypts else "off"),
            ),
            prefix=network.prefix(SERVER_NODE),
        )
        server.start()
        stack.callback(server.kill)
        with forebay.Admin(server.root) as admin:
            admin.create(RESERVATION, capacity_bytes)
            text = admin.create_token(RESERVATION, rights=("read", "write"), lifetime=3600)
        token = Path(folder, "token")
        token.touch(0o600)
        token.write_text(text + "\n")
        remote = {
            "FOREBAY_ROOT": "/nonexistent",
            "FOREBAY_SERVER": f"{network.address(SERVER_NODE)}:{_PORT}",
            "FOREBAY_TOKEN_FILE": str(token),
        }
        yield RemoteInstance(network, {"FOREBAY_ROOT": str(server.root)}, remote)
