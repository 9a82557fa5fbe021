# SPDX-License-Identifier: Apache-2.0
"""A pool of three servers on nodes with networks of their own, and a node that only computes: fixtures, and what
commands on these nodes say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.remote.nodes import why_not
from tests.support.cluster import CommandLineCluster
from tests.support.munged import Munged, why_no_munge

__all__ = ["COMPUTES", "asked", "munged", "nodes_possible", "pool", "refused", "servers"]

#: The node that only computes; nodes 1 to 3 have servers, and node 1 the manager.
COMPUTES = 4


@pytest.fixture(scope="session")
def nodes_possible() -> None:
    """Skips where there can be no nodes."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def munged() -> Iterator[Munged]:
    """Says who asks on nodes without a server."""
    if reason := why_no_munge():
        pytest.skip(reason)
    with Munged() as running:
        yield running


@pytest.fixture(scope="module")
def pool(
    nodes_possible: None, munged: Munged, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CommandLineCluster]:
    """Nodes 1 to 3 are one pool, node 4 computes."""
    options = ("--nodes", "4", "--servers", "3", "--netns", "--capacity", "256MiB")
    folder = tmp_path_factory.mktemp("pool")
    with CommandLineCluster(folder, *options, FOREBAY_MUNGE_SOCKET=str(munged.socket)) as cluster:
        yield cluster


def asked(pool: CommandLineCluster, node: int, *arguments: str) -> Any:
    """What a command on a node says with ``--json``."""
    return json.loads(pool.forebay(node, *arguments, "--json"))


def servers(pool: CommandLineCluster, node: int) -> dict[str, dict[str, Any]]:
    """What `forebay servers` says on a node, by name."""
    return {server["server"]: server for server in asked(pool, node, "servers")["servers"]}


def refused(pool: CommandLineCluster, node: int, *arguments: str) -> str:
    """What a command that fails says."""
    done = pool.run("exec", str(node), "--", sys.executable, "-m", "forebay", *arguments)
    assert done.returncode != 0, done.stdout
    return done.stderr
