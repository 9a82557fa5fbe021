# SPDX-License-Identifier: Apache-2.0
"""A pool of three servers on disks that fail, and runs of plans on it. One that breaks a promise says how to replay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forebay.workflows.cluster.cluster import Cluster
from tests.server_faults.plan import plan_of
from tests.server_faults.pool_nodes import PoolNodes
from tests.server_faults.pool_run import PoolRun
from tests.support.cluster import CommandLineCluster
from tests.support.frail_disk import frail_server
from tests.support.munged import Munged

__all__ = ["faulty_pool", "run_seed"]

#: How long writer groups have to come back after a restart of their home. Many of a run never do.
_RESTART_GRACE_MS = 3000
_BREACHES_TOLD_MAX = 40


@contextmanager
def faulty_pool(folder: Path, munged: Munged) -> Iterator[PoolNodes]:
    """Its nodes."""
    binary = frail_server(folder, "--restart-grace-ms", str(_RESTART_GRACE_MS))
    options = ("--nodes", "4", "--servers", "3", "--netns", "--capacity", "256MiB")
    variables = {"FOREBAY_MUNGE_SOCKET": str(munged.socket)}
    with (
        CommandLineCluster(folder / "c", *options, server_binary=binary, **variables) as cluster,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("FOREBAY_SERVER_BINARY", str(binary))
        for name, value in variables.items():
            environment.setenv(name, value)
        yield PoolNodes(Cluster.find(cluster.folder), variables)


def run_seed(nodes: PoolNodes, seed: int, actions: int, kinds: tuple[str, ...] = ()) -> str:
    """Runs a seed's plan and fails if it breaks a promise. Returns what was done."""
    folder = Path("build/server-faults").absolute() / str(seed)
    plan = plan_of(seed, actions, 2, *([kinds] if kinds else []))
    replay = f"FOREBAY_TEST_SEED={seed} FOREBAY_TEST_COUNT=1 FOREBAY_TEST_ACTIONS={actions}"
    print(f"server faults: {replay}, history in {folder}")
    with PoolRun(nodes, folder, seed) as run:
        breaches = run.run(plan)
        done = run.summary()
    if breaches:
        told = "\n".join(str(breach) for breach in breaches[:_BREACHES_TOLD_MAX])
        pytest.fail(f"{replay} replays it: {len(breaches)} breaches, history in {folder}:\n{told}", pytrace=False)
    return f"seed {seed}: {done}"


def actions(otherwise: int) -> int:
    """How many a run has."""
    return int(os.environ.get("FOREBAY_TEST_ACTIONS") or otherwise)
