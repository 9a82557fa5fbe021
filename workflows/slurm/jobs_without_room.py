# SPDX-License-Identifier: Apache-2.0
"""Jobs that could not be set up for want of room. Slurm holds such a job for ever, so the manager releases it as soon
as its setup would succeed; Slurm then sets it up again.

The row of such a job is `waiting`. It ends when Slurm does not have the job as pending any more.
"""

from __future__ import annotations

import logging
import time

from forebay.errors import BusyError, DisconnectedError, ForebayError, NoSpaceError
from forebay.manager.records import JobRow, JobState, ReservationRow
from forebay.workflows.manager.core.pools.admission import FullError
from forebay.workflows.manager.core.pools.pools import Pools
from forebay.workflows.slurm.job_ending import JobEnding
from forebay.workflows.slurm.job_making import JobMaking
from forebay.workflows.slurm.job_records import JobRecords, in_thread
from forebay.workflows.slurm.processes import is_over, is_pending_for_us, release
from forebay.workflows.slurm.settings import SlurmSettings

__all__ = ["JobsWithoutRoom"]

_log = logging.getLogger(__name__)

#: Slurm sets a job up within seconds of its release.
_PROMISED_SECONDS = 60.0


class JobsWithoutRoom:
    """Those of one instance."""

    def __init__(
        self, records: JobRecords, making: JobMaking, ending: JobEnding, pools: Pools, settings: SlurmSettings
    ) -> None:
        self._records = records
        self._making = making
        self._ending = ending
        self._pools = pools
        self._settings = settings
        #: What each job will take that was released and not set up since, and until when nobody else gets it.
        self._released: dict[str, tuple[ReservationRow, float]] = {}

    async def note(self, job: JobRow, pool: str, error: ForebayError) -> ForebayError:
        """A setup failed. The row says so, and whether the job waits; returns the error that Slurm is to show."""
        if not await self._may_succeed_later(job, pool, error):
            await self._records.note(job, f"setup: {error.what}")
            return error
        text = f"{error.what}; the job is released by itself when there is room"
        _log.warning("job %s: %s", job.token, text)
        await self._records.change(job, state=JobState.WAITING, reason=f"setup: {error.what}")
        return NoSpaceError(text, error.where)

    def is_set_up(self, token: str) -> None:
        """Or its setup failed again: what it takes counts by itself now."""
        self._released.pop(token, None)

    async def look_at(self, job: JobRow) -> None:
        """Releases one that would be set up now, ends one that Slurm is through with. The caller has its turn."""
        pending = await is_pending_for_us(self._settings.squeue, job.token)
        if not pending:
            # By its user, who cancelled it; silence says nothing, and what another held is theirs to release.
            if await is_over(self._settings.squeue, job.token):
                await self._ending.end(await self._records.change(job, state=JobState.SETUP), discard=False)
            return
        now = time.monotonic()
        self._released = {token: promised for token, promised in self._released.items() if promised[1] > now}
        if job.token in self._released:
            return
        request = await self._making.request_of(job, job.directives.get("pool", ""))
        reach = await in_thread(self._making.reach_of, job, request)
        if not await in_thread(self._pools.has_room, request, [row for row, _ in self._released.values()], reach):
            return
        self._released[job.token] = request, now + _PROMISED_SECONDS
        if await release(self._settings.scontrol, job.token):
            _log.info("job %s: there is room for it, it is released", job.token)
        else:
            _log.warning("job %s: there is room for it, but Slurm does not release it", job.token)

    async def _may_succeed_later(self, job: JobRow, pool: str, error: ForebayError) -> bool:
        # Busy is what ends: of its run before, a server that has some of it is away.
        if isinstance(error, FullError | DisconnectedError | BusyError):
            return True
        if not isinstance(error, NoSpaceError):
            return False
        # Of the server, which has the last word; or never, as the pools are.
        request = await self._making.request_of(job, pool)
        try:
            await in_thread(self._pools.check_ever, request, await in_thread(self._making.reach_of, job, request))
        except NoSpaceError:
            return False
        return True
