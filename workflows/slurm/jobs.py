# SPDX-License-Identifier: Apache-2.0
"""What becomes of a job's reservation: made at setup, filled at data_in, drained at data_out, destroyed at teardown.

Each call of the scheduler moves the job's row one state on, and is idempotent: it may come twice, at the same time as
another for the same job, or again after a restart of either side. Calls for one job take turns; those of different jobs
do not wait for one another.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pwd
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from forebay.errors import (
    ForebayError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
)
from forebay.manager.jobs import FilesJob, Job, StepsJob
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.database import Database, ReservationRow
from forebay.workflows.manager.job_table import JobRow, JobTable
from forebay.workflows.manager.reservations import Reservations
from forebay.workflows.manager.server_link import ServerLink
from forebay.workflows.manager.states import JobState
from forebay.workflows.manager.supervisor import StageSupervisor
from forebay.workflows.slurm.books import Books
from forebay.workflows.slurm.directives import Directives, FileStage
from forebay.workflows.slurm.processes import wait_until_quiet
from forebay.workflows.slurm.settings import SlurmSettings

__all__ = ["SlurmJobs"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_STAGE_WAIT_SECONDS = 10.0
_JOBS_KEPT = 1000
_UMASK = 0o022


class SlurmJobs:
    """The jobs of one instance. Its methods belong to the event loop's thread; what may take long runs in others."""

    def __init__(
        self,
        database: Database,
        link: ServerLink,
        supervisor: StageSupervisor,
        reservations: Reservations,
        root: Path,
        settings: SlurmSettings,
    ) -> None:
        self._table = JobTable(database)
        self._link = link
        self._supervisor = supervisor
        self._reservations = reservations
        self._settings = settings
        self._books = Books(root, settings)
        self._turns: dict[str, asyncio.Lock] = {}
        self._book_turn = asyncio.Lock()

    async def setup(self, token: str, uid: int, gid: int, capacity_bytes: int, directives: Directives) -> None:
        """Makes the job's reservation.

        Raises
        ------
        PermissionDeniedError, NotFoundError
            Nobody gets reservations under that user's name.
        NoSpaceError
            The pool is full.
        """
        async with self._turn(token):
            _check_user(uid, gid, self._settings.uid_min)
            job = await _in_thread(self._table.current, token)
            if job is None or job.state.is_final or job.state.may_have_run:
                if job is not None and not job.state.is_final:
                    # The scheduler has lost the run before: what it was to keep stays, under another name.
                    await self._end(job, discard=False)
                document = directives.as_json()
                job = await _in_thread(self._table.add, token, uid, gid, capacity_bytes, document)
            try:
                if job.capacity_bytes:
                    await _in_thread(self._reservations.create, self._wish(job))
            except ForebayError as error:
                await self._note(job, f"setup: {error.what}")
                raise
            await self._change(job, state=JobState.DATA_IN, reason="")
            await self.write_books()

    async def data_in(self, token: str) -> None:
        """Stages in what the job's directives say; raises the first failure."""
        async with self._turn(token):
            job = await self._existing(token)
            if job.state.may_have_run:
                return
            stages = [stage for stage in Directives.from_json(job.directives).files if stage.inward]
            wishes: dict[str, Job] = {
                f"in {number}": _files_job(job, stage) for number, stage in enumerate(stages, start=1)
            }
            await self._carry_out(job, "data_in", wishes)
            await self._change(job, state=JobState.PRE_RUN, reason="")

    async def real_size(self, token: str) -> int:
        """What the job's files may take."""
        return (await self._existing(token)).capacity_bytes

    async def environment(self, token: str) -> dict[str, str]:
        """The variables that the job's processes get."""
        job = await self._existing(token)
        if not job.reservation:
            return {}
        files = await _in_thread(self._files_path, job.reservation)
        return {"DW_JOB_STRIPED": f"{files}/", "FOREBAY_RESERVATION": job.reservation}

    async def pre_run(self, token: str, streams: Directives) -> None:
        """The job is about to run. `streams`: the `#FB` lines, which only the raw script has."""
        async with self._turn(token):
            job = await self._existing(token)
            known = Directives.from_json(job.directives)
            whole = Directives(known.capacity_bytes, known.access_mode, known.files, streams.streams)
            await self._change(job, state=JobState.RUNNING, directives=whole.as_json(), reason="")

    async def post_run(self, token: str) -> None:
        """The job is over; returns when its processes are gone, or the time is."""
        async with self._turn(token):
            job = await self._existing(token)
            if job.state in (JobState.DATA_OUT, JobState.DRAINED):
                return
            await self._change(job, state=JobState.POST_RUN, reason="")
            if not await wait_until_quiet(self._settings.scontrol, token, self._settings.quiet_seconds_max):
                await self._note(job, "post_run: processes of the job still run; what they write now may be missed")

    async def data_out(self, token: str) -> None:
        """Stages out what the job's directives say; raises the first failure."""
        async with self._turn(token):
            job = await self._existing(token)
            if job.state is JobState.DRAINED:
                return
            await self._change(job, state=JobState.DATA_OUT, reason="")
            directives = Directives.from_json(job.directives)
            outward = [stage for stage in directives.files if not stage.inward]
            wishes: dict[str, Job] = {
                f"out {number}": _files_job(job, stage) for number, stage in enumerate(outward, start=1)
            }
            for number, stream in enumerate(directives.streams, start=1):
                wishes[f"stream {number}"] = StepsJob(
                    stream=f"{job.reservation}/{stream.stream}",
                    destination=stream.destination,
                    every=stream.every,
                    steps=stream.steps,
                    format=stream.format,
                )
            await self._carry_out(job, "data_out", wishes)
            await self._change(job, state=JobState.DRAINED, reason="")

    async def teardown(self, token: str, *, hurry: bool) -> bool:
        """The scheduler is through with the job. False: there is no such job."""
        job = await _in_thread(self._table.current, token)
        # The user discards the data where stage-out is under way and is told to hurry; hurry alone is no consent.
        discard = hurry and job is not None and job.state is JobState.DATA_OUT and not job.reason
        if hurry and job is not None and not job.state.is_final:
            await self._cancel_stages(job)  # The call that waits for them has its turn still.
        async with self._turn(token):
            job = await _in_thread(self._table.current, token)
            if job is None or job.state.is_final:
                return False
            await self._end(job, discard=discard)
            await self.write_books()
            return True

    def jobs(self) -> list[JobRow]:
        """All that are known, oldest first."""
        return self._table.all()

    def living(self) -> list[JobRow]:
        """Those that the scheduler is not through with."""
        return self._table.all([state for state in JobState if not state.is_final])

    async def write_books(self) -> None:
        """Brings what Slurm is told up to date."""
        async with self._book_turn:
            await _in_thread(self._write_books)

    def _write_books(self) -> None:
        with self._link.admin() as admin:
            server = admin.server()
        self._books.write(server, self.living())

    async def _end(self, job: JobRow, *, discard: bool) -> None:
        """Destroys the job's reservation, unless it holds what the job was to keep."""
        keeps = [stage for stage in Directives.from_json(job.directives).files if not stage.inward]
        has_to_keep = bool(keeps or Directives.from_json(job.directives).streams)
        safe = not job.state.may_have_run or job.state is JobState.DRAINED or not has_to_keep or discard
        if job.reservation:
            reason = f"what was to be staged out is not: {job.reason}" if job.reason else "it was not staged out"
            if safe:
                try:
                    force = discard or not job.state.may_have_run
                    await _in_thread(self._reservations.destroy, job.reservation, force=force, by_uid=None)
                except RefusedError as error:
                    safe, reason = False, error.what
            if not safe:
                _log.warning("job %s: reservation %s is kept: %s", job.token, job.reservation, reason)
                await self._change(job, state=JobState.KEPT, reason=reason)
                return
        await self._change(job, state=JobState.GONE, reason="")
        await _in_thread(self._table.forget_old, _JOBS_KEPT)

    async def _carry_out(self, job: JobRow, call: str, wishes: dict[str, Job]) -> None:
        """Runs the stages side by side and waits for all; those that this run has begun before are taken up again."""
        stages = dict(job.stages)
        for name, wish in wishes.items():
            begun = stages.get(name)
            if begun is not None and self._state_of(begun) not in (None, StageState.FAILED, StageState.CANCELLED):
                continue
            stages[name] = (await self._supervisor.submit(wish, job.owner_uid, job.owner_gid, _UMASK)).id
            await self._change(job, stages=stages)
        for name in wishes:
            while not (row := self._supervisor.stage(stages[name])).state.is_final:
                version = self._supervisor.version(row.id)
                await self._supervisor.wait_for_change(row.id, version, _STAGE_WAIT_SECONDS)
            if row.state is not StageState.SUCCEEDED:
                failure = row.failure or {"what": "it was cancelled", "where": ""}
                where = f" ({failure['where']})" if failure["where"] else ""
                text = f"{call}: {failure['what']}{where}; stage {row.id}"
                await self._note(job, text)
                raise InvalidArgumentError(text)

    async def _cancel_stages(self, job: JobRow) -> None:
        for stage_id in job.stages.values():
            if (state := self._state_of(stage_id)) is not None and not state.is_final:
                await self._supervisor.cancel(stage_id)

    def _state_of(self, stage_id: int) -> StageState | None:
        try:
            return self._supervisor.stage(stage_id).state
        except NotFoundError:
            return None

    async def _existing(self, token: str) -> JobRow:
        job = await _in_thread(self._table.current, token)
        if job is None or job.state.is_final:
            raise NotFoundError(f"No matching session: there is no job {token}")
        return job

    async def _change(self, job: JobRow, **values: Any) -> None:
        await _in_thread(self._table.change, job.id, **values)

    async def _note(self, job: JobRow, reason: str) -> None:
        _log.warning("job %s: %s", job.token, reason)
        await self._change(job, reason=reason)

    def _wish(self, job: JobRow) -> ReservationRow:
        return ReservationRow(
            name=job.reservation,
            capacity_bytes=round(job.capacity_bytes * (1 + self._settings.streams_share)),
            persistent=True,  # `forebay down` and an upgrade leave it alone: the job's teardown ends it.
            access_mode="striped",
            type="scratch",
            owner_uid=job.owner_uid,
            owner_gid=job.owner_gid,
            created_ns=time.time_ns(),
        )

    def _files_path(self, reservation: str) -> str:
        with self._link.admin() as admin:
            return admin.reservation(reservation).files_path

    def _turn(self, token: str) -> asyncio.Lock:
        return self._turns.setdefault(token, asyncio.Lock())


def _files_job(job: JobRow, stage: FileStage) -> FilesJob:
    # DataWarp copies a directory's contents: into the scratch itself, that is the folder ".".
    path = stage.inside or ("." if stage.is_directory else "")
    return FilesJob(reservation=job.reservation, path=path, outside=stage.outside, inward=stage.inward)


def _check_user(uid: int, gid: int, uid_min: int) -> None:
    if uid == 0 or uid < uid_min:
        raise PermissionDeniedError(f"user {uid} gets no reservations through the scheduler; the lowest is {uid_min}")
    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        raise NotFoundError(f"user {uid} has no account on the node of the manager") from None
    if gid not in os.getgrouplist(account.pw_name, account.pw_gid):
        raise PermissionDeniedError(f"user {account.pw_name} is no member of group {gid}")


async def _in_thread(call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
    return await asyncio.to_thread(call, *arguments, **options)
