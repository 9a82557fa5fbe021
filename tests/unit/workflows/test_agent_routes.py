# SPDX-License-Identifier: Apache-2.0
"""What the manager takes from an agent's request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from forebay.errors import PermissionDeniedError
from forebay.workflows.files.agent_calls import AgentCalls
from forebay.workflows.files.agent_proof import agent_proof
from forebay.workflows.files.pool_engines import PoolEngines
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.slurm.agent_routes import AgentTurn, take_turn

_ROOTS = {"": "root-of-ssd1", "ssd2": "root-of-ssd2"}


class Manager:
    """One run of it, the third."""

    def __init__(self, folder: Path) -> None:
        self.calls = AgentCalls(_ROOTS.__getitem__)
        self._engines = cast(PoolEngines, SimpleNamespace(agents=self.calls, incarnation=3))
        self._servers = cast(Servers, SimpleNamespace(root_uuid=_ROOTS.__getitem__))
        self.key = folder / "pool.key"
        self.key.write_text("0123\n")

    def take(self, **said: Any) -> dict[str, Any]:
        """A request of the agent's."""
        proof = agent_proof(str(self.key), "ssd2", _ROOTS["ssd2"], "a")
        known = {"server": "ssd2", "root_uuid": _ROOTS["ssd2"], "agent": "a", "proof": proof, "wait_seconds": 10.0}
        none = {"manager": "", "incarnation": 0, "shown": [], "ended": [], "answers": [], "under_way": []}
        return take_turn(AgentTurn(**{**known, **none, **said}), self._engines, self._servers, str(self.key))


def test_answers_to_an_earlier_run_of_the_manager_are_answers_to_nothing(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(manager.calls.ask, "ssd2", "stop", "an id", {}, 60.0)
        while not (said := manager.take())["calls"]:
            pass
        assert (said["manager"], said["incarnation"]) == ("root-of-ssd1", 3)
        (call,) = said["calls"]
        answers = [{"number": call["number"], "result": "of another call"}]
        for whose in ({"incarnation": 2, "manager": "root-of-ssd1"}, {"incarnation": 3, "manager": "another"}):
            # The call comes again: the agent did not get it.
            assert manager.take(**whose, answers=answers)["calls"] == [call]
            assert manager.take(**whose, under_way=[call["number"]])["calls"] == [call]
        answers[0]["result"] = "stopped"
        manager.take(manager="root-of-ssd1", incarnation=3, answers=answers, wait_seconds=0)
        assert asking.result() == "stopped"


def test_what_daemons_count_to_is_known_of_each_server(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    manager.take(cgroup_problem="Read-only file system", wait_seconds=0)
    assert manager.calls.cgroup_problems() == {"ssd2": "Read-only file system"}
    manager.take(wait_seconds=0)  # mended, or of an agent that does not say
    assert manager.calls.cgroup_problems() == {}


def test_without_the_pools_key_nothing_is_taken_or_given(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    with pytest.raises(PermissionDeniedError, match="pool's key"):
        manager.take(proof="", wait_seconds=0)
