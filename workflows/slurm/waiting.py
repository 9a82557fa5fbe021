# SPDX-License-Identifier: Apache-2.0
"""What Slurm says of jobs, for `forebay why JOB`: of those that it has not set up yet, of which the manager has no row,
and of those whose next step is Slurm's.
"""

from __future__ import annotations

import asyncio
import time

from forebay.durations import format_duration
from forebay.errors import InvalidArgumentError
from forebay.manager.records import Answer, JobRow, JobState
from forebay.workflows.directives.directive_parsing import parse_directives
from forebay.workflows.directives.directives import Directives
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.drains import DrainTable
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.slurm.processes import job_facts, job_fields
from forebay.workflows.slurm.settings import SlurmSettings

__all__ = ["WaitingJobs"]


class WaitingJobs:
    """Usable from several threads."""

    def __init__(self, database: Database, settings: SlurmSettings) -> None:
        self._database = database
        self._drains = DrainTable(database)
        self._jobs = JobTable(database)
        self._settings = settings

    def tell(self, token: str, peer: Peer) -> list[Answer]:
        """On the job, if Slurm knows it as pending, and the caller may see it."""
        job = asyncio.run(job_facts(self._settings.squeue, token))
        if job is None or job.state != "PENDING" or not peer.may_see(job.uid):
            return []
        fields = asyncio.run(job_fields(self._settings.scontrol, token))
        missing = self._missing(fields.get("BurstBuffer", ""))
        if missing:
            waits_for = "; ".join(f"there is no persistent reservation {name}" for name in missing)
            ends = (
                f"a job with `#BB create_persistent name={missing[0]}`, or `forebay create {missing[0]} --persistent`"
            )
        elif fields.get("Reason", "").startswith("burst_buffer"):
            row = self._jobs.current(token)
            reason = row.reason if row is not None and row.reason else fields["Reason"].replace("_", " ")
            waits_for = f"its user: Slurm holds it, because of {reason}"
            ends = f"`scontrol release {token}` by an administrator, when the cause is mended; or `scancel {token}`"
        else:
            drain = self._drains.of(server_name())
            waits_for = f"Slurm, whose reason is {fields.get('Reason', 'None')}"
            waits_for += "" if drain is None else f"; {drain.text}"
            ends = f"the scheduler: see `scontrol show job {token}`"
        return [Answer(f"job {token}", "pending", time.time_ns(), waits_for, ends=ends)]

    def note_on(self, job: JobRow) -> str:
        """What the job's user should know, although it runs; "" without anything."""
        return Directives.from_json(job.directives).note

    def end_of(self, job: JobRow) -> str:
        """What ends a job's state that is Slurm's to end, and when at the latest."""
        facts = asyncio.run(job_facts(self._settings.squeue, job.token))
        lost = f"if Slurm forgets the job, the manager ends it after {format_duration(self._settings.lost_seconds)}"
        if facts is None:
            return f"the scheduler, which does not answer now; {lost}"
        if facts.is_unknown:
            return f"the scheduler, which does not know the job now; {lost}"
        fields = asyncio.run(job_fields(self._settings.scontrol, job.token))
        if job.state is JobState.RUNNING and not job.reason:
            limit = fields.get("EndTime", "Unknown")
            until = "its end" if limit == "Unknown" else f"its end, or its time limit at {limit.replace('T', ' ')}"
            return f"{until}; {lost}"
        reason = fields.get("Reason", "None")
        why = "" if reason == "None" else f", {reason}"
        return f"the scheduler, where it is {facts.state}{why}: see `scontrol show job {job.token}`; {lost}"

    def _missing(self, lines: str) -> list[str]:
        """Persistent reservations that its directives name and that do not exist."""
        try:
            names = parse_directives(lines.encode()).persistents
        except InvalidArgumentError:
            return []
        there = {row.name for row in self._database.reservations() if row.persistent}
        return [name for name in names if name not in there]
