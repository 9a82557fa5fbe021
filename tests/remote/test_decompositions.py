# SPDX-License-Identifier: Apache-2.0
"""N to M over nodes: writers on two, readers on two others, each with a decomposition of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay.workflows.cluster.network import Network
from tests.remote.nodes import PORT, RemoteProgram
from tests.remote.programs import HERE
from tests.support.staging_server import StagingServer

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("nodes-decompositions")]

STEPS = 6
RANKS = 4
READERS = 3
SERVER = 1


class FiveNodes(Network):
    """A server, two nodes of producers, two of consumers, by their numbers."""

    def prefix_of(self, kind: str) -> tuple[str, ...]:
        """What runs a command on this node."""
        return self.prefix(int(kind))


@pytest.fixture
def five_nodes(nodes_possible: None) -> Iterator[FiveNodes]:
    """The nodes."""
    with FiveNodes(f"fbx{os.getpid()}", 5) as made:
        yield made


@pytest.fixture
def home(five_nodes: FiveNodes, tmp_path: Path) -> Iterator[StagingServer]:
    """A server with a reservation ``run1``."""
    options = ("--listen", f"0.0.0.0:{PORT}")
    prefix = five_nodes.prefix(SERVER)
    with StagingServer(tmp_path / "root", options=options, prefix=prefix, capacity="512MiB") as made:
        with forebay.Admin(made.root) as admin:
            admin.create("run1", "256MiB")
        yield made


class Ranks:
    """Starts ranks of programs on nodes."""

    def __init__(self, nodes: FiveNodes, home: StagingServer, folder: Path) -> None:
        self._nodes = nodes
        self._token = folder / "token"
        with forebay.Admin(home.root) as admin:
            text = admin.create_token("run1", rights=("read", "write"), lifetime=3600)
        self._token.touch(0o600)
        self._token.write_text(text + "\n")

    def start(self, what: str, node: int, rank: int, ranks: int) -> RemoteProgram:
        """One rank."""
        return RemoteProgram(
            self._nodes,
            str(node),
            HERE / "rank_program.py",
            *(what, "run1/flow", str(rank), str(ranks), str(STEPS)),
            token=self._token,
            PYTHONPATH=str(HERE.parent.parent),
            FOREBAY_SERVER=f"{self._nodes.address(SERVER)}:{PORT}",
            FOREBAY_TRANSPORT="tcp",
        )


@pytest.fixture
def ranks(five_nodes: FiveNodes, home: StagingServer, tmp_path: Path) -> Ranks:
    """Programs of this test."""
    return Ranks(five_nodes, home, tmp_path)


def test_rows_from_two_nodes_are_columns_on_two_others(ranks: Ranks) -> None:
    with contextlib.ExitStack() as running:
        readers = [running.enter_context(ranks.start("read", 4 + rank % 2, rank, READERS)) for rank in range(READERS)]
        writers = [running.enter_context(ranks.start("write", 2 + rank % 2, rank, RANKS)) for rank in range(RANKS)]
        everything = [str(number) for number in range(STEPS)]
        for program in (*writers, *readers):
            assert program.succeed().split() == everything


def test_a_consumer_group_shares_steps_across_nodes(ranks: Ranks) -> None:
    with contextlib.ExitStack() as running:
        first = running.enter_context(ranks.start("share", 4, 0, 2))
        second = running.enter_context(ranks.start("share", 5, 1, 2))
        # They begin when both readers are there.
        writers = [running.enter_context(ranks.start("write", 2 + rank % 2, rank, RANKS)) for rank in range(RANKS)]
        for writer in writers:
            writer.succeed()
        given = [[int(line) for line in reader.succeed().split()] for reader in (first, second)]
    assert sorted(given[0] + given[1]) == list(range(STEPS))
    assert all(given)
