# SPDX-License-Identifier: Apache-2.0
"""Three nodes, and a server on one of them that listens for the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import forebay
from tests.remote.nodes import PORT, Nodes
from tests.remote.programs import Programs
from tests.support.pool_nodes import munged, nodes_possible, pool
from tests.support.staging_server import StagingServer

__all__ = ["munged", "nodes_possible", "pool"]

#: Makes a file with a token: of which reservation, with which rights, for how many seconds.
TokenMaker = Callable[..., Path]


@pytest.fixture
def nodes(nodes_possible: None) -> Iterator[Nodes]:
    """Nodes of a server, a producer and a consumer."""
    with Nodes(str(os.getpid())) as made:
        yield made


@pytest.fixture
def server(nodes: Nodes, tmp_path: Path) -> Iterator[StagingServer]:
    """A server on its node, which listens for the others, with a reservation ``run1``."""
    made = StagingServer(
        tmp_path / "root",
        options=(
            *("--listen", f"0.0.0.0:{PORT}", "--fabric", "tcp", "--fabric-peers", "trusted"),
            *("--restart-grace-ms", "2000"),
        ),
        prefix=nodes.prefix_of("server"),
        capacity="2GiB",
    )
    with made:
        with forebay.Admin(made.root) as admin:
            admin.create("run1", "512MiB")
            admin.create("other", "64MiB")
        yield made


@pytest.fixture
def token(server: StagingServer, tmp_path: Path) -> TokenMaker:
    """Makes tokens as a user on the server's node does."""

    def make(*rights: str, reservation: str = "run1", lifetime: float = 3600) -> Path:
        file = tmp_path / f"{reservation}-{'-'.join(rights)}-{lifetime}.token"
        with forebay.Admin(server.root) as admin:
            text = admin.create_token(reservation, rights=rights, lifetime=lifetime)
        file.touch(0o600)
        file.write_text(text + "\n")
        return file

    return make


@pytest.fixture
def transport(request: pytest.FixtureRequest) -> str:
    """How bytes of steps travel: TCP, or what the mark `both_transports` says."""
    return str(getattr(request, "param", "tcp"))


@pytest.fixture
def programs(nodes: Nodes, tmp_path: Path, transport: str) -> Programs:
    """Starts writers and readers on their nodes."""
    return Programs(nodes, tmp_path, FOREBAY_TRANSPORT=transport)
