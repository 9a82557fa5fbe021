# SPDX-License-Identifier: Apache-2.0
"""The look at Slurm's jobs that comes again and again: one job that cannot be ended keeps no other from it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from forebay.errors import DisconnectedError, ForebayError, StorageError
from forebay.manager.records import JobRow, JobState
from forebay.workflows.files.agent_calls import AgentAwayError
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.reservations.attachments import Attachments
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.slow_calls import SlowCalls
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.slurm.job_ending import JobEnding
from forebay.workflows.slurm.job_files import JobFiles
from forebay.workflows.slurm.jobs import SlurmJobs
from forebay.workflows.slurm.settings import SlurmSettings


class Ending:
    """Ends jobs, but for one."""

    def __init__(self, failure: ForebayError) -> None:
        self.ended: list[str] = []
        self._failure = failure

    async def end(self, job: JobRow, *, discard: bool) -> None:
        assert not discard
        if job.token == "17":
            raise self._failure
        self.ended.append(job.token)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with contextlib.closing(Database(tmp_path / "manager.sqlite")) as opened:
        yield opened


@pytest.fixture
def jobs(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmJobs:
    """Those of an instance whose Slurm has lost all of them, long ago."""

    async def lost(*_: object) -> bool:
        return True

    monkeypatch.setattr("forebay.workflows.slurm.jobs.is_unknown", lost)
    for token in ("16", "17", "18"):
        job = JobTable(database).add(token, 1000, 1000, 1 << 24, {})
        JobTable(database).change(job.id, state=JobState.RUNNING)
    pools = SimpleNamespace(settings=SimpleNamespace(pools={}))
    servers = SimpleNamespace(own=SimpleNamespace(incarnation=lambda: (1, 1)))
    reservations = SimpleNamespace(pools=pools, servers=servers)
    return SlurmJobs(
        database,
        StageSupervisor(database, tmp_path),
        cast(Reservations, reservations),
        cast(Attachments, SimpleNamespace(table=None)),
        SlowCalls(),
        tmp_path,
        SlurmSettings(lost_seconds=0),
        {},
        JobFiles(database, cast(Reservations, reservations), None),
    )


def end_with(jobs: SlurmJobs, failure: ForebayError) -> Ending:
    ending = Ending(failure)
    jobs._ending = cast(JobEnding, ending)
    return ending


def test_a_sweep_goes_on_past_a_job_that_cannot_be_ended(jobs: SlurmJobs, caplog: pytest.LogCaptureFixture) -> None:
    ending = end_with(jobs, StorageError("its node cannot be fenced", "n1"))
    with caplog.at_level(logging.WARNING):
        asyncio.run(jobs.sweep())
    assert ending.ended == ["16", "18"]
    assert "job 17 is looked at again later: its node cannot be fenced" in caplog.text


@pytest.mark.parametrize(
    "failure", [AgentAwayError("no agent runs on server ssd2"), DisconnectedError("server ssd2 cannot be reached")]
)
def test_a_sweep_goes_on_past_a_job_whose_home_is_another_server_and_away(
    jobs: SlurmJobs, caplog: pytest.LogCaptureFixture, failure: ForebayError
) -> None:
    ending = end_with(jobs, failure)
    with caplog.at_level(logging.WARNING):
        asyncio.run(jobs.sweep())
    assert ending.ended == ["16", "18"]
    assert f"job 17 is looked at again later: {failure.what}" in caplog.text


def test_a_sweep_sees_what_has_become_of_a_job_while_it_looked_at_others(
    jobs: SlurmJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, looked_at = jobs._records.table, []

    async def look_at(job: JobRow, _: int) -> None:
        looked_at.append((job.token, job.state))
        if job.token == "16":
            for token, state in (("17", JobState.GONE), ("18", JobState.DATA_OUT)):
                row = table.current(token)
                assert row is not None
                table.change(row.id, state=state)

    monkeypatch.setattr(jobs, "_look_at", look_at)
    asyncio.run(jobs.sweep())
    assert looked_at == [("16", JobState.RUNNING), ("18", JobState.DATA_OUT)]


def test_a_sweep_without_the_server_ends_at_the_first_job_that_needs_it(jobs: SlurmJobs) -> None:
    ending = end_with(jobs, DisconnectedError("the server is away"))
    jobs._reservations.servers.own.incarnation = lambda: None  # type: ignore[method-assign]
    with pytest.raises(DisconnectedError):
        asyncio.run(jobs.sweep())
    assert ending.ended == ["16"]
