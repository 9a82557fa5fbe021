# SPDX-License-Identifier: Apache-2.0
"""The manager dies at each change that it writes down, at each call to the server, and around each stager.

FOREBAY_TEST_COUNT=8 tries every one; by default each eighth change, third call and second stager, from one that the
seed chooses.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import forebay
from forebay.errors import DisconnectedError
from forebay.workflows.manager.client import ManagerClient
from forebay.workflows.staging.job import StepsJob
from tests.fault.conftest import numbers
from tests.support.instance import CommandLineInstance
from tests.support.staged_output import check_destination, receipt_entries, stray_names

Answer = TypeVar("Answer")

STEPS = 4


class Workday:
    """What users ask a manager for in turn; where it dies it is started again, and asked again."""

    def __init__(self, instance: CommandLineInstance, out: Path) -> None:
        self.instance = instance
        self.out = out
        self.deaths = 0

    def insist(self, ask: Callable[[ManagerClient], Answer]) -> Answer:
        """The answer, also if the manager dies over the question."""
        while True:
            try:
                with self.instance.manager() as manager:
                    return ask(manager)
            except DisconnectedError:
                self.deaths += 1
                assert self.deaths == 1, "it died twice"
                self.instance.up()

    def run(self) -> None:
        """Reservations come and go, and a stream is staged out."""
        wish: dict[str, Any] = {"persistent": True, "access_mode": "striped", "kind": "scratch"}
        self.insist(lambda manager: manager.create("kept", "16MiB", **wish))
        self.insist(lambda manager: manager.create("spare", "16MiB", **wish))
        with forebay.open("kept/flow", "w", retention="precious:1", durability="durable") as stream:
            for number in range(STEPS):
                with stream.step() as step:
                    step["T"] = np.full(1000, number)
        self.insist(lambda manager: manager.destroy("spare", force=False))
        job = StepsJob("kept/flow", str(self.out))
        number = self.insist(lambda manager: manager.submit(job))["id"]
        assert self.outcome(number) == "succeeded"
        cancelled = self.insist(lambda manager: manager.submit(replace(job, follow=True)))["id"]
        self.insist(lambda manager: manager.cancel(cancelled))
        self.outcome(cancelled)

    def outcome(self, number: int) -> str:
        """State of a stage once it is over."""
        row: dict[str, Any] = {"version": -1, "finished_ns": None}

        def ask(manager: ManagerClient) -> dict[str, Any]:
            return manager.stage(number, seen=row["version"], wait_seconds=5)

        while row["finished_ns"] is None:
            row = self.insist(ask)
        state: str = row["state"]
        return state

    def check(self) -> None:
        """All was done, once."""
        assert sorted(receipt_entries(self.out)) == list(range(STEPS))
        check_destination(self.out)
        assert stray_names(self.out) == set()
        with forebay.Admin() as admin:
            assert [info.name for info in admin.reservations()] == ["kept"]
            assert [(step.staged, step.precious) for step in admin.steps("kept/flow")] == [(True, False)] * STEPS
        rows = self.insist(lambda manager: manager._ask_list("GET", "/reservations"))
        assert [row["name"] for row in rows] == ["kept"]
        assert self.instance.ask("doctor", "--read-data")["clean"] is True


@pytest.mark.parametrize(
    "place",
    [
        "manager.change.before",
        "manager.change.before_commit",
        "manager.change.after",
        "manager.call.before",
        "manager.call.after",
        "manager.stage.spawned",
        "manager.stage.ended",
    ],
)
# crash-matrix: the manager's work | manager, before it writes a change down, at `manager.change.before` | asked again after `forebay up`: everything done, once; doctor finds nothing
# crash-matrix: the manager's work | manager, within a change of its database, at `manager.change.before_commit` | asked again after `forebay up`: everything done, once; doctor finds nothing
# crash-matrix: the manager's work | manager, behind a change of its database, at `manager.change.after` | asked again after `forebay up`: everything done, once; doctor finds nothing
# crash-matrix: the manager's work | manager, before it asks the server, at `manager.call.before` | asked again after `forebay up`: everything done, once; doctor finds nothing
# crash-matrix: the manager's work | manager, when the server has done it, at `manager.call.after` | asked again after `forebay up`: everything done, once; doctor finds nothing
# crash-matrix: stages | manager, when it has started a stager, at `manager.stage.spawned` | the stage goes on with the next manager
# crash-matrix: stages | manager, when a stager has ended, at `manager.stage.ended` | the stage goes on with the next manager
@pytest.mark.timeout(1800)
def test_a_manager_that_dies_in_any_state_is_started_again_and_goes_on(
    chance: random.Random,
    rounds: Callable[[int], int],
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One `forebay up` and the question asked again: nothing is lost, and nothing is left behind."""
    stride = {"stage": 2, "call": 3, "change": 8}[place.split(".")[1]]
    for number in numbers(chance, stride, rounds):
        print(f"{place}:{number}")
        with pytest.MonkeyPatch.context() as armed:
            armed.setenv("FOREBAY_FAIL_POINT", f"{place}:{number}=kill")
            instance = CommandLineInstance(tmp_path / str(number))
            monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
            started = instance.run("up", "--capacity", "1GiB")
        day = Workday(instance, tmp_path / f"{number}.out")
        with instance:  # brings up what died while it started
            day.run()
            if day.deaths == 0:
                instance.kill_manager()  # or it would die of being asked how it is
                instance.up()
            day.check()
        if started.returncode == 0 and day.deaths == 0:
            assert number > stride, "the workday does not come by there"
            return
