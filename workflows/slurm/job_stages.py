# SPDX-License-Identifier: Apache-2.0
"""The stages of a job: run side by side, waited for, and cancelled when the job's time is up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from forebay.durations import format_duration
from forebay.errors import ForebayError, InvalidArgumentError, NotFoundError, RefusedError
from forebay.manager.jobs import Job, job_from_json
from forebay.manager.records import JobRow, StageRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.slurm.job_records import JobRecords, seconds_left
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.stages_of_a_job import following_stages, inward_stages, outward_stages, with_unclean

__all__ = ["JobStages"]

_log = logging.getLogger(__name__)

#: Names of the stages that the job's programs asked for begin with this.
ASKED = "asked "
#: States of a stage that is begun, or begun anew.
_TO_DO = (None, StageState.FAILED, StageState.CANCELLED)
_STAGE_WAIT_SECONDS = 10.0
_UMASK = 0o022


class JobStages:
    """Those of one instance's jobs."""

    def __init__(self, records: JobRecords, supervisor: StageSupervisor, settings: SlurmSettings) -> None:
        self._records = records
        self._supervisor = supervisor
        self._settings = settings

    async def carry_in(self, job: JobRow) -> None:
        """Runs what goes in before the job, side by side, and waits for all; those that were begun before are taken up.

        Raises
        ------
        InvalidArgumentError
            One of them failed, or they were not done in time; the job's reason says so, too.
        """
        async with self._telling(job, "data_in"):
            requests = await inward_stages(job)
            await self._wait_for_all(job, await self._begin(job, requests, _TO_DO), list(requests))

    async def carry_out(self, job: JobRow, unclean_nodes: tuple[str, ...]) -> None:
        """The same for what goes out after the job, and what its programs have asked for. Receipts name the nodes."""
        async with self._telling(job, "data_out"):
            await self._end_following(job)
            requests = await outward_stages(job, unclean_nodes)
            job = await self._begin_asked(job, unclean_nodes)
            stages = await self._begin(job, requests, _TO_DO)
            await self._wait_for_all(job, stages, [*requests, *(name for name in stages if name.startswith(ASKED))])

    @contextlib.asynccontextmanager
    async def _telling(self, job: JobRow, call: str) -> AsyncIterator[None]:
        try:
            yield
        except ForebayError as error:
            where = f" ({error.where})" if error.where else ""
            text = f"{call}: {error.what}{where}"
            await self._records.note(job, text)
            raise InvalidArgumentError(text) from None

    async def _wait_for_all(self, job: JobRow, stages: dict[str, int], names: list[str]) -> None:
        try:
            async with asyncio.timeout(seconds_left(job)):
                for name in names:
                    await self._wait_for(stages[name])
        except TimeoutError:
            raise InvalidArgumentError(await self._why_late(job, stages)) from None

    async def begin_following(self, job: JobRow) -> None:
        """Begins what is staged out while the job runs; idempotent. What fails of it is done again by `carry_out`."""
        over = (None, StageState.SUCCEEDED, StageState.FAILED, StageState.CANCELLED)
        try:
            await self._begin(job, following_stages(job), over)
        except RefusedError as error:  # too many stages of this user wait; the job runs all the same
            _log.warning("job %s: its files are copied after it only: %s", job.token, error)

    async def _end_following(self, job: JobRow) -> None:
        """Those that follow have taken all that is complete, or failed, or the time is over."""
        following = [job.stages[name] for name in following_stages(job) if name in job.stages]
        for stage_id in following:
            with contextlib.suppress(NotFoundError):
                if not (row := await self._supervisor.stage(stage_id)).state.is_final and not row.cancel:
                    await self._supervisor.cancel(stage_id)
        with contextlib.suppress(TimeoutError, NotFoundError):
            async with asyncio.timeout(seconds_left(job)):
                for stage_id in following:
                    await self._until_over(stage_id)

    async def _begin(
        self, job: JobRow, requests: dict[str, Job], over: tuple[StageState | None, ...]
    ) -> dict[str, int]:
        """Submits those that were not begun, or are over in one of these ways; the numbers of all of the job."""
        stages = dict(job.stages)
        for name, request in requests.items():
            if name in stages and await self._state_of(stages[name]) not in over:
                continue
            stages[name] = (await self._supervisor.submit(request, job.owner_uid, job.owner_gid, _UMASK)).id
            job = await self._records.change(job, stages=stages)
        return stages

    async def _begin_asked(self, job: JobRow, unclean_nodes: tuple[str, ...]) -> JobRow:
        """Begins what the job's programs have deferred, and takes up what they asked for and did not wait for. Nothing
        is forgotten if the manager dies: what is begun here stands in the job's row before it begins.
        """
        async with self._supervisor.asked.turn(job.owner_uid):
            due = await self._supervisor.asked.due(job.id)
        stages = dict(job.stages)
        fresh = set(due).difference(stages.values())
        stages |= {f"{ASKED}{stage_id}": stage_id for stage_id in fresh}
        if stages != job.stages:
            job = await self._records.change(job, stages=stages)
        for name in [name for name in stages if name.startswith(ASKED)]:
            try:
                row = await self._supervisor.stage(stages[name])
                due_job = with_unclean(job_from_json(row.job), unclean_nodes)
                row = await self._supervisor.activate(row.id, due_job)
            except NotFoundError:
                raise InvalidArgumentError(
                    f"stage {stages[name]}, which a program of the job asked for, is not known any more: copy by hand "
                    "what it was for"
                ) from None
            if row.state is StageState.REVOKED:  # just now
                del stages[name]
            elif stages[name] not in fresh and row.state in (StageState.FAILED, StageState.CANCELLED):
                # In a data_out before this one.
                stages[name] = (await self._supervisor.submit(due_job, row.owner_uid, row.owner_gid, row.umask)).id
            if stages != job.stages:
                job = await self._records.change(job, stages=stages)
        return job

    async def cancel_asked(self, job: JobRow) -> None:
        """No stage-out comes for what the job's programs asked for; the job's row goes on saying that it was wanted."""
        due = await self._supervisor.asked.due(job.id)
        if not due:
            return
        await self._records.change(job, stages=job.stages | {f"{ASKED}{stage_id}": stage_id for stage_id in due})
        for stage_id in due:
            with contextlib.suppress(NotFoundError):
                await self._supervisor.cancel(stage_id)

    async def keeps(self, job: JobRow) -> bool:
        """Something that its programs asked for is to outlive the job, and has not been copied."""
        return any(name.startswith(ASKED) for name in job.stages) or bool(await self._supervisor.asked.due(job.id))

    async def cancel(self, stages: dict[str, int]) -> None:
        """Cancels those that are not over."""
        for stage_id in stages.values():
            if (state := await self._state_of(stage_id)) is not None and not state.is_final:
                await self._supervisor.cancel(stage_id)

    async def _until_over(self, stage_id: int) -> StageRow:
        while not (row := await self._supervisor.stage(stage_id)).state.is_final:
            version = self._supervisor.version(row.id)
            await self._supervisor.wait_for_change(row.id, version, _STAGE_WAIT_SECONDS)
        return row

    async def _wait_for(self, stage_id: int) -> None:
        row = await self._until_over(stage_id)
        if row.state is not StageState.SUCCEEDED:
            failure = row.failure or {"what": "it was cancelled", "where": ""}
            where = f" ({failure['where']})" if failure["where"] else ""
            raise InvalidArgumentError(f"{failure['what']}{where}; stage {row.id}")

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
        await self.cancel(stages)
        seconds = self._settings.seconds_max(job.state) or 0.0
        return f"not done within {format_duration(seconds)}, and cancelled: {', '.join(late)}"

    async def _state_of(self, stage_id: int) -> StageState | None:
        try:
            return (await self._supervisor.stage(stage_id)).state
        except NotFoundError:
            return None
