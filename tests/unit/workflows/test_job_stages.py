# SPDX-License-Identifier: Apache-2.0
"""The stages of a job that are begun while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from forebay.errors import RefusedError
from forebay.workflows.manager.database import Database
from forebay.workflows.manager.job_table import JobRow
from forebay.workflows.manager.supervisor import StageSupervisor
from forebay.workflows.slurm.directive_parsing import parse_directives
from forebay.workflows.slurm.job_records import JobRecords
from forebay.workflows.slurm.job_stages import JobStages
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.stages_of_a_job import following_stages

SCRIPT = b"""#!/bin/bash
#DW jobdw capacity=16MiB access_mode=striped type=scratch
#FB stage_out source=$DW_JOB_STRIPED/run match=chk????? destination=/pfs/chosen
"""


def test_too_many_waiting_stages_of_a_user_do_not_keep_a_job_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("forebay.workflows.manager.supervisor._WAITING_STAGES_MAX", 0)

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
