# SPDX-License-Identifier: Apache-2.0
"""The stages of a job that are begun while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from forebay.errors import InvalidArgumentError, RefusedError
from forebay.manager.jobs import FilesJob, job_to_json
from forebay.manager.records import JobRow
from forebay.manager.stage_state import StageState
from forebay.workflows.directives.directive_parsing import parse_directives
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.slurm.job_records import JobRecords
from forebay.workflows.slurm.job_stages import ASKED, JobStages
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.stages_of_a_job import following_stages

SCRIPT = b"""#!/bin/bash
#DW jobdw capacity=16MiB access_mode=striped type=scratch
#FB stage_out source=$DW_JOB_STRIPED/run match=chk????? destination=/pfs/chosen
"""
PLAIN = b"#!/bin/bash\n#DW jobdw capacity=16MiB access_mode=striped type=scratch\n"


def test_too_many_waiting_stages_of_a_user_do_not_keep_a_job_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("forebay.workflows.manager.core.stages.supervisor._WAITING_STAGES_MAX", 0)

    async def begin() -> JobRow:
        with contextlib.closing(Database(tmp_path / "manager.sqlite")) as database:
            settings = SlurmSettings()
            records = JobRecords(database, settings)
            supervisor = StageSupervisor(database, tmp_path)
            await supervisor.start()
            try:
                job = await records.add("17", 1000, 1000, 1 << 24, parse_directives(SCRIPT).as_json())
                (stage,) = following_stages(job).values()
                with pytest.raises(RefusedError, match="stages of user 1000 wait already"):
                    await supervisor.submit(stage, job.owner_uid, job.owner_gid, 0o22)
                await JobStages(records, supervisor, settings).begin_following(job)
                return await records.existing("17")
            finally:
                await supervisor.stop()

    with caplog.at_level(logging.WARNING):
        job = asyncio.run(begin())
    assert job.stages == {}  # data_out begins them, after the job
    assert "job 17: its files are copied after it only" in caplog.text


def test_a_stage_that_is_tried_again_is_written_down_before_the_next_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a data_out that comes after one that was broken off would begin it once more."""
    monkeypatch.setattr("forebay.workflows.manager.core.stages.supervisor._WAITING_STAGES_MAX", 1)

    async def run() -> None:
        with contextlib.closing(Database(tmp_path / "manager.sqlite")) as database:
            settings = SlurmSettings()
            records = JobRecords(database, settings)
            supervisor = StageSupervisor(database, tmp_path)
            monkeypatch.setattr(supervisor, "_fill_slots", lambda: None)  # what is submitted waits
            stages = JobStages(records, supervisor, settings)
            job = await records.add("17", 1000, 1000, 1 << 24, parse_directives(PLAIN).as_json())
            asked = [FilesJob("job17", f"17/{name}", f"/pfs/{name}", inward=False, only="file") for name in "ab"]
            failed = [
                database.change_stage(
                    database.add_stage(job_to_json(one), 1000, 1000, 0o27).id, state=StageState.FAILED
                )
                for one in asked
            ]
            job = await records.change(job, stages={f"{ASKED}{row.id}": row.id for row in failed})
            # There is room for one of the two.
            with pytest.raises(InvalidArgumentError, match="stages of user 1000 wait already"):
                await stages.carry_out(job, ())
            first, second = (f"{ASKED}{row.id}" for row in failed)
            job = await records.existing("17")
            again = database.stage(job.stages[first])
            assert job.stages[second] == failed[1].id
            assert (again.id, again.state, again.umask) == (3, StageState.QUEUED, 0o27)
            assert {**again.job, "unclean_nodes": []} == {**failed[0].job, "unclean_nodes": []}
            # The next one begins only what was not begun.
            monkeypatch.setattr("forebay.workflows.manager.core.stages.supervisor._WAITING_STAGES_MAX", 9)
            job = await stages._begin_asked(job, ())
            assert job.stages == {first: 3, second: 4}
            assert len(database.stages()) == 4

    asyncio.run(run())
