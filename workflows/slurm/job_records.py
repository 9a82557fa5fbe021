# SPDX-License-Identifier: Apache-2.0
"""The rows of jobs, as the event loop reads and changes them: each with the time at which its state ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from forebay.errors import NotFoundError
from forebay.manager.records import JobRow, JobState
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.slurm.settings import SlurmSettings

__all__ = ["JobRecords", "in_thread", "seconds_left"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_JOBS_KEPT = 1000


class JobRecords:
    """The rows. Its methods belong to the event loop's thread, and work in others."""

    def __init__(self, database: Database, settings: SlurmSettings) -> None:
        self.table = JobTable(database)  #: for other threads
        self._settings = settings

    async def add(self, token: str, uid: int, gid: int, capacity_bytes: int, directives: dict[str, Any]) -> JobRow:
        """The next run of the job, in its setup."""
        deadline_ns = self._deadline_ns(JobState.SETUP)
        return await in_thread(self.table.add, token, uid, gid, capacity_bytes, directives, deadline_ns)

    async def current(self, token: str) -> JobRow | None:
        """The job's last run."""
        return await in_thread(self.table.current, token)

    async def existing(self, token: str) -> JobRow:
        """The job's last run; NotFoundError if there is none, or it is over."""
        job = await self.current(token)
        if job is None or job.state.is_final:
            raise NotFoundError(f"No matching session: there is no job {token}")
        return job

    async def not_gone(self) -> list[JobRow]:
        """All of which something is left."""
        return await in_thread(self.table.all, [state for state in JobState if state is not JobState.GONE])

    async def numbered(self, row_id: int) -> JobRow | None:
        """A run as it is now."""
        return await in_thread(self.table.numbered, row_id)

    async def change(self, job: JobRow, **values: Any) -> JobRow:
        """The row as it is now. With a state comes the time at which it ends at the latest."""
        if (state := values.get("state")) is not None:
            values["deadline_ns"] = self._deadline_ns(state)
        return await in_thread(self.table.change, job.id, **values)

    async def note(self, job: JobRow, reason: str) -> None:
        """Why the job stands still."""
        _log.warning("job %s: %s", job.token, reason)
        await self.change(job, reason=reason)

    async def forget_old(self) -> None:
        """Removes jobs that were over long ago."""
        await in_thread(self.table.forget_old, _JOBS_KEPT)

    def _deadline_ns(self, state: JobState) -> int | None:
        seconds = self._settings.seconds_max(state)
        return None if seconds is None else time.time_ns() + round(seconds * 1e9)


def seconds_left(job: JobRow) -> float | None:
    """Until the job's state ends at the latest; None: it may last."""
    return None if job.deadline_ns is None else max(0.0, (job.deadline_ns - time.time_ns()) / 1e9)


async def in_thread(call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
    """Its result; what takes a while does not hold the event loop up."""
    return await asyncio.to_thread(call, *arguments, **options)
