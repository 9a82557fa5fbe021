# SPDX-License-Identifier: Apache-2.0
"""The manager of a pool is killed before and after each call of its servers, and each change of its database."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.servers.reservation_of_pool import (
    NAME,
    NODES,
    is_empty,
    kill_manager,
    leave_nothing,
    manager_runs,
    mortal_manager,
    on_disk,
)
from tests.support.cluster import CommandLineCluster
from tests.support.load import until
from tests.support.pool_nodes import COMPUTES, asked, servers
from tests.support.sweeps import Sweep

pytestmark = [pytest.mark.timeout(1800), pytest.mark.xdist_group("members")]

#: What the manager of a pool is asked for in a reservation's life, each from a node, in this order.
LIFE = (
    (COMPUTES, ("create", NAME, "--capacity", "96MiB", "--servers", "3", "--persistent")),
    (3, ("share", NAME, "--user", "1", "--rights", "write")),
    (3, ("share", NAME, "--user", "1", "--rights", "none")),
    (COMPUTES, ("change", NAME, "--not-persistent")),
    (2, ("drain", "node3", "--reason", "disk")),
    (2, ("undrain", "node3")),
    (COMPUTES, ("destroy", NAME)),
)
#: No more than a life has of each.
POINTS_MIN = {"call": 32, "change": 8}


class MortalLife:
    """A reservation's life with a manager that dies once. What failed with it is asked again of the next one."""

    def __init__(self, pool: CommandLineCluster) -> None:
        self._pool = pool
        self.deaths = 0

    def ask(self, node: int, *arguments: str) -> None:
        """Until it succeeds: at once, or with the next manager."""
        failed = self._fails(node, *arguments)
        if self.note_death() and failed:
            failed = self._fails(node, *arguments)
        assert not failed, f"{' '.join(arguments)} on node {node}: {failed}"

    def note_death(self) -> bool:
        """The next manager is there, if this one has died."""
        if manager_runs(self._pool):
            return False
        self._pool.must("heal", "1")
        self.deaths += 1
        return True

    def _fails(self, node: int, *arguments: str) -> str:
        done = self._pool.run("exec", str(node), "--", sys.executable, "-m", "forebay", *arguments)
        return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture(autouse=True)
def all_is_as_it_was(pool: CommandLineCluster) -> Iterator[None]:
    """Whatever the test leaves is ended, and the manager lives."""
    yield
    if manager_runs(pool):
        kill_manager(pool)
    pool.must("heal", "1")
    leave_nothing(pool)


def is_whole(pool: CommandLineCluster) -> bool:
    """Each server has its share of one and the same reservation."""
    found = [on_disk(pool, node) for node in NODES]
    return all(len(there) == 1 for there in found) and len({name for there in found for name in there}) == 1


# crash-matrix: the life of a reservation over several servers | manager, before it asks one of the servers, at `manager.call.before` | asked again of the next manager: whole on all servers, then on none; nothing is left
# crash-matrix: the life of a reservation over several servers | manager, when one of the servers has done what it asked, at `manager.call.after` | asked again of the next manager: whole on all servers, then on none; nothing is left
# crash-matrix: the life of a reservation over several servers | manager, before, within or after a change of its database, at `manager.change.before`, `manager.change.before_commit`, `manager.change.after` | asked again of the next manager: whole on all servers, then on none; nothing is left
@pytest.mark.parametrize(
    "place",
    [
        "manager.call.before",
        "manager.call.after",
        "manager.change.before",
        "manager.change.before_commit",
        "manager.change.after",
    ],
)
def test_a_manager_that_dies_anywhere_leaves_a_reservation_whole_or_gone(
    pool: CommandLineCluster, sweep: Sweep, place: str
) -> None:
    for number in sweep.numbers(POINTS_MIN[place.split(".")[1]]):
        print(f"{place}:{number}")
        mortal_manager(pool, f"{place}:{number}")
        life = MortalLife(pool)
        for node, arguments in LIFE:
            life.ask(node, *arguments)
            if arguments[0] == "create":
                until(lambda: is_whole(pool), "it is whole")
        died = life.note_death() or life.deaths > 0
        if not died:
            # It would die of what is asked now.
            kill_manager(pool)
            pool.must("heal", "1")
        until(lambda: is_empty(pool), "nothing is left on any server")
        assert all(server["away_since_ns"] is None for server in servers(pool, 1).values())
        assert all(finding["severity"] != "problem" for finding in asked(pool, 1, "doctor")["findings"])
        if not died:
            sweep.ends_at(number)
            return
