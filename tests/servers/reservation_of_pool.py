# SPDX-License-Identifier: Apache-2.0
"""One reservation of a pool of three servers, as it lies on their disks, and managers that die."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from forebay.instance import Instance
from forebay.workflows.manager.instance.daemon import is_locked
from tests.support.cluster import CommandLineCluster
from tests.support.load import until
from tests.support.pool_nodes import asked

__all__ = [
    "NAME",
    "NODES",
    "is_empty",
    "kill_manager",
    "leave_nothing",
    "listed",
    "manager_runs",
    "mortal_manager",
    "on_disk",
    "root",
]

NAME = "wide"
NODES = (1, 2, 3)


def root(pool: CommandLineCluster, node: int) -> Path:
    return pool.folder / f"node{node}" / "root"


def on_disk(pool: CommandLineCluster, node: int) -> dict[str, list[int]]:
    """What a server has of reservations: the segments of each, by id."""
    there = root(pool, node) / "reservations"
    return {
        entry.name: sorted(int(segment.name) for segment in (entry / "segments").iterdir()) for entry in there.iterdir()
    }


def is_empty(pool: CommandLineCluster) -> bool:
    """No server has anything of a reservation, nor of one that was."""
    return not any(
        entry
        for node in NODES
        for folder in ("reservations", "quarantine")
        for entry in (root(pool, node) / folder).iterdir()
    )


def listed(pool: CommandLineCluster, node: int) -> list[str]:
    return [info["name"] for info in asked(pool, node, "ls")["reservations"]]


def leave_nothing(pool: CommandLineCluster) -> None:
    """All servers and the manager are there again, and have nothing of the reservation."""
    for state in pool.ask("status")["nodes"]:
        if state["node"] in NODES and not state["serves"]:
            pool.must("heal", str(state["node"]))
    pool.run("exec", "1", "--", sys.executable, "-m", "forebay", "destroy", NAME, "--force")
    until(lambda: is_empty(pool), "nothing is left on any server")


def manager_runs(pool: CommandLineCluster) -> bool:
    return is_locked(Instance(root(pool, 1)).manager_lock)


def kill_manager(pool: CommandLineCluster) -> None:
    instance = Instance(root(pool, 1))
    os.kill(json.loads(instance.manager_identity.read_text())["pid"], signal.SIGKILL)
    until(lambda: not is_locked(instance.manager_lock), "the manager has ended")


def mortal_manager(pool: CommandLineCluster, fail_point: str) -> None:
    """From now on the manager is one that dies there, maybe while it begins."""
    kill_manager(pool)
    up = ("exec", "1", "--", sys.executable, "-m", "forebay", "up")
    done = pool.run(*up, FOREBAY_FAIL_POINT=f"{fail_point}=kill")
    assert done.returncode == 0 or not manager_runs(pool), done.stdout + done.stderr
