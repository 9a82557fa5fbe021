# SPDX-License-Identifier: Apache-2.0
"""Runs stages as child processes: watches their progress, begins interrupted ones again, cancels, and keeps the
outcome.

A child ends with the manager, because its standard input does. What a run has to tell is written down when the disk
takes it: while it is full or fails, the stage waits. All methods belong to the event loop's thread; the database is
read and written in others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from forebay.errors import NoSpaceError, StorageError
from forebay.fail_point import fail_point
from forebay.manager.jobs import Job, StepsJob, job_from_json, job_to_json
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.database import Database, StageRow
from forebay.workflows.manager.stage_changes import StageChanges
from forebay.workflows.staging.checksum import file_checksum, format_checksum

__all__ = ["StageSupervisor"]

_log = logging.getLogger(__name__)

_FINITE_STAGES_MAX = 4
_FOLLOWING_STAGES_MAX = 64
_FINISHED_STAGES_KEPT = 1000
_ATTEMPTS_MAX = 5
_RETRY_SECONDS_MAX = 30.0
_STOP_SECONDS = 10.0
_SAVE_INTERVAL_SECONDS = 1.0
_WRITE_AGAIN_SECONDS = 1.0
_NOTES_MAX = 100
_LINE_BYTES_MAX = 1 << 20
_ERROR_TEXT_MAX = 2000


class _EndingError(Exception):
    """The manager ends before a change could be written down; the next one begins the stage again."""


class StageSupervisor:
    """The stages of one instance."""

    def __init__(self, database: Database, root: Path) -> None:
        self._database = database
        self._root = root
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._following: set[int] = set()
        self._progress: dict[int, dict[str, Any]] = {}
        self._unwritten: dict[int, str] = {}  # notes for users on stages that cannot be written down
        self._not_before: dict[int, float] = {}  # when those may begin that failed and are tried again
        self._wanted_again: set[int] = set()  # those that begin anew once they have succeeded
        self._ending = asyncio.Lock()  # a stage succeeds, or is wanted again
        self._changes = StageChanges(_FINISHED_STAGES_KEPT)
        self._filling = asyncio.Lock()  # Who starts stages does so alone.
        self._fillings: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def start(self) -> None:
        """Begins what was queued or interrupted."""
        interrupted = await asyncio.to_thread(self._database.requeue_running_stages)
        if interrupted:
            _log.info("beginning %d interrupted stages again", interrupted)
        for row in await asyncio.to_thread(self._database.stages, [StageState.QUEUED]):
            if row.cancel:
                await self._change(row.id, state=StageState.CANCELLED, finished_ns=time.time_ns())
        await self._fill_slots()

    async def stop(self) -> None:
        """Ends all children; their stages begin again when the manager does."""
        self._stopping = True
        for process in self._processes.values():
            _signal(process, signal.SIGTERM)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=_STOP_SECONDS)
            for process in self._processes.values():
                _signal(process, signal.SIGKILL)
            if late:
                await asyncio.wait(late, timeout=_STOP_SECONDS)
        await asyncio.gather(*self._fillings)
        await self._changes.close()

    async def submit(self, job: Job, owner_uid: int, owner_gid: int, umask: int) -> StageRow:
        """Queues a stage."""
        await asyncio.to_thread(self._database.forget_old_stages, _FINISHED_STAGES_KEPT)
        row = await asyncio.to_thread(self._database.add_stage, job_to_json(job), owner_uid, owner_gid, umask)
        _log.info("stage %d: %s", row.id, json.dumps(row.job))
        await self._fill_slots()
        return await self.stage(row.id)

    async def submit_unless_there(self, job: Job, owner_uid: int, owner_gid: int, umask: int) -> StageRow:
        """Queues a stage, unless this user's same stage is not over.

        One that follows a stream and has seen its end may still be busy with the last steps. It begins anew then, for
        the stream may go on.
        """
        document = json.loads(json.dumps(job_to_json(job)))  # as it comes out of the database
        async with self._ending:
            for row in await self.stages():
                if not row.state.is_final and row.owner_uid == owner_uid and row.job == document:
                    if row.progress.get("stream_ended"):
                        self._wanted_again.add(row.id)
                    return row
        return await self.submit(job, owner_uid, owner_gid, umask)

    async def cancel(self, stage_id: int) -> StageRow:
        """Cancels a stage that is not over; idempotent."""
        row = await self.stage(stage_id)
        if row.state.is_final:
            return row
        await self._change(stage_id, cancel=True)
        process = self._processes.get(stage_id)
        if process is not None:
            _signal(process, signal.SIGTERM)
            asyncio.get_running_loop().call_later(_STOP_SECONDS, _signal, process, signal.SIGKILL)
        elif stage_id not in self._tasks:
            self._not_before.pop(stage_id, None)
            await self._change(stage_id, state=StageState.CANCELLED, finished_ns=time.time_ns())
        return await self.stage(stage_id)

    async def stage(self, stage_id: int) -> StageRow:
        """A stage with its newest progress; NotFoundError without it."""
        return self._with_progress(await asyncio.to_thread(self._database.stage, stage_id))

    async def stages(self) -> list[StageRow]:
        """All stages with their newest progress."""
        return [self._with_progress(row) for row in await asyncio.to_thread(self._database.stages)]

    def version(self, stage_id: int) -> int:
        """Changes with every change of the stage."""
        return self._changes.version(stage_id)

    @property
    def delayed(self) -> list[int]:
        """Stages that failed, and wait for their next attempt."""
        return [*self._not_before]

    async def wait_for_change(self, stage_id: int, seen: int, timeout_seconds: float) -> None:
        """Returns when the stage's version is not `seen`, or it is over, or the time is."""
        if (await self.stage(stage_id)).state.is_final:
            return
        await self._changes.wait(stage_id, seen, timeout_seconds)

    def _with_progress(self, row: StageRow) -> StageRow:
        notes = [*row.notes, self._unwritten[row.id]] if row.id in self._unwritten else row.notes
        return replace(row, progress=self._progress.get(row.id, row.progress), notes=notes)

    async def _fill_slots(self) -> None:
        """Starts queued stages as far as there is room, oldest first."""
        async with self._filling:
            if self._stopping:
                return
            queued = await asyncio.to_thread(self._database.stages, [StageState.QUEUED])
            now = time.monotonic()
            for row in queued:
                if self._stopping or row.id in self._tasks or row.cancel or self._not_before.get(row.id, now) > now:
                    continue
                job = job_from_json(row.job)
                follows = isinstance(job, StepsJob) and job.follow
                running = len(self._following) if follows else len(self._tasks) - len(self._following)
                if running >= (_FOLLOWING_STAGES_MAX if follows else _FINITE_STAGES_MAX):
                    continue
                self._not_before.pop(row.id, None)
                if follows:
                    self._following.add(row.id)
                self._tasks[row.id] = asyncio.create_task(self._run(row), name=f"stage {row.id}")

    def _fill_slots_soon(self) -> None:
        filling = asyncio.create_task(self._fill_slots_or_tell())
        self._fillings.add(filling)
        filling.add_done_callback(self._fillings.discard)

    async def _fill_slots_or_tell(self) -> None:
        try:
            await self._fill_slots()
        except Exception as error:
            # What is queued waits for the next stage that comes or ends.
            _log.warning("queued stages cannot be started now: %s", error)

    async def _run(self, row: StageRow) -> None:
        try:
            await self._run_once(row)
        except _EndingError:
            _log.warning("stage %d is left to the next manager: %s", row.id, self._unwritten[row.id])
        except Exception:
            _log.exception("stage %d", row.id)
            failure = _failure(
                "internal", "the manager failed to run the stage; see its log, ROOT/log/manager.log", may_pass=False
            )
            with contextlib.suppress(_EndingError):
                await self._write_down(row.id, state=StageState.FAILED, failure=failure, finished_ns=time.time_ns())
        finally:
            del self._tasks[row.id]
            self._following.discard(row.id)
            self._processes.pop(row.id, None)
            self._progress.pop(row.id, None)
            self._unwritten.pop(row.id, None)
            self._fill_slots_soon()

    async def _run_once(self, row: StageRow) -> None:
        # It may have been cancelled, or have run, since it was found in the queue.
        row = await self.stage(row.id)
        if row.state is not StageState.QUEUED:
            return
        if row.cancel:
            await self._write_down(row.id, state=StageState.CANCELLED, finished_ns=time.time_ns())
            return
        self._wanted_again.discard(row.id)
        await self._write_down(
            row.id, state=StageState.RUNNING, attempts=row.attempts + 1, started_ns=time.time_ns(), failure=None
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "forebay.workflows.staging",
            json.dumps(row.job),
            "--root",
            str(self._root),
            "--lifeline",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"FOREBAY_ROOT": str(self._root), "FOREBAY_SOCKET": ""},
            cwd="/",
            umask=row.umask,
            start_new_session=True,
            limit=_LINE_BYTES_MAX,
            **_identity(row),
        )
        fail_point("manager.stage.spawned")
        self._processes[row.id] = process
        if self._stopping or (await self.stage(row.id)).cancel:
            _signal(process, signal.SIGTERM)
        assert process.stdout is not None
        assert process.stderr is not None
        outcome, error_text = await asyncio.gather(self._watch(row.id, process.stdout), process.stderr.read())
        status = await process.wait()
        fail_point("manager.stage.ended")
        if error_text:
            _log.warning("stage %d wrote: %s", row.id, error_text.decode(errors="replace")[-_ERROR_TEXT_MAX:])
        await self._settle(row, outcome, status)

    async def _watch(self, stage_id: int, events: asyncio.StreamReader) -> dict[str, Any]:
        """Follows a child's events to their end; returns the last one, if it tells the outcome."""
        outcome: dict[str, Any] = {}
        saved_at = 0.0
        while line := await events.readline():
            event = json.loads(line)
            kind = event.pop("event")
            if kind == "progress":
                self._progress[stage_id] = event
                if time.monotonic() - saved_at > _SAVE_INTERVAL_SECONDS:
                    saved_at = time.monotonic()
                    with contextlib.suppress(NoSpaceError, StorageError):
                        await asyncio.to_thread(self._database.change_stage, stage_id, progress=event)
                await self._changes.announce(stage_id)
            elif kind == "note":
                notes = (await asyncio.to_thread(self._database.stage, stage_id)).notes
                await self._write_down(stage_id, notes=[*notes, event["text"]][-_NOTES_MAX:])
            else:
                outcome = {"event": kind, **event}
        return outcome

    async def _settle(self, row: StageRow, outcome: dict[str, Any], status: int) -> None:
        """Writes down how a run of the stage ended, or queues it again."""
        now = await asyncio.to_thread(self._database.stage, row.id)
        progress = self._progress.get(row.id, now.progress)
        if outcome.get("event") == "done" and status == 0:
            result = outcome["result"]
            receipt = Path(result["receipt"])
            _, checksum = await asyncio.to_thread(file_checksum, receipt)
            put_receipt = partial(self._database.put_receipt, row.id, str(receipt), format_checksum(checksum))
            await self._until_written(row.id, put_receipt)
            async with self._ending:
                if row.id in self._wanted_again and not now.cancel:
                    await self._write_down(row.id, state=StageState.QUEUED, attempts=0, progress={})
                    return
                await self._write_down(
                    row.id, state=StageState.SUCCEEDED, result=result, progress=progress, finished_ns=time.time_ns()
                )
            return
        if now.cancel:
            await self._write_down(row.id, state=StageState.CANCELLED, progress=progress, finished_ns=time.time_ns())
            return
        if self._stopping:
            await self._write_down(row.id, state=StageState.QUEUED, progress=progress)
            return
        failure = outcome.get("failure") or _failure(
            "killed",
            f"the stage's process died of signal {-status}"
            if status < 0
            else f"the stage's process ended with status {status}",
            may_pass=status < 0,
        )
        # Attempts that came further than the one before do not count.
        advanced = progress.get("items_done", 0) > row.progress.get("items_done", 0)
        attempts = 1 if advanced else now.attempts
        if failure["may_pass"] and attempts < _ATTEMPTS_MAX:
            pause_seconds = min(2.0 ** (attempts - 1), _RETRY_SECONDS_MAX)
            _log.warning("stage %d is tried again in %g s: %s", row.id, pause_seconds, failure["what"])
            self._not_before[row.id] = time.monotonic() + pause_seconds
            await self._write_down(
                row.id, state=StageState.QUEUED, attempts=attempts, failure=failure, progress=progress
            )
            asyncio.get_running_loop().call_later(pause_seconds, self._fill_slots_soon)
            return
        await self._write_down(
            row.id, state=StageState.FAILED, failure=failure, progress=progress, finished_ns=time.time_ns()
        )

    async def _change(self, stage_id: int, **values: Any) -> None:
        await asyncio.to_thread(self._database.change_stage, stage_id, **values)
        await self._changes.announce(stage_id, ended=_ends(values))

    async def _write_down(self, stage_id: int, **values: Any) -> None:
        """What a run has to tell; nobody would ask for it again."""
        await self._until_written(stage_id, partial(self._database.change_stage, stage_id, **values))
        await self._changes.announce(stage_id, ended=_ends(values))

    async def _until_written(self, stage_id: int, change: Callable[[], object]) -> None:
        """Makes the change as soon as the disk takes it; _EndingError if the manager ends first."""
        while True:
            try:
                await asyncio.to_thread(change)
                break
            except (NoSpaceError, StorageError) as error:
                if stage_id not in self._unwritten:
                    _log.warning("stage %d waits: %s", stage_id, error)
                    trouble = "is full" if isinstance(error, NoSpaceError) else "fails"
                    self._unwritten[stage_id] = (
                        f"the disk of the manager's database {trouble} ({error.where}); the stage continues by itself "
                        "when that has passed"
                    )
                    await self._changes.announce(stage_id)
                if self._stopping:
                    raise _EndingError from error
                await asyncio.sleep(_WRITE_AGAIN_SECONDS)
        self._unwritten.pop(stage_id, None)


def _ends(values: dict[str, Any]) -> bool:
    state = values.get("state")
    return isinstance(state, StageState) and state.is_final


def _identity(row: StageRow) -> dict[str, Any]:
    """How the child becomes the user who asked for the stage."""
    if row.owner_uid == os.geteuid():
        return {}
    name = pwd.getpwuid(row.owner_uid).pw_name
    return {"user": row.owner_uid, "group": row.owner_gid, "extra_groups": os.getgrouplist(name, row.owner_gid)}


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


def _failure(code: str, what: str, *, may_pass: bool) -> dict[str, Any]:
    return {"code": code, "what": what, "where": "", "may_pass": may_pass, "stream_broken": False}
