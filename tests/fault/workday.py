# SPDX-License-Identifier: Apache-2.0
"""What users ask a manager for in turn, from its first start over an evening's `forebay down` to the next day's end.

Tests disturb the manager at it. What fails over that is asked again; in the end everything was done, once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import forebay
from forebay.manager.client import ManagerClient
from forebay.manager.jobs import FilesJob, Job, StepsJob
from forebay.manager.records import StageStatus
from tests.support.instance import CommandLineInstance
from tests.support.staged_output import check_destination, receipt_entries, stray_names
from tests.support.time_limits import seconds

__all__ = ["Workday"]

Answer = TypeVar("Answer")
#: Longest wait for a stage; the machine may be busy.
STAGE_SECONDS_MAX = seconds(120)
STEPS = 4
MESH = b"mesh" * 1000


class Workday:
    """One manager's users; a test overrides how they ask, and how the instance goes down and up."""

    #: Failures of a stage after which its user asks again: another stage of theirs held the destination.
    passing = frozenset({"busy"})

    def __init__(self, instance: CommandLineInstance, folder: Path) -> None:
        self.instance = instance
        self.folder = folder
        self.out = folder / "out"
        self.live_out = folder / "live"
        self.failed = 0  #: the stage that found no source
        (folder / "inputs" / "deep").mkdir(parents=True)
        (folder / "inputs" / "deep" / "mesh").write_bytes(MESH)

    def insist(self, ask: Callable[[ManagerClient], Answer]) -> Answer:
        """The answer to a question."""
        with self.instance.manager() as manager:
            return ask(manager)

    def look(self, ask: Callable[[ManagerClient], Answer]) -> Answer:
        """The answer to a question that changes nothing."""
        return self.insist(ask)

    def write(self, address: str, **options: Any) -> forebay.WritableStream:
        """A stream that a user opens for writing, which is the server's affair and not the manager's."""
        return forebay.open(address, "w", **options)

    def go_down(self) -> None:
        """The instance is taken down."""
        self.instance.ask("down")

    def come_up(self) -> None:
        """It is taken up again."""
        self.instance.up()

    def run(self) -> None:
        """Both days."""
        self.reservations_and_files()
        self.steps()
        with self.write("kept/live", grace=600) as live:
            with live.step() as step:
                step["T"] = np.full(1000, 0)
            following, waiting = self.stages_that_last()
            self.insist(lambda manager: manager.create("passing", "8MiB", **lifetime(persistent=False)))
            self.go_down()
            self.come_up()
            with live.step() as step:
                step["T"] = np.full(1000, 1)
        for number, job in ((following, self.live_job(follow=True)), (waiting, self.live_job())):
            self.succeed(job, number)
        self.failed_stage_is_mended()
        job = replace(self.live_job(follow=True), destination=str(self.folder / "cancelled"))
        number = self.insist(lambda manager: manager.submit(job)).id
        self.insist(lambda manager: manager.cancel(number))
        self.outcome(number)

    def reservations_and_files(self) -> None:
        """Reservations come and go; a tree is staged in and out again."""
        self.insist(lambda manager: manager.create("kept", "16MiB", **lifetime()))
        self.insist(lambda manager: manager.create("spare", "16MiB", **lifetime()))
        self.succeed(FilesJob("kept", "inputs", str(self.folder / "inputs"), inward=True))
        self.insist(lambda manager: manager.destroy("spare", force=False))
        self.succeed(FilesJob("kept", "inputs", str(self.folder / "outputs"), inward=False))

    def steps(self) -> None:
        """A stream is staged out; another stage finds no source, and is left there."""
        with self.write("kept/flow", retention="precious:1", durability="durable") as stream:
            for number in range(STEPS):
                with stream.step() as step:
                    step["T"] = np.full(1000, number)
        self.succeed(StepsJob("kept/flow", str(self.out)))
        number = self.insist(lambda manager: manager.submit(self.late_job())).id
        assert failure_code(self.outcome(number)) == "not_found"
        self.failed = number

    def live_job(self, *, follow: bool = False) -> StepsJob:
        """Of a stream that is being written."""
        return StepsJob("kept/live", str(self.live_out), follow=follow)

    def late_job(self) -> FilesJob:
        """Of a file that is not there on the first day."""
        return FilesJob("kept", "late", str(self.folder / "late"), inward=True)

    def stages_that_last(self) -> tuple[int, int]:
        """One runs, and one waits for the destination of the first."""
        # One that was asked for twice, the first time over the death of the manager, waits as well.
        following = self.submit_until(
            self.live_job(follow=True), lambda row: row.progress.get("items_done") == 1 or has_found_busy(row)
        )
        while True:
            waiting = self.submit_until(self.live_job(), lambda row: has_found_busy(row) or row.state == "succeeded")
            # The next manager starts what was running and what is asked for anew in no order: the second one
            # may be through before the first has its destination again.
            if has_found_busy(waiting):
                return following.id, waiting.id

    def failed_stage_is_mended(self) -> None:
        """It is still to be seen what failed, and why; asked for again, it is done."""
        row = self.look(lambda manager: manager.stage(self.failed))
        assert (row.state, failure_code(row)) == ("failed", "not_found")
        (self.folder / "late").write_bytes(MESH)
        self.succeed(self.late_job())

    def succeed(self, job: Job, number: int | None = None) -> None:
        """The stage ends well; one that only another one was in the way of is asked for again."""
        if number is None:
            number = self.insist(lambda manager: manager.submit(job)).id
        while (row := self.outcome(number)).state != "succeeded":
            assert row.state == "failed"
            assert failure_code(row) in self.passing, row.failure
            number = self.insist(lambda manager: manager.submit(job)).id

    def submit_until(self, job: Job, holds: Callable[[StageStatus], bool]) -> StageStatus:
        """A stage once it is as wanted; one that began amid what disturbs the manager, and failed of it, is asked for
        again.
        """

        def failed_in_passing(row: StageStatus) -> bool:
            return row.state == "failed" and failure_code(row) in self.passing

        while True:
            number = self.insist(lambda manager: manager.submit(job)).id
            row = self.wait_for(number, lambda row: holds(row) or failed_in_passing(row))
            if holds(row):
                return row

    def outcome(self, number: int) -> StageStatus:
        """A stage once it is over."""
        return self.wait_for(number, lambda row: row.finished_ns is not None)

    def wait_for(self, number: int, holds: Callable[[StageStatus], bool]) -> StageStatus:
        """A stage once it is as wanted; woken by its changes."""
        seen = -1
        deadline = time.monotonic() + STAGE_SECONDS_MAX

        def ask(manager: ManagerClient) -> StageStatus:
            return manager.stage(number, seen=seen, wait_seconds=5)

        while True:
            row = self.look(ask)
            if holds(row):
                return row
            assert row.finished_ns is None, row
            assert time.monotonic() < deadline, f"still {row}"
            seen = row.version

    def check(self) -> None:
        """All was done, once."""
        for row in self.look(lambda manager: manager.stages()):
            self.outcome(row.id)
        for out, count in ((self.out, STEPS), (self.live_out, 2)):
            assert sorted(receipt_entries(out)) == list(range(count))
            check_destination(out)
            assert stray_names(out) == set()
        with forebay.Admin() as admin:
            assert [info.name for info in admin.reservations()] == ["kept"]
            assert [(step.staged, step.precious) for step in admin.steps("kept/flow")] == [(True, False)] * STEPS
            files = Path(admin.reservation("kept").files_path)
        for place in (files / "inputs" / "deep" / "mesh", self.folder / "outputs" / "deep" / "mesh", files / "late"):
            assert place.read_bytes() == MESH
        hidden = [path.name for path in (*files.iterdir(), *self.folder.iterdir()) if path.name.startswith(".")]
        assert hidden == []
        rows = self.look(lambda manager: manager.reservations())
        assert [(row.name, row.state) for row in rows] == [("kept", "present")]
        assert self.instance.ask("doctor", "--read-data")["clean"] is True
        assert not re.search("Traceback|internal", self.instance.logs()), self.instance.logs()


def lifetime(*, persistent: bool = True) -> dict[str, Any]:
    """How reservations are asked for here."""
    return {"persistent": persistent}


def has_found_busy(row: StageStatus) -> bool:
    """True once a stage has found its destination taken by another one."""
    return failure_code(row) == "busy"


def failure_code(row: StageStatus) -> str:
    """Of a stage's last failure; "" if it has none."""
    return "" if row.failure is None else str(row.failure["code"])
