# SPDX-License-Identifier: Apache-2.0
"""What becomes of a job's reservation: made at setup, filled at data_in, drained at data_out, destroyed at teardown.

Each call of the scheduler moves the job's row one state on, and is idempotent: it may come twice, at the same time as
another for the same job, or again after a restart of either side. Calls for one job take turns; those of different jobs
do not wait for one another.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

from forebay.errors import (
    DisconnectedError,
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    RefusedError,
)
from forebay.manager.records import JobRow, JobState
from forebay.workflows.directives.directives import Directives
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.name_turns import TaskTurns
from forebay.workflows.manager.core.reservations.attachments import Attachments
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.slow_calls import SlowCalls
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.slurm.job_ending import JobEnding
from forebay.workflows.slurm.job_environment import JobEnvironment, home_of
from forebay.workflows.slurm.job_files import JobFiles
from forebay.workflows.slurm.job_making import JobMaking
from forebay.workflows.slurm.job_records import JobRecords, in_thread
from forebay.workflows.slurm.job_stages import JobStages
from forebay.workflows.slurm.job_tokens import JobTokens
from forebay.workflows.slurm.jobs_without_room import JobsWithoutRoom
from forebay.workflows.slurm.node_names import parse_node_names
from forebay.workflows.slurm.persistents import Persistents
from forebay.workflows.slurm.processes import (
    comment_on,
    is_running,
    is_unknown,
    job_facts,
    known_job,
    node_addresses,
    wait_until_quiet,
)
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.slurm_files import SlurmFiles
from forebay.workflows.slurm.symbols import expanded_directives
from forebay.workflows.slurm.users import check_user

__all__ = ["SlurmJobs"]

_log = logging.getLogger(__name__)


class SlurmJobs:
    """The jobs of one instance. Its methods belong to the event loop's thread; what may take long runs in others."""

    def __init__(
        self,
        database: Database,
        supervisor: StageSupervisor,
        reservations: Reservations,
        attachments: Attachments,
        slow_calls: SlowCalls,
        root: Path,
        settings: SlurmSettings,
        instance_variables: dict[str, str],
        job_files: JobFiles,
    ) -> None:
        self.job_files = job_files
        self._reservations = reservations
        self.slow_calls = slow_calls
        self.settings = settings
        self._turns = TaskTurns()
        self._records = JobRecords(database, settings)
        self.persistents = Persistents(database, reservations, attachments, settings, job_files)
        self._making = JobMaking(
            self._records, reservations, attachments, self.persistents, slow_calls, settings, job_files
        )
        self._stages = JobStages(self._records, supervisor, settings)
        self._tokens = JobTokens(root, settings, reservations)
        self._ending = JobEnding(
            database,
            self._records,
            reservations,
            attachments,
            slow_calls,
            settings,
            self._tokens,
            job_files,
            self._stages,
        )
        self._without_room = JobsWithoutRoom(self._records, self._making, self._ending, reservations.pools, settings)
        environment = JobEnvironment(settings, self._tokens, instance_variables, job_files)
        self.files = SlurmFiles(root, settings, database, reservations.pools, environment.of, job_files.reach)

    async def check(self, directives: Directives) -> None:
        """Refuses at submission what could only wait for ever.

        Raises
        ------
        NoSpaceError
            It asks for more than a server of the pool has.
        InvalidArgumentError
            There is no such pool.
        UnsupportedError
            It stages files that lie on another server of the pool.
        """
        if directives.files or directives.matched:
            await in_thread(self._making.check_stages, directives)
        requests = [(directives.pool, directives.capacity_bytes)]
        requests += [(request.pool, request.capacity_bytes) for request in directives.creates]
        for pool, size in requests:
            self.pool_of(pool)
            name = pool or self.settings.pool
            known = self.files.pools.get(name)
            if known is not None and size > known.largest_bytes:
                where = "the whole pool" if known.largest == known.quantity else "the largest server of pool"
                raise NoSpaceError(
                    f"the job asks for {size >> 20} MiB, and {where} {name} has {known.largest_bytes >> 20} MiB; ask "
                    "for less"
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
            job = await self._records.current(token)
            comes_again = job is not None and job.state is JobState.WAITING
            if job is None or (job.state.is_final and not comes_again) or job.state.may_have_run:
                if job is not None and not job.state.is_final:
                    if job.state is JobState.RUNNING and await is_running(self.settings.squeue, token):
                        # A call of a scheduler that has died since, which comes late.
                        raise RefusedError(f"job {token} runs: its reservation is made already")
                    # The scheduler has lost the run before: what it was to keep stays, under another name.
                    await self._ending.end(job, discard=False)
                document = directives.as_json()
                job = await self._records.add(token, uid, gid, capacity_bytes, document)
            else:
                job = await self._records.change(job, state=JobState.SETUP, reason="")
            try:
                await self._making.make(job, directives, pool)
                await in_thread(self._tokens.make, job, home_of(job, directives))
            except ForebayError as error:
                raise await self._without_room.note(job, pool, error) from None
            finally:
                self._without_room.is_set_up(token)
            await self._records.change(job, state=JobState.DATA_IN, reason="")
            await self.write_slurm_files()
            await self._tell_user(token, directives)

    async def data_in(self, token: str) -> None:
        """Stages in what the job's directives say; raises the first failure."""
        async with self._turns.of(token):
            job = await self._records.existing(token)
            if job.state.may_have_run:
                return
            job = await self._records.change(job, state=JobState.DATA_IN, reason="")
            await self._stages.carry_in(job)
            await self._records.change(job, state=JobState.PRE_RUN, reason="")

    async def real_size(self, token: str) -> int:
        """What the job's files may take."""
        return (await self._records.existing(token)).capacity_bytes

    async def pre_run(self, token: str, raw: Directives, nodes: tuple[str, ...] | None) -> None:
        """The job is about to run. `raw`: the script's own lines; only they have `#FB`. `nodes`: None if the scheduler
        does not pass them.
        """
        async with self._turns.of(token):
            job = await self._records.existing(token)
            if job.state in (JobState.POST_RUN, JobState.DATA_OUT, JobState.DRAINED):
                raise RefusedError(f"job {token} is over already: it is in {job.state.value}")
            directives = Directives.from_json(job.directives)
            shown = await in_thread(self.job_files.shown_of, job, directives)
            if nodes is None and (directives.private or self.settings.nodes or shown):
                nodes = tuple(parse_node_names((await known_job(self.settings.squeue, token)).nodes))
            try:
                await in_thread(self.job_files.check_there, job)
                self._check_nodes(directives, nodes or ())
                if shown:
                    addresses = await node_addresses(self.settings.sinfo, nodes or ())
                    await in_thread(self.job_files.open, job, directives, addresses)
            except ForebayError as error:
                await self._records.note(job, f"pre_run: {error.what}")
                raise
            own = await self.expanded(token, job.owner_uid, Directives(streams=raw.streams, matched=raw.matched))
            kept = replace(directives, streams=own.streams, matched=own.matched, ignored=raw.ignored).as_json()
            job = await self._records.change(
                job, state=JobState.RUNNING, directives=kept, quiet=False, node_count=len(nodes or "1"), reason=""
            )
            await self._stages.begin_following(job)
            await self.write_slurm_files()
            if raw.ignored != directives.ignored:  # setup may have seen nothing but directives
                await self._tell_user(token, raw)

    async def post_run(self, token: str) -> None:
        """The job is over; returns when its processes are gone, or the time is."""
        async with self._turns.of(token):
            job = await self._records.existing(token)
            if job.state in (JobState.DATA_OUT, JobState.DRAINED):
                return
            await self._records.change(job, state=JobState.POST_RUN, reason="")
            if await wait_until_quiet(self.settings.squeue, token, self.settings.quiet_seconds_max):
                await self._records.change(job, quiet=True)
            else:
                await self._records.note(
                    job, "post_run: processes of the job still run; what they write now may be missed"
                )
            try:
                await self._settle(job)
            except ForebayError as error:  # data_out tries again, and copies nothing before
                _log.warning("job %s: its nodes are not fenced yet: %s", token, error)

    async def data_out(self, token: str) -> None:
        """Stages out what the job's directives say; raises the first failure."""
        async with self._turns.of(token):
            job = await self._records.existing(token)
            if job.state is JobState.DRAINED:
                return
            job = await self._records.change(job, state=JobState.DATA_OUT, reason="")
            try:
                unclean = await self._settle(job)
            except ForebayError as error:
                await self._records.note(job, f"data_out: its nodes are not fenced: {error.what}")
                raise
            await self._stages.carry_out(job, tuple(unclean))
            await self._records.change(job, state=JobState.DRAINED, reason="")

    async def teardown(self, token: str, *, hurry: bool) -> bool:
        """The scheduler is through with the job. False: there is no such job."""
        job = await self._records.current(token)
        # The user discards the data where stage-out is under way and is told to hurry; hurry alone is no consent.
        discard = hurry and job is not None and job.state is JobState.DATA_OUT and not job.reason
        if hurry and job is not None and not job.state.is_final:
            await self._stages.cancel(job.stages)  # The call that waits for them has its turn still.
        async with self._turns.of(token):
            job = await self._records.current(token)
            if job is None or (job.state.is_final and job.state is not JobState.WAITING):
                return False
            # `scancel --hurry` of a running job comes here alone. A scheduler that lost its state sends the same call
            # for a job that still runs; to that one it is no cancelled job.
            discard = discard or (hurry and job.state is JobState.RUNNING and await self._was_cancelled(token))
            await self._ending.end(job, discard=discard)
            await self.write_slurm_files()
            return True

    async def _settle(self, job: JobRow) -> list[str]:
        """No node of the job changes its files any more; those that were not clean, which the job's user is told."""
        before = await in_thread(self.job_files.unclean, job)
        unclean = await in_thread(self.job_files.settle, job)
        if unclean != before and not await comment_on(
            self.settings.scontrol, job.token, f"forebay: {await in_thread(self.job_files.note_on, job)}"
        ):
            _log.warning("job %s: Slurm takes no comment on its nodes", job.token)
        return unclean

    async def _was_cancelled(self, token: str) -> bool:
        """True only if Slurm says so, and that no process of the job is left."""
        if not await wait_until_quiet(self.settings.squeue, token, self.settings.quiet_seconds_max):
            return False
        facts = await job_facts(self.settings.squeue, token)
        return facts is not None and facts.state == "CANCELLED"

    async def sweep(self) -> None:
        """Ends lost jobs and quarantines that are over; releases jobs for which there is room."""
        now_ns = time.time_ns()
        for found in await self._records.not_gone():
            if self._turns.is_taken(found.token):
                continue
            async with self._turns.of(found.token):
                # Others were looked at meanwhile, and Slurm may have said something of this one.
                job = await self._records.numbered(found.id)
                if job is None or job.state is JobState.GONE:
                    continue
                try:
                    await self._look_at(job, now_ns)
                except ForebayError as error:
                    if isinstance(error, NoSpaceError) or (
                        isinstance(error, DisconnectedError) and await in_thread(self._is_server_away)
                    ):
                        raise
                    # Others are looked at all the same.
                    _log.warning("job %s is looked at again later: %s", job.token, error)
        await self._records.forget_old()
        await in_thread(self.job_files.reconcile)

    def _is_server_away(self) -> bool:
        """The manager's own server is; homes elsewhere, and agents, concern their jobs alone."""
        return self._reservations.servers.own.incarnation() is None

    async def _look_at(self, job: JobRow, now_ns: int) -> None:
        if job.state is JobState.WAITING:
            await self._without_room.look_at(job)
        elif job.state is JobState.KEPT:
            await self._ending.look_at_kept(job, now_ns)
        elif now_ns - job.changed_ns > self.settings.lost_seconds * 1e9 and await is_unknown(
            self.settings.squeue, job.token
        ):
            _log.warning("job %s: Slurm does not know it any more", job.token)
            await self._ending.end(job, discard=False)
        else:
            await self._renew_token(job, now_ns)

    async def _renew_token(self, job: JobRow, now_ns: int) -> None:
        home = home_of(job, Directives.from_json(job.directives))
        try:
            await in_thread(self._tokens.renew, job, home, now_ns)
        except ForebayError as error:  # the next sweep tries again
            _log.warning("job %s: its token is not renewed: %s", job.token, error)

    async def write_slurm_files(self) -> None:
        """Brings what Slurm is told up to date."""
        await in_thread(self.files.refresh)

    async def write_books_at_leisure(self) -> None:
        """Brings up to date, too, what has changed without a call: free space, and long tables."""
        await in_thread(self.files.refresh, at_leisure=True)

    async def expanded(self, token: str, uid: int, directives: Directives) -> Directives:
        """The directives with Slurm's symbols replaced in their paths; raises as `expanded_directives`."""
        return await expanded_directives(directives, token, uid, self.settings.scontrol)

    async def _tell_user(self, token: str, directives: Directives) -> None:
        """Writes what the user should know into Slurm's record of the job."""
        if directives.note and not await comment_on(self.settings.scontrol, token, f"forebay: {directives.note}"):
            _log.warning("job %s: Slurm takes no comment: %s", token, directives.note)

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
