# SPDX-License-Identifier: Apache-2.0
"""A client that names a server of its own node uses its socket, whatever mount namespace it is in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import forebay
from tests.remote.nodes import Nodes
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

pytestmark = [pytest.mark.timeout(120), pytest.mark.xdist_group("nodes-local")]

TokenMaker = Callable[..., Path]
#: A mount namespace of its own, as a container or Slurm's job_container has.
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")
WRITE = """
import forebay
with forebay.open("run1/flow", "w") as stream, stream.step() as step:
    step["x"] = 3
"""


class Asking:
    """Runs programs that name the server."""

    def __init__(self, nodes: Nodes, token: Path) -> None:
        self._nodes = nodes
        self._environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "FOREBAY_SERVER": nodes.server,
            "FOREBAY_TOKEN_FILE": str(token),
            "FOREBAY_ROOT": "/nonexistent",
        }

    def run(self, kind: str, *command: str, before: tuple[str, ...] = (), **environment: str) -> tuple[int, str, str]:
        """Exit status and what it says."""
        done = subprocess.run(
            [*self._nodes.prefix_of(kind), *before, sys.executable, *command],
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            timeout=seconds(60),
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def transport(self, kind: str, *, before: tuple[str, ...] = (), **environment: str) -> str:
        """How bytes would travel, as `forebay ping` says."""
        status, said, errors = self.run(
            kind, "-m", "forebay", "ping", "--size", "1MiB", "--json", before=before, **environment
        )
        assert status == 0, errors
        return str(json.loads(said)["transport"])


@pytest.fixture
def asking(nodes: Nodes, server: StagingServer, token: TokenMaker) -> Asking:
    """With a token for reading and writing."""
    return Asking(nodes, token("read", "write"))


def test_own_mount_namespace_on_the_servers_node_is_local(asking: Asking, server: StagingServer) -> None:
    assert asking.transport("server", before=OWN_MOUNTS) == "local"
    # Whoever used a data path would die.
    status, _, errors = asking.run(
        "server", "-c", WRITE, before=OWN_MOUNTS, FOREBAY_FAIL_POINT="client.data.before_write:1=kill"
    )
    assert status == 0, errors
    with forebay.open("run1/flow", instance=server.root) as stream:
        assert stream[0]["x"].read() == 3


def test_socket_that_cannot_be_reached_is_not_local(asking: Asking, server: StagingServer) -> None:
    with forebay.Admin(server.root) as admin:
        assert admin.server().pid == server.pid
    socket = Path((server.root / "endpoint").read_text().strip())
    hide = (*OWN_MOUNTS, "sh", "-c", f'mount -t tmpfs none "{socket.parent}" && exec "$@"', "sh")
    for node in ("server", "consumer"):
        assert asking.transport(node, before=hide) == "tcp"


@pytest.mark.parametrize(("transport_said", "path"), [("auto", "local"), ("local", "local"), ("tcp", "tcp")])
def test_transport_overrides(asking: Asking, transport_said: str, path: str) -> None:
    assert asking.transport("server", FOREBAY_TRANSPORT=transport_said) == path


def test_local_where_the_server_is_not_is_an_error(asking: Asking, server: StagingServer) -> None:
    socket = Path((server.root / "endpoint").read_text().strip())
    hide = (*OWN_MOUNTS, "sh", "-c", f'mount -t tmpfs none "{socket.parent}" && exec "$@"', "sh")
    status, _, errors = asking.run("consumer", "-m", "forebay", "ping", before=hide, FOREBAY_TRANSPORT="local")
    assert status == 1
    assert "is on another node" in errors
    assert "FOREBAY_TRANSPORT=auto" in errors
