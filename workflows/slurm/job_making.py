# SPDX-License-Identifier: Apache-2.0
"""What a job's setup makes: its reservation, and its attachments to those that it uses."""

from __future__ import annotations

import asyncio
import logging
import time

from forebay.durations import format_duration
from forebay.errors import InvalidArgumentError, RefusedError, UnsupportedError
from forebay.manager.records import JobRow, ReservationRow
from forebay.workflows.directives.directives import Directives
from forebay.workflows.files.agent_calls import AgentAwayError
from forebay.workflows.manager.core.pools.placement import Reach
from forebay.workflows.manager.core.reservations.attachments import Attachments
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.slow_calls import SlowCalls
from forebay.workflows.slurm.job_files import JobFiles
from forebay.workflows.slurm.job_records import JobRecords, seconds_left
from forebay.workflows.slurm.persistents import Persistents
from forebay.workflows.slurm.processes import known_job
from forebay.workflows.slurm.settings import SlurmSettings

__all__ = ["JobMaking"]

_log = logging.getLogger(__name__)


class JobMaking:
    """Setups of one instance's jobs."""

    def __init__(
        self,
        records: JobRecords,
        reservations: Reservations,
        attachments: Attachments,
        persistents: Persistents,
        slow_calls: SlowCalls,
        settings: SlurmSettings,
        files: JobFiles,
    ) -> None:
        self._files = files
        self._records = records
        self._reservations = reservations
        self._attachments = attachments
        self._persistents = persistents
        self._slow_calls = slow_calls
        self._settings = settings

    async def make(self, job: JobRow, directives: Directives, pool: str) -> None:
        """Makes the reservation, and attaches the job to those that it uses; idempotent. What is under way when the
        time is up ends by itself, and is undone if the job is over by then.

        Raises
        ------
        PermissionDeniedError, NotFoundError
            A persistent reservation is not there, or not theirs; or the pool is not open to them.
        NoSpaceError
            The pool is full, or a quota is.
        UnsupportedError
            It stages files that lie on another server of the pool.
        InvalidArgumentError
            The time is up, or Slurm does not say the job's account.
        """
        request = await self.request_of(job, pool)
        making = asyncio.ensure_future(self._slow_calls.run(job.owner_uid, self._make, job, directives, request))
        try:
            async with asyncio.timeout(seconds_left(job)):
                await asyncio.shield(making)
        except TimeoutError:
            making.add_done_callback(_log_failure)
            seconds = self._settings.setup_seconds_max
            raise InvalidArgumentError(
                f"its reservation is not made within {format_duration(seconds)}: the server, or its disk, is slow; see "
                "`forebay doctor`. A repeated setup goes on with it"
            ) from None

    def check_stages(self, directives: Directives) -> None:
        """UnsupportedError if it stages files of a persistent reservation that stages do not reach: they lie on another
        server of the pool.
        """
        for stage in directives.files:
            if stage.persistent:
                self._check_stage(stage.persistent)
        for matched in directives.matched:
            if matched.persistent:
                self._check_stage(matched.persistent, matched.complete)

    def _check_stage(self, name: str, complete: str = "") -> None:
        try:
            self._reservations.check_files_here(name)
        except UnsupportedError:
            raise UnsupportedError(
                f"stage_in and stage_out do not reach the files of {name}, which lie on another server than the "
                "manager's, in a pool without a files_driver; copy them in the job's script, for example with cp"
            ) from None
        self._reservations.check_files_here(name, complete)

    async def request_of(self, job: JobRow, pool: str) -> ReservationRow:
        """The reservation that the job asks for; raises as `make` does if Slurm does not say the job's account."""
        return self._request(job, pool, await self._account_of(job.token))

    def reach_of(self, job: JobRow, request: ReservationRow) -> Reach:
        """Where that reservation may lie."""
        matched = Directives.from_json(job.directives).matched
        return self._files.reach(request.pool, follows=any(not stage.persistent for stage in matched))

    async def _account_of(self, token: str) -> str:
        """Slurm's account of the job, if the centre has given it a quota here.

        Raises
        ------
        InvalidArgumentError
            Slurm does not say what it is, so that no quota would count.
        """
        accounts = self._reservations.pools.settings.accounts
        if not accounts:
            return ""
        account = (await known_job(self._settings.squeue, token)).account
        return account if account in accounts else ""

    def _make(self, job: JobRow, directives: Directives, request: ReservationRow) -> None:
        """What its setup makes. A late one makes nothing for a job that is over."""
        if self._is_wanted(job):
            self._make_all(job, directives, request)
        if self._is_wanted(job):
            return
        self._attachments.detach_job(job.holder)
        if job.reservation:
            self._reservations.destroy(job.reservation, force=True, by=None)
        raise RefusedError(f"job {job.token} is over: what its setup made is gone again")

    def _is_wanted(self, job: JobRow) -> bool:
        now = self._records.table.numbered(job.id)
        return now is not None and not now.state.is_final

    def _make_all(self, job: JobRow, directives: Directives, request: ReservationRow) -> None:
        self.check_stages(directives)
        holder = job.holder
        for name in directives.persistents:
            self._persistents.attach(name, holder, job.owner_uid)
        if not job.capacity_bytes:
            self._files.make_trees(job, directives)
            return
        info = self._reservations.create(request, queues=False, reach=self.reach_of(job, request))
        self._attachments.attach_job(job.reservation, holder, job.owner_uid)
        self._files.make_trees(job, directives)
        try:
            self._files.make_namespaces(job, directives, info, prolog=bool(self._settings.node_folder))
        except AgentAwayError:
            if not job.stages:  # nothing lies there yet: the next setup may choose another server
                self._reservations.destroy(job.reservation, force=True, by=None)
            raise

    def _request(self, job: JobRow, pool: str, account: str) -> ReservationRow:
        return ReservationRow(
            name=job.reservation,
            capacity_bytes=self._settings.streams_bytes(job.capacity_bytes),
            files_bytes=job.capacity_bytes,
            persistent=True,  # `forebay down` and an upgrade leave it alone: the job's teardown ends it.
            owner_uid=job.owner_uid,
            owner_gid=job.owner_gid,
            created_ns=time.time_ns(),
            pool=pool,
            account=account,
        )


def _log_failure(making: asyncio.Future[None]) -> None:
    if not making.cancelled() and (error := making.exception()) is not None:
        _log.warning("a setup that came late: %s", error)
