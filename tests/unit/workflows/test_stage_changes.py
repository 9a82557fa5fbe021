# SPDX-License-Identifier: Apache-2.0
"""Who waits for a stage is woken, a manager that has run many remembers few, and that it stops is no stage's fault."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from forebay.manager.jobs import FilesJob
from forebay.manager.records import ReservationRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.stages.stage_changes import StageChanges
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor


def test_versions_of_few_ended_stages_are_kept() -> None:
    async def run() -> None:
        changes = StageChanges(ended_kept=10)
        for stage in range(100):
            await changes.announce(stage)
            await changes.announce(stage, ended=True)
            await changes.announce(stage, ended=True)
        await changes.announce(5)
        assert len(changes) == 11
        assert [changes.version(stage) for stage in (5, 89, 90, 99)] == [1, 0, 3, 3]

    asyncio.run(run())


def test_who_waits_is_woken_by_a_change_and_by_the_end() -> None:
    async def run() -> None:
        changes = StageChanges(ended_kept=0)
        waits = [asyncio.create_task(changes.wait(stage, 0, 600.0)) for stage in (1, 2)]
        await changes.announce(1)
        await waits[0]
        assert not waits[1].done()
        await changes.close()
        await waits[1]
        await changes.wait(1, 1, 600.0)

    asyncio.run(run())


def test_a_stage_that_is_not_tried_again_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process was killed, so it waits for its next attempt when it is cancelled."""
    program = tmp_path / "stage"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))

    async def run(database: Database) -> None:
        database.put_reservation(ReservationRow("run1", 0, False, os.geteuid(), os.getegid()))
        supervisor = StageSupervisor(database, tmp_path)
        await supervisor.start()
        job = FilesJob("run1", "data", str(tmp_path / "data"), inward=True)
        stage = (await supervisor.submit(job, tmp_path.stat().st_uid, tmp_path.stat().st_gid, 0o022)).id
        while (row := await supervisor.stage(stage)).state is not StageState.QUEUED or row.attempts == 0:
            assert not row.state.is_final, row
            await supervisor.wait_for_change(stage, supervisor.version(stage), 10.0)
        # It is written down that it failed before all of its run is over.
        while supervisor.delayed != [stage]:
            await asyncio.sleep(0)
        await supervisor.cancel(stage)
        assert supervisor.delayed == []
        await supervisor.stop()

    with contextlib.closing(Database(tmp_path / "manager.sqlite")) as database:
        asyncio.run(run(database))


def test_stops_of_the_manager_are_not_attempts_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "stage"
    program.write_text("#!/bin/sh\nexec cat\n")  # it ends with the manager
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))

    async def run(database: Database, stage: int | None) -> int:
        supervisor = StageSupervisor(database, tmp_path)
        await supervisor.start()
        if stage is None:
            job = FilesJob("run1", "data", str(tmp_path / "data"), inward=True)
            stage = (await supervisor.submit(job, tmp_path.stat().st_uid, tmp_path.stat().st_gid, 0o022)).id
        while (row := await supervisor.stage(stage)).state is not StageState.RUNNING:
            assert not row.state.is_final, row
            await supervisor.wait_for_change(stage, supervisor.version(stage), 10.0)
        await supervisor.stop()
        return stage

    stage: int | None = None
    with contextlib.closing(Database(tmp_path / "manager.sqlite")) as database:
        database.put_reservation(ReservationRow("run1", 0, False, os.geteuid(), os.getegid()))
        for _ in range(3):
            stage = asyncio.run(run(database, stage))
            row = database.stage(stage)
            assert (row.state, row.attempts) == (StageState.QUEUED, 1)
