# SPDX-License-Identifier: Apache-2.0
"""Stages that programs ask for: kept, found by their path, limited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import RefusedError
from forebay.manager.jobs import FilesJob
from forebay.manager.records import JobRow, JobState, ReservationRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.stages.asked_stages import Asking
from forebay.workflows.manager.core.stages.stage_concurrency import StageConcurrency
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor

JOB = FilesJob("mesh", "a", "/pfs/a", inward=False, only="file")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with contextlib.closing(Database(tmp_path / "manager.sqlite")) as opened:
        yield opened


def asking(path: str, job: int = 0, uid: int = 7) -> Asking:
    return Asking(uid, "id-1", path, directory=False, job=job)


def test_the_newest_stage_of_a_path_is_found_and_revoked_ones_are_not(database: Database, tmp_path: Path) -> None:
    odd = b"e\xe9%_'\n".decode(errors="surrogateescape")

    async def run() -> None:
        supervisor = StageSupervisor(database, tmp_path)  # not started: nothing runs
        for path in ("a", "a", f"a/{odd}", "ab"):
            await supervisor.submit(JOB, 7, 7, 0o22, asking=asking(path), deferred=True)
        found = await supervisor.asked.newest_at(7, "id-1", ["a", f"a/{odd}", "b"])
        assert {path: stage.id for path, stage in found.items()} == {"a": 2, f"a/{odd}": 3}
        assert set(await supervisor.asked.newest_below(7, "id-1", "a")) == {"a", f"a/{odd}"}
        assert set(await supervisor.asked.newest_below(7, "id-1", "")) == {"a", f"a/{odd}", "ab"}
        assert await supervisor.asked.newest_at(8, "id-1", ["a"]) == {}
        assert await supervisor.asked.newest_at(7, "id-2", ["a"]) == {}
        assert await supervisor.revoke(2)
        assert not await supervisor.revoke(2)
        assert (await supervisor.asked.newest_at(7, "id-1", ["a"]))["a"].id == 1

    asyncio.run(run())


def test_a_job_that_stages_out_takes_no_more(database: Database, tmp_path: Path) -> None:
    jobs = JobTable(database)
    job = jobs.add("17", 7, 7, 1 << 24, {})

    async def run() -> None:
        supervisor = StageSupervisor(database, tmp_path)
        jobs.change(job.id, state=JobState.RUNNING)
        first = await supervisor.submit(JOB, 7, 7, 0o22, asking=asking("a", job.id), deferred=True)
        assert await supervisor.asked.due(job.id) == [first.id]
        jobs.change(job.id, state=JobState.DATA_OUT)
        with pytest.raises(RefusedError, match="takes no more"):
            await supervisor.submit(JOB, 7, 7, 0o22, asking=asking("b", job.id), deferred=True)
        assert [row.id for row in database.stages()] == [first.id]  # the stage is not there either
        assert (await supervisor.cancel(first.id)).state is StageState.CANCELLED
        assert await supervisor.asked.due(job.id) == []

    asyncio.run(run())


def test_what_failed_is_due_until_its_program_is_told_or_stages_the_path_again(
    database: Database, tmp_path: Path
) -> None:
    jobs = JobTable(database)
    job, other = jobs.add("17", 7, 7, 1 << 24, {}), jobs.add("18", 7, 7, 1 << 24, {})

    async def run() -> None:
        supervisor = StageSupervisor(database, tmp_path)
        asked = supervisor.asked

        async def failed(path: str, of: JobRow) -> int:
            stage = await supervisor.submit(JOB, 7, 7, 0o22, asking=asking(path, of.id), deferred=True)
            database.change_stage(stage.id, state=StageState.FAILED)
            return stage.id

        for row in (job, other):
            jobs.change(row.id, state=JobState.RUNNING)
        first, second, others = await failed("a", job), await failed("b", job), await failed("a", other)
        assert await asked.due(job.id) == [first, second]
        assert await asked.due(other.id) == [others]
        await asked.note_told([second])
        assert await asked.due(job.id) == [first]
        # The job knows of them when many others have ended since.
        assert asked.needed_by_jobs(7) == {first, others}
        assert asked.needed_by_jobs(8) == set()
        again = await supervisor.submit(JOB, 7, 7, 0o22, asking=asking("a", job.id), deferred=True)
        assert await asked.due(job.id) == [again.id]
        database.change_stage(again.id, state=StageState.SUCCEEDED)
        assert await asked.due(job.id) == []
        assert await asked.due(other.id) == [others]
        jobs.change(other.id, state=JobState.GONE)
        assert asked.needed_by_jobs(7) == set()

    asyncio.run(run())


def test_deferred_stages_count_among_those_that_wait(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.workflows.manager.core.stages.supervisor._WAITING_STAGES_MAX", 2)

    async def run() -> None:
        supervisor = StageSupervisor(database, tmp_path)
        for path in "ab":
            await supervisor.submit(JOB, 7, 7, 0o22, asking=asking(path), deferred=True)
        with pytest.raises(RefusedError, match="stages of user 7 wait already"):
            await supervisor.submit(JOB, 7, 7, 0o22, asking=asking("c"), deferred=True)
        await supervisor.submit(JOB, 8, 8, 0o22, asking=asking("a", uid=8), deferred=True)

    asyncio.run(run())


def test_a_limit_holds_for_its_user_and_reservation_and_survives(database: Database) -> None:
    database.put_reservation(ReservationRow("mesh", 1, persistent=True, owner_uid=7, owner_gid=7))
    StageConcurrency(database).write("mesh", "id-1", 7, 1)
    limits = StageConcurrency(database)
    asyncio.run(limits.read())
    job = {"kind": "files", "reservation": "mesh"}
    rows = [database.add_stage(job, uid, uid, 0o22) for uid in (7, 7, 8)]
    for row in rows:
        limits.note(row)
    limits.begun(rows[0].id)
    assert [limits.may_begin(row.id) for row in rows] == [False, False, True]
    limits.ended(rows[0].id)
    limits.ended(rows[0].id)
    assert limits.may_begin(rows[1].id)
    limits.write("mesh", "id-1", 7, 2)
    asyncio.run(limits.read())
    limits.begun(rows[0].id)
    assert limits.may_begin(rows[1].id)
    limits.write("mesh", "id-1", 7, 1)
    database.forget_reservation("mesh")
    asyncio.run(limits.read())
    assert limits.may_begin(rows[1].id)
