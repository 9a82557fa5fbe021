# SPDX-License-Identifier: Apache-2.0
"""Nodes are killed, paused, cut off and healed at random; the history of what everybody was told keeps every promise.

FOREBAY_SOAK_SECONDS is how long, FOREBAY_TEST_SEED what is drawn. The history is left in build/remote-soak/SEED/.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from forebay.workflows.cluster.cluster import Cluster
from forebay.workflows.cluster.network import why_not
from tests.remote_faults.node_soak import NodeSoak
from tests.soak.test_soak import SECONDS, impatient_server
from tests.support.cluster import CommandLineCluster
from tests.support.randomness import TEST_SEED

_BREACHES_TOLD_MAX = 40


@pytest.mark.timeout(2 * SECONDS + 500)
# crash-matrix: everything at once on several nodes, at random | ranks, readers, server and manager killed or stopped, each node cut off and healed | steps, their order, epochs, cursors and watermarks are as everybody was told
def test_history_of_nodes_that_fail_keeps_every_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    folder = Path("build/remote-soak").absolute() / str(TEST_SEED)
    shutil.rmtree(folder, ignore_errors=True)
    binary = impatient_server(tmp_path)
    cluster = CommandLineCluster(
        tmp_path / "c", "--nodes", "3", "--netns", "--capacity", "256MiB", server_binary=binary
    )
    with cluster:
        monkeypatch.setenv("FOREBAY_SERVER_BINARY", str(binary))
        monkeypatch.setenv("FOREBAY_ROOT", str(cluster.folder / "node1" / "root"))
        cluster.forebay(1, "create", "north", "--capacity", "128MiB", "--persistent")
        tokens = {right: tmp_path / f"{right}.token" for right in ("read", "write")}
        for right, file in tokens.items():
            cluster.forebay(1, "token", "create", "north", "--rights", right, "--output", str(file))
        soak = NodeSoak(Cluster.find(cluster.folder), tokens, folder, seed=TEST_SEED, seconds=SECONDS)
        breaches = soak.run()
        with capfd.disabled():
            print(f"\nnode soak with FOREBAY_TEST_SEED={TEST_SEED}: {soak.summary()}")
        if breaches:
            told = "\n".join(str(breach) for breach in breaches[:_BREACHES_TOLD_MAX])
            pytest.fail(f"FOREBAY_TEST_SEED={TEST_SEED}, {len(breaches)} breaches, {folder}:\n{told}", pytrace=False)
        assert min(soak.commits, soak.reads) > 0, soak.summary()
