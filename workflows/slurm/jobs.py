# SPDX-License-Identifier: Apache-2.0
"""What becomes of a job's reservation: made at setup, filled at data_in, drained at data_out, destroyed at teardown.

Each call of the scheduler moves the job's row one state on, and is idempotent: it may come twice, at the same time as
another for the same job, or again after a restart of either side. Calls for one job take turns; those of different jobs
do not wait for one another.

One rule says when a job's data is deleted (`_must_keep`): no process may still write it, and what was to outlive the
job has its receipts. Otherwise it is kept, in quarantine: its owner has it, the scheduler hears no more of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from forebay.durations import format_duration
from forebay.errors import (
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    NotFoundError,
    RefusedError,
)
from forebay.manager.jobs import Job
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.attachments import Attachments
from forebay.workflows.manager.database import Database, ReservationRow
from forebay.workflows.manager.job_table import JobRow, JobTable
from forebay.workflows.manager.reservations import Reservations
from forebay.workflows.manager.server_link import ServerLink
from forebay.workflows.manager.slow_calls import SlowCalls
from forebay.workflows.manager.states import JobState
from forebay.workflows.manager.supervisor import StageSupervisor
from forebay.workflows.slurm.books import Books
from forebay.workflows.slurm.directives import Directives
from forebay.workflows.slurm.node_folders import PRIVATE
from forebay.workflows.slurm.node_names import parse_node_names
from forebay.workflows.slurm.persistents import Persistents
from forebay.workflows.slurm.processes import (
    expand_symbols,
    is_over,
    is_running,
    is_unknown,
    job_facts,
    job_fields,
    known_job,
    wait_until_quiet,
)
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.stages_of_a_job import inward_stages, outward_stages
from forebay.workflows.slurm.turns import Turns
from forebay.workflows.slurm.users import check_user

__all__ = ["SlurmJobs"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_STAGE_WAIT_SECONDS = 10.0
_ACCOUNT_SECONDS_MAX = 20.0  # in which a setup's account is asked for
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
        attachments: Attachments,
        slow_calls: SlowCalls,
        root: Path,
        settings: SlurmSettings,
        instance_variables: dict[str, str],
    ) -> None:
        self._table = JobTable(database)
        self._database = database
        self._link = link
        self._supervisor = supervisor
        self._reservations = reservations
        self._attachments = attachments
        self.slow_calls = slow_calls
        self.settings = settings
        self._instance_variables = instance_variables
        self._turns = Turns()
        self.persistents = Persistents(database, reservations, attachments, settings)
        self.books = Books(root, settings, database, link, reservations.pools, self._environment)

    def check(self, directives: Directives) -> None:
        """Refuses at submission what could only wait for ever.

        Raises
        ------
        NoSpaceError
            It asks for more than the whole pool.
        """
        wishes = [(directives.pool, directives.capacity_bytes)]
        wishes += [(wish.pool, wish.capacity_bytes) for wish in directives.creates]
        for pool, size in wishes:
            name = pool or self.settings.pool
            whole = self.books.pools_bytes.get(name)
            if whole is not None and size > whole:
                raise NoSpaceError(
                    f"the job asks for {size >> 20} MiB, and the whole pool {name} has {whole >> 20} MiB; ask for less"
                )

    def pool_of(self, name: str) -> str:
        """The pool that Slurm calls so, as reservations name it; InvalidArgumentError if there is none."""
        pools = self._reservations.pools.settings
        if name in ("", self.settings.pool):
            return ""
        pools.pool(name)
        return name

    async def setup(
        self, token: str, uid: int, gid: int, pool: str, capacity_bytes: int, directives: Directives
    ) -> None:
        """Makes the job's reservation, and attaches the job to those that it uses.

        Raises
        ------
        PermissionDeniedError, NotFoundError
            Nobody gets reservations under that user's name; or a persistent reservation is not there, or not theirs; or
            the pool is not open to them.
        NoSpaceError
            The pool is full, or a quota is.
        """
        async with self._turns.of(token):
            check_user(uid, gid, self.settings.uid_min)
            job = await _in_thread(self._table.current, token)
            if job is None or job.state.is_final or job.state.may_have_run:
                if job is not None and not job.state.is_final:
                    if job.state is JobState.RUNNING and await is_running(self.settings.squeue, token):
                        # A call of a scheduler that has died since, which comes late.
                        raise RefusedError(f"job {token} runs: its reservation is made already")
                    # The scheduler has lost the run before: what it was to keep stays, under another name.
                    await self._end(job, discard=False)
                document = directives.as_json()
                deadline_ns = self._deadline_ns(JobState.SETUP)
                job = await _in_thread(self._table.add, token, uid, gid, capacity_bytes, document, deadline_ns)
            else:
                job = await self._change(job, state=JobState.SETUP, reason="")
            try:
                account = await self._account_of(token)
                await self._make_in_time(job, directives, pool, account)
            except ForebayError as error:
                await self._note(job, f"setup: {error.what}")
                raise
            await self._change(job, state=JobState.DATA_IN, reason="")
            await self.write_books()

    async def data_in(self, token: str) -> None:
        """Stages in what the job's directives say; raises the first failure."""
        async with self._turns.of(token):
            job = await self._existing(token)
            if job.state.may_have_run:
                return
            job = await self._change(job, state=JobState.DATA_IN, reason="")
            await self._carry_out(job, "data_in", inward_stages)
            await self._change(job, state=JobState.PRE_RUN, reason="")

    async def real_size(self, token: str) -> int:
        """What the job's files may take."""
        return (await self._existing(token)).capacity_bytes

    async def pre_run(self, token: str, raw: Directives, nodes: tuple[str, ...] | None) -> None:
        """The job is about to run. `raw`: the script's own lines; only they have `#FB`. `nodes`: None if the scheduler
        does not pass them.
        """
        async with self._turns.of(token):
            job = await self._existing(token)
            if job.state in (JobState.POST_RUN, JobState.DATA_OUT, JobState.DRAINED):
                raise RefusedError(f"job {token} is over already: it is in {job.state.value}")
            directives = Directives.from_json(job.directives)
            if nodes is None and (directives.private or self.settings.nodes):
                facts = await job_facts(self.settings.squeue, token)
                nodes = tuple(parse_node_names("" if facts is None else facts.nodes))
            try:
                self._check_nodes(directives, nodes or ())
            except InvalidArgumentError as error:
                await self._note(job, f"pre_run: {error.what}")
                raise
            own = await self.expanded(token, job.owner_uid, Directives(streams=raw.streams))
            document = replace(directives, streams=own.streams).as_json()
            await self._change(
                job, state=JobState.RUNNING, directives=document, quiet=False, node_count=len(nodes or "1"), reason=""
            )
            await self.write_books()

    async def post_run(self, token: str) -> None:
        """The job is over; returns when its processes are gone, or the time is."""
        async with self._turns.of(token):
            job = await self._existing(token)
            if job.state in (JobState.DATA_OUT, JobState.DRAINED):
                return
            await self._change(job, state=JobState.POST_RUN, reason="")
            if await wait_until_quiet(self.settings.squeue, token, self.settings.quiet_seconds_max):
                await self._change(job, quiet=True)
            else:
                await self._note(job, "post_run: processes of the job still run; what they write now may be missed")

    async def data_out(self, token: str) -> None:
        """Stages out what the job's directives say; raises the first failure."""
        async with self._turns.of(token):
            job = await self._existing(token)
            if job.state is JobState.DRAINED:
                return
            job = await self._change(job, state=JobState.DATA_OUT, reason="")
            await self._carry_out(job, "data_out", outward_stages)
            await self._change(job, state=JobState.DRAINED, reason="")

    async def teardown(self, token: str, *, hurry: bool) -> bool:
        """The scheduler is through with the job. False: there is no such job."""
        job = await _in_thread(self._table.current, token)
        # The user discards the data where stage-out is under way and is told to hurry; hurry alone is no consent.
        discard = hurry and job is not None and job.state is JobState.DATA_OUT and not job.reason
        if hurry and job is not None and not job.state.is_final:
            await self._cancel_stages(job.stages)  # The call that waits for them has its turn still.
        async with self._turns.of(token):
            job = await _in_thread(self._table.current, token)
            if job is None or job.state.is_final:
                return False
            await self._end(job, discard=discard)
            await self.write_books()
            return True

    async def sweep(self) -> None:
        """Ends jobs that the scheduler has lost, and quarantines that are over."""
        now_ns = time.time_ns()
        for job in await _in_thread(self._table.all, [state for state in JobState if state is not JobState.GONE]):
            if self._turns.is_taken(job.token):
                continue
            async with self._turns.of(job.token):
                if job.state is JobState.KEPT:
                    await self._look_at_kept(job, now_ns)
                elif now_ns - job.changed_ns > self.settings.lost_seconds * 1e9 and await is_unknown(
                    self.settings.squeue, job.token
                ):
                    _log.warning("job %s: Slurm does not know it any more", job.token)
                    await self._end(job, discard=False)
        await _in_thread(self._table.forget_old, _JOBS_KEPT)

    async def write_books(self) -> None:
        """Brings what Slurm is told up to date."""
        await _in_thread(self.books.refresh)

    async def write_books_at_leisure(self) -> None:
        """Brings up to date, too, what has changed without a call: free space, and long tables."""
        await _in_thread(self.books.refresh, at_leisure=True)

    async def expanded(self, token: str, uid: int, directives: Directives) -> Directives:
        """The directives with Slurm's symbols replaced in their paths. Slurm does that itself in `#DW` lines, unless a
        line has a backslash.

        Raises
        ------
        InvalidArgumentError
            A symbol is not known, or Slurm does not say what it stands for.
        """
        texts = [text for stage in directives.files for text in (stage.inside, stage.outside)]
        if not any("%" in text for text in [*texts, *(stream.destination for stream in directives.streams)]):
            return directives
        fields = await job_fields(self.settings.scontrol, token)
        user = pwd.getpwuid(uid).pw_name

        def expand(text: str) -> str:
            return expand_symbols(text, token, user, fields)

        return replace(
            directives,
            files=tuple(
                replace(stage, inside=expand(stage.inside), outside=expand(stage.outside)) for stage in directives.files
            ),
            streams=tuple(replace(stream, destination=expand(stream.destination)) for stream in directives.streams),
        )

    def _check_nodes(self, directives: Directives, nodes: tuple[str, ...]) -> None:
        if directives.private and len(nodes) > 1 and not self.settings.node_folder:
            raise InvalidArgumentError(
                f"access_mode=private works on one node here, and the job has {len(nodes)}; ask for one node, or use "
                "striped. `scontrol release` runs the job again"
            )
        if self.settings.nodes:
            blind = sorted(set(nodes) - parse_node_names(self.settings.nodes))
            if blind:
                raise InvalidArgumentError(
                    f"{', '.join(blind[:3])}{' …' if len(blind) > 3 else ''} cannot reach the burst buffer; ask for a "
                    "partition or feature whose nodes can. `scontrol release` runs the job again"
                )

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
        account = (await known_job(self.settings.squeue, token, _ACCOUNT_SECONDS_MAX)).account
        return account if account in accounts else ""

    async def _make_in_time(self, job: JobRow, directives: Directives, pool: str, account: str) -> None:
        """Raises InvalidArgumentError when the time is up. What is under way then ends by itself, and is undone if the
        job is over by then.
        """
        making = asyncio.ensure_future(self.slow_calls.run(job.owner_uid, self._make, job, directives, pool, account))
        try:
            async with asyncio.timeout(self._seconds_left(job)):
                await asyncio.shield(making)
        except TimeoutError:
            making.add_done_callback(_log_failure)
            seconds = self.settings.setup_seconds_max
            raise InvalidArgumentError(
                f"its reservation is not made within {format_duration(seconds)}: the server, or its disk, is slow; see "
                "`forebay doctor`. A repeated setup goes on with it"
            ) from None

    def _make(self, job: JobRow, directives: Directives, pool: str, account: str) -> None:
        """What its setup makes. A late one makes nothing for a job that is over."""
        if self._is_wanted(job):
            self._make_all(job, directives, pool, account)
        if self._is_wanted(job):
            return
        self._attachments.detach_job(job.holder)
        if job.reservation:
            self._reservations.destroy(job.reservation, force=True, by_uid=None)
        raise RefusedError(f"job {job.token} is over: what its setup made is gone again")

    def _is_wanted(self, job: JobRow) -> bool:
        now = self._table.numbered(job.id)
        return now is not None and not now.state.is_final

    def _make_all(self, job: JobRow, directives: Directives, pool: str, account: str) -> None:
        holder = job.holder
        for name in directives.persistents:
            self.persistents.attach(name, holder, job.owner_uid)
        if not job.capacity_bytes:
            return
        info = self._reservations.create(self._wish(job, pool, account), queues=False)
        self._attachments.attach_job(job.reservation, holder, job.owner_uid)
        if directives.private:
            folder = Path(info.files_path) / PRIVATE
            if not folder.exists():
                folder.mkdir(mode=0o700)
                os.chown(folder, job.owner_uid, job.owner_gid, follow_symlinks=False)

    async def _end(self, job: JobRow, *, discard: bool) -> None:
        """Destroys the job's reservation, unless it holds what the job was to keep."""
        await _in_thread(self._attachments.detach_job, job.holder)
        if job.reservation:
            reason = await self._must_keep(job, discard=discard)
            if not reason:
                try:
                    force = discard or not job.state.may_have_run
                    destroy = self._reservations.destroy
                    await self.slow_calls.run(job.owner_uid, destroy, job.reservation, force=force, by_uid=None)
                except RefusedError as error:
                    reason = error.what
            if reason:
                _log.warning("job %s: reservation %s is kept: %s", job.token, job.reservation, reason)
                await self._change(job, state=JobState.KEPT, reason=reason)
                return
        await self._change(job, state=JobState.GONE, reason="")
        await _in_thread(self._table.forget_old, _JOBS_KEPT)

    async def _must_keep(self, job: JobRow, *, discard: bool) -> str:
        """Why the job's data may not be deleted; "" if it may."""
        if not job.state.may_have_run or discard:
            return ""
        if not job.quiet and not await is_over(self.settings.squeue, job.token):
            return "Slurm does not say that its processes are gone"
        if job.state is JobState.DRAINED or not Directives.from_json(job.directives).keeps:
            return ""
        return f"what was to be staged out is not: {job.reason}" if job.reason else "it was not staged out"

    async def _look_at_kept(self, job: JobRow, now_ns: int) -> None:
        """Deletes what has been in quarantine for its time, or was there only because processes might still write."""
        gone = await _in_thread(self._database.reservation, job.reservation) is None
        keeps = Directives.from_json(job.directives).keeps
        # Those of a manager that kept no deadlines have none.
        due = now_ns > (job.deadline_ns or job.changed_ns + round(self.settings.quarantine_days * 86400e9))
        if not gone and (due or (not keeps and await is_over(self.settings.squeue, job.token))):
            try:
                await _in_thread(self._attachments.table.must_be_free, job.reservation)
                await _in_thread(self._reservations.destroy, job.reservation, force=due, by_uid=None)
            except RefusedError as error:
                _log.info("job %s: reservation %s stays: %s", job.token, job.reservation, error.what)
                return
            gone = True
            _log.warning("job %s: reservation %s is deleted from quarantine", job.token, job.reservation)
        if gone:
            await self._change(job, state=JobState.GONE, reason="")

    async def _carry_out(self, job: JobRow, call: str, wanted: Callable[[JobRow], Awaitable[dict[str, Job]]]) -> None:
        """Runs the stages side by side and waits for all; those that this run has begun before are taken up again."""
        try:
            wishes = await wanted(job)
            stages = dict(job.stages)
            for name, wish in wishes.items():
                begun = stages.get(name)
                if begun is not None and await self._state_of(begun) not in (
                    None,
                    StageState.FAILED,
                    StageState.CANCELLED,
                ):
                    continue
                stages[name] = (await self._supervisor.submit(wish, job.owner_uid, job.owner_gid, _UMASK)).id
                await self._change(job, stages=stages)
            try:
                async with asyncio.timeout(self._seconds_left(job)):
                    for name in wishes:
                        await self._wait_for(stages[name])
            except TimeoutError:
                raise InvalidArgumentError(await self._why_late(job, stages)) from None
        except ForebayError as error:
            where = f" ({error.where})" if error.where else ""
            text = f"{call}: {error.what}{where}"
            await self._note(job, text)
            raise InvalidArgumentError(text) from None

    async def _wait_for(self, stage_id: int) -> None:
        while not (row := await self._supervisor.stage(stage_id)).state.is_final:
            version = self._supervisor.version(row.id)
            await self._supervisor.wait_for_change(row.id, version, _STAGE_WAIT_SECONDS)
        if row.state is not StageState.SUCCEEDED:
            failure = row.failure or {"what": "it was cancelled", "where": ""}
            where = f" ({failure['where']})" if failure["where"] else ""
            raise InvalidArgumentError(f"{failure['what']}{where}; stage {row.id}")

    def _seconds_left(self, job: JobRow) -> float | None:
        return None if job.deadline_ns is None else max(0.0, (job.deadline_ns - time.time_ns()) / 1e9)

    async def _why_late(self, job: JobRow, stages: dict[str, int]) -> str:
        """Cancels what is not done in time, and says how far it has come."""
        late = []
        for stage_id in stages.values():
            with contextlib.suppress(NotFoundError):
                row = await self._supervisor.stage(stage_id)
                if not row.state.is_final:
                    total = row.progress.get("items_total")
                    done = f"{row.progress.get('items_done', 0)} of {'?' if total is None else total} done"
                    late.append(f"stage {stage_id} ({done})")
        await self._cancel_stages(stages)
        seconds = self.settings.seconds_max(job.state) or 0.0
        return f"not done within {format_duration(seconds)}, and cancelled: {', '.join(late)}"

    async def _cancel_stages(self, stages: dict[str, int]) -> None:
        for stage_id in stages.values():
            if (state := await self._state_of(stage_id)) is not None and not state.is_final:
                await self._supervisor.cancel(stage_id)

    async def _state_of(self, stage_id: int) -> StageState | None:
        try:
            return (await self._supervisor.stage(stage_id)).state
        except NotFoundError:
            return None

    async def _existing(self, token: str) -> JobRow:
        job = await _in_thread(self._table.current, token)
        if job is None or job.state.is_final:
            raise NotFoundError(f"No matching session: there is no job {token}")
        return job

    async def _change(self, job: JobRow, **values: Any) -> JobRow:
        """The row as it is now. With a state comes the time at which it ends at the latest."""
        if (state := values.get("state")) is not None:
            values["deadline_ns"] = self._deadline_ns(state)
        return await _in_thread(self._table.change, job.id, **values)

    def _deadline_ns(self, state: JobState) -> int | None:
        seconds = self.settings.seconds_max(state)
        return None if seconds is None else time.time_ns() + round(seconds * 1e9)

    async def _note(self, job: JobRow, reason: str) -> None:
        _log.warning("job %s: %s", job.token, reason)
        await self._change(job, reason=reason)

    def _wish(self, job: JobRow, pool: str, account: str) -> ReservationRow:
        return ReservationRow(
            name=job.reservation,
            capacity_bytes=self.settings.streams_bytes(job.capacity_bytes),
            files_bytes=job.capacity_bytes,
            persistent=True,  # `forebay down` and an upgrade leave it alone: the job's teardown ends it.
            access_mode="striped",
            type="scratch",
            owner_uid=job.owner_uid,
            owner_gid=job.owner_gid,
            created_ns=time.time_ns(),
            pool=pool,
            account=account,
        )

    def _environment(self, job: JobRow) -> dict[str, str]:
        """The variables that the job's processes get: those that find the instance and the plugin, and its own."""
        directives = Directives.from_json(job.directives)
        variables = dict(self._instance_variables)
        if job.reservation:
            files = self._files_path(job.reservation)
            variables["DW_JOB_STRIPED"] = f"{files}/"
            if directives.private:
                folder = self.settings.node_folder
                variables["DW_JOB_PRIVATE"] = f"{folder}/{job.token}/" if folder else f"{files}/{PRIVATE}/"
        for name in directives.persistents:
            files = self._files_path(name)
            variables[f"DW_PERSISTENT_STRIPED_{name.replace('-', '_').replace('.', '_')}"] = f"{files}/"
        # Streams that are named without a reservation lie here.
        home = job.reservation or (directives.persistents[0] if len(directives.persistents) == 1 else "")
        return variables | ({"FOREBAY_RESERVATION": home} if home else {})

    def _files_path(self, reservation: str) -> str:
        with self._link.admin() as admin:
            return admin.reservation(reservation).files_path


def _log_failure(making: asyncio.Future[None]) -> None:
    if not making.cancelled() and (error := making.exception()) is not None:
        _log.warning("a setup that came late: %s", error)


async def _in_thread(call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
    return await asyncio.to_thread(call, *arguments, **options)
