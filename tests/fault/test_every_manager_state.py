# SPDX-License-Identifier: Apache-2.0
"""The manager dies at each change that it writes down, at each call to the server, and around each stager; the one that
begins the workday, and the one that ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forebay.errors import DisconnectedError
from forebay.manager.client import ManagerClient
from tests.fault.workday import Answer, Workday
from tests.support.instance import CommandLineInstance
from tests.support.sweeps import Sweep

pytestmark = pytest.mark.instance


class DeadlyWorkday(Workday):
    """Its managers die at the place that ``fail_point`` says; they are started again, and asked again."""

    def __init__(self, instance: CommandLineInstance, folder: Path, fail_point: str) -> None:
        super().__init__(instance, folder)
        self.deaths = 0
        self._fail_point = fail_point
        self._armed = False

    def come_up(self) -> None:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("FOREBAY_FAIL_POINT", self._fail_point)
            started = self.instance.run("up", "--capacity", "1GiB")
        self._armed = True
        if started.returncode != 0:
            self._revive()

    def insist(self, ask: Callable[[ManagerClient], Answer]) -> Answer:
        while True:
            try:
                return super().insist(ask)
            except DisconnectedError:
                self._revive()

    def go_down(self) -> None:
        """Another manager does what the first died over; one that dies when it has done that is not missed."""
        before = self._clean_ends()
        super().go_down()
        if self._clean_ends() == before or self._starts() > 1 + self.deaths:
            self._note_death()
        self._armed = False

    def disarm(self) -> None:
        """Or it would die of being asked how it is."""
        if self._armed:
            self.instance.kill_manager()
            self._armed = False
            self.instance.up()

    def _revive(self) -> None:
        self._note_death()
        self.instance.up()

    def _note_death(self) -> None:
        assert self._armed, f"it died twice\n{self.instance.logs()}"
        self._armed = False
        self.deaths += 1

    def _starts(self) -> int:
        return self.instance.files.manager_log.read_text().count("forebay.manager: serving")

    def _clean_ends(self) -> int:
        return self.instance.files.manager_log.read_text().count("forebay.manager: ended")


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
# crash-matrix: the manager's work | manager, after a change of its database, at `manager.change.after` | asked again after `forebay up`: everything done, once; doctor finds nothing
# crash-matrix: the manager's work | manager, before it asks the server, at `manager.call.before` | asked again after `forebay up`: everything done, once; doctor finds nothing
# crash-matrix: the manager's work | manager, when the server has done it, at `manager.call.after` | asked again after `forebay up`: everything done, once; doctor finds nothing
# crash-matrix: stages | manager, when it has started a stager, of steps or of files, at `manager.stage.spawned` | the stage goes on with the next manager
# crash-matrix: stages | manager, when a stager has ended, well or not, at `manager.stage.ended` | the stage goes on with the next manager
@pytest.mark.timeout(1800)
def test_a_manager_that_dies_in_any_state_is_started_again_and_goes_on(
    sweep: Sweep,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One `forebay up` and the question asked again: nothing is lost, and nothing is left behind."""
    # No more than the shortest workday has of each.
    for number in sweep.numbers({"stage": 5, "call": 8, "change": 24}[place.split(".")[1]]):
        print(f"{place}:{number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        instance = CommandLineInstance(folder / "root")
        monkeypatch.setenv("FOREBAY_ROOT", str(instance.root))
        day = DeadlyWorkday(instance, folder, f"{place}:{number}=kill")
        day.come_up()
        with instance:
            day.run()
            day.disarm()
            day.check()
        if day.deaths == 0:
            sweep.ends_at(number)
            return
