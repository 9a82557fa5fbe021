# SPDX-License-Identifier: Apache-2.0
"""The one rule that says when a job's data is deleted (`_must_keep`): no process may still write it, and what was to
outlive the job has its receipts. Otherwise it is kept, in quarantine: its owner has it, the scheduler hears no more of
it.
"""

from __future__ import annotations

import logging

from forebay.errors import RefusedError
from forebay.manager.records import JobRow, JobState
from forebay.workflows.directives.directives import Directives
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.reservations.attachments import Attachments
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.slow_calls import SlowCalls
from forebay.workflows.slurm.job_environment import home_of
from forebay.workflows.slurm.job_files import JobFiles
from forebay.workflows.slurm.job_records import JobRecords, in_thread
from forebay.workflows.slurm.job_stages import JobStages
from forebay.workflows.slurm.job_tokens import JobTokens
from forebay.workflows.slurm.processes import is_over
from forebay.workflows.slurm.settings import SlurmSettings

__all__ = ["JobEnding"]

_log = logging.getLogger(__name__)


class JobEnding:
    """Ends of one instance's jobs. Whoever calls has the job's turn."""

    def __init__(
        self,
        database: Database,
        records: JobRecords,
        reservations: Reservations,
        attachments: Attachments,
        slow_calls: SlowCalls,
        settings: SlurmSettings,
        tokens: JobTokens,
        files: JobFiles,
        stages: JobStages,
    ) -> None:
        self._files = files
        self._database = database
        self._records = records
        self._reservations = reservations
        self._attachments = attachments
        self._slow_calls = slow_calls
        self._settings = settings
        self._tokens = tokens
        self._stages = stages

    async def end(self, job: JobRow, *, discard: bool) -> None:
        """Destroys the job's reservation, unless it holds what the job was to keep. Its token is void in any case."""
        await in_thread(self._files.end, job)
        await in_thread(self._attachments.detach_job, job.holder)
        reason = await self._must_keep(job, discard=discard) if job.reservation else ""
        await self._stages.cancel_asked(job)
        if job.reservation:
            if not reason:
                try:
                    force = discard or not job.state.may_have_run
                    destroy = self._reservations.destroy
                    await self._slow_calls.run(job.owner_uid, destroy, job.reservation, force=force, by=None)
                except RefusedError as error:
                    reason = error.what
            if reason:
                _log.warning("job %s: reservation %s is kept: %s", job.token, job.reservation, reason)
                await in_thread(self._tokens.void, job, job.reservation)
                await self._records.change(job, state=JobState.KEPT, reason=reason)
                return
        # With the job's own reservation its token is void; others go on using a persistent one.
        persistent = "" if job.reservation else home_of(job, Directives.from_json(job.directives))
        await in_thread(self._tokens.void, job, persistent)
        if job.state is JobState.WAITING:
            await self._records.change(job, state=JobState.WAITING)
        else:
            await self._records.change(job, state=JobState.GONE, reason="" if job.state.may_have_run else job.reason)
        await self._end_late_setup(job)
        await self._records.forget_old()

    async def _end_late_setup(self, job: JobRow) -> None:
        """Takes back what a setup made whose time was up, and which went on without seeing that the job is over."""
        await in_thread(self._attachments.detach_job, job.holder)
        if job.reservation and await in_thread(self._database.reservation, job.reservation) is not None:
            destroy = self._reservations.destroy
            await self._slow_calls.run(job.owner_uid, destroy, job.reservation, force=True, by=None)

    async def look_at_kept(self, job: JobRow, now_ns: int) -> None:
        """Deletes what has been in quarantine for its time, or was there only because processes might still write."""
        gone = await in_thread(self._database.reservation, job.reservation) is None
        keeps = await self._keeps(job)
        # Those of a manager that kept no deadlines have none.
        due = now_ns > (job.deadline_ns or job.changed_ns + round(self._settings.quarantine_days * 86400e9))
        if not gone and (due or (not keeps and await is_over(self._settings.squeue, job.token))):
            try:
                await in_thread(self._attachments.table.must_be_free, job.reservation)
                await in_thread(self._reservations.destroy, job.reservation, force=due, by=None)
            except RefusedError as error:
                _log.info("job %s: reservation %s stays: %s", job.token, job.reservation, error.what)
                return
            gone = True
            _log.warning("job %s: reservation %s is deleted from quarantine", job.token, job.reservation)
        if gone:
            await self._records.change(job, state=JobState.GONE, reason="")

    async def _must_keep(self, job: JobRow, *, discard: bool) -> str:
        """Why the job's data may not be deleted; "" if it may."""
        if not job.state.may_have_run or discard:
            return ""
        if not job.quiet and not await is_over(self._settings.squeue, job.token):
            return "Slurm does not say that its processes are gone"
        if job.state is JobState.DRAINED or not await self._keeps(job):
            return ""
        return f"what was to be staged out is not: {job.reason}" if job.reason else "it was not staged out"

    async def _keeps(self, job: JobRow) -> bool:
        """Something is to outlive the job: a line of its script says so, or its programs do."""
        return Directives.from_json(job.directives).keeps or await self._stages.keeps(job)
