# SPDX-License-Identifier: Apache-2.0
"""Runs stages as child processes: whose turn it is, which begin again after a failure or a restart, cancelling, and the
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
import sys
import time
from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from forebay.errors import ForebayError, NoSpaceError, RefusedError, StorageError
from forebay.fail_point import fail_point
from forebay.manager.jobs import Job, MatchedFilesJob, job_from_json, job_to_json
from forebay.manager.process_identity import process_identity
from forebay.manager.records import StageRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.stages.acting_user import acting_row
from forebay.workflows.manager.core.stages.asked_stages import AskedStages, Asking
from forebay.workflows.manager.core.stages.other_trees import OtherTrees
from forebay.workflows.manager.core.stages.reading_budget import ReadingBudgets
from forebay.workflows.manager.core.stages.receipts import Receipts, ReceiptWriter
from forebay.workflows.manager.core.stages.stage_changes import StageChanges
from forebay.workflows.manager.core.stages.stage_concurrency import StageConcurrency
from forebay.workflows.manager.core.stages.stage_environment import stage_environment
from forebay.workflows.manager.core.stages.stage_process import StageProcess
from forebay.workflows.manager.core.stages.stage_run import Outcome, StageRun, failure_of
from forebay.workflows.manager.core.stages.stage_secret import stage_key
from forebay.workflows.manager.core.stages.stage_settings import StageSettings
from forebay.workflows.manager.core.stages.stuck_processes import StuckProcess, StuckProcesses
from forebay.workflows.manager.core.user_turns import UserTurns

__all__ = ["StageSupervisor", "ends_when_asked"]

_log = logging.getLogger(__name__)

#: So many stages run at once, and so many more of users who have none.
_FINITE_STAGES = (4, 12)
_FOLLOWING_STAGES = (48, 16)
_WAITING_STAGES_MAX = 10_000  # of each user
_FINISHED_STAGES_KEPT = 1000  # of each user
#: What those are described by, in the database and to whoever lists them.
_WAITING_CHARACTERS_MAX = 16 << 20
_FINISHED_CHARACTERS_KEPT = 16 << 20
_LOGGED_CHARACTERS_MAX = 1000  # of a description
_ATTEMPTS_MAX = 5
_RETRY_SECONDS_MAX = 30.0
_STOP_SECONDS = 10.0
_WRITE_AGAIN_SECONDS = 1.0
_COMPLAINT_CHARACTERS_MAX = 200  # of a failure


class _EndingError(Exception):
    """The manager ends before a change could be written down; the next one begins the stage again."""


class StageSupervisor:
    """The stages of one instance."""

    def __init__(self, database: Database, root: Path, settings: StageSettings | None = None) -> None:
        self._database = database
        self._root = root
        self._settings = settings or StageSettings()
        self.receipts = Receipts(root / "receipts", self._settings.receipts_bytes_max)
        self._turns = {False: UserTurns(*_FINITE_STAGES), True: UserTurns(*_FOLLOWING_STAGES)}  # True: that follow
        self._budgets = ReadingBudgets()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._runs: dict[int, StageRun] = {}
        self._stuck = StuckProcesses(database, self._has_ended_after_all)
        self._unwritten: dict[int, str] = {}  # notes for users on stages that cannot be written down
        self._delayed: set[int] = set()  # those that failed and are tried again later
        self._asked_to_end: set[int] = set()  # of those that follow files of reservations which nobody uses
        self._wanted_again: set[int] = set()  # those that begin anew once they have succeeded
        self._ending = asyncio.Lock()  # a stage succeeds, or is wanted again
        self._changes = StageChanges(_FINISHED_STAGES_KEPT)
        self.concurrency = StageConcurrency(database)
        self.asked = AskedStages(database)
        self.trees: OtherTrees | None = None  #: of other servers; None: stages move files of this one only
        self._stopping = False

    async def start(self) -> None:
        """Begins what was queued or interrupted."""
        if self.trees is not None:
            await asyncio.to_thread(self.trees.start)
        await self.concurrency.read()
        highest = await asyncio.to_thread(self.receipts.start)
        await asyncio.to_thread(self._database.use_stage_numbers_above, highest)
        interrupted = await asyncio.to_thread(self._database.requeue_running_stages)
        if interrupted:
            _log.info("beginning %d interrupted stages again", interrupted)
        for stuck in await self._stuck.start():
            self._turns[stuck.follows].hold(stuck.uid)
        for row in await asyncio.to_thread(self._database.stages, [StageState.QUEUED]):
            if row.cancel and not ends_when_asked(row):
                await self._change(row.id, state=StageState.CANCELLED, finished_ns=time.time_ns())
            else:
                self._wait_for_turn(row)
        self._fill_slots()

    async def stop(self) -> None:
        """Ends all children; their stages begin again when the manager does."""
        self._stopping = True
        for run in self._runs.values():
            run.stop()
        if self._tasks:
            # A run that does not end is given up by itself.
            await asyncio.wait(self._tasks.values(), timeout=2 * _STOP_SECONDS)
        self._stuck.stop()
        await self._changes.close()

    async def submit(
        self,
        job: Job,
        owner_uid: int,
        owner_gid: int,
        umask: int,
        *,
        asking: Asking | None = None,
        deferred: bool = False,
    ) -> StageRow:
        """Queues a stage.

        Parameters
        ----------
        asking : Asking, optional
            Of a program: what it will ask for the stage by.
        deferred : bool
            It is kept until `activate`, and counts among those that wait.

        Raises
        ------
        RefusedError
            Too many of this user's wait.
        """
        waiting = sum(turns.waiting(owner_uid) for turns in self._turns.values())
        waiting += await asyncio.to_thread(self._database.count_stages, owner_uid, StageState.DEFERRED)
        if waiting >= _WAITING_STAGES_MAX:
            raise RefusedError(
                f"{waiting} stages of user {owner_uid} wait already; wait until some are done, or stage whole folders"
            )
        described = await asyncio.to_thread(self._database.described_characters, owner_uid)
        if described >= _WAITING_CHARACTERS_MAX:
            raise RefusedError(
                f"the descriptions of user {owner_uid}'s stages that are not over have {described >> 20} MiB; wait "
                "until some are done, or describe them in fewer words: ranges of steps, patterns of names"
            )
        needed = await asyncio.to_thread(self.asked.needed_by_jobs, owner_uid)
        await asyncio.to_thread(
            self._database.forget_old_stages, owner_uid, _FINISHED_STAGES_KEPT, _FINISHED_CHARACTERS_KEPT, needed
        )
        more: dict[str, Any] = {"state": StageState.DEFERRED} if deferred else {}
        if asking is not None:
            more["also"] = partial(self.asked.enter, asking)
        add = partial(self._database.add_stage, job_to_json(job), owner_uid, owner_gid, umask, **more)
        row = await asyncio.to_thread(add)
        _log.info("stage %d%s: %s", row.id, ", deferred" if deferred else "", _shortened(json.dumps(row.job)))
        if not deferred:
            self._wait_for_turn(row)
            self._fill_slots()
        return await self.stage(row.id)

    async def activate(self, stage_id: int, job: Job | None = None) -> StageRow:
        """Queues a stage that is deferred, to do `job` if one is given; idempotent, and nothing for any other."""
        document = None if job is None else job_to_json(job)
        move = self._database.move_stage
        if await asyncio.to_thread(move, stage_id, StageState.DEFERRED, StageState.QUEUED, document):
            fail_point("manager.stage.activated")
            await self._changes.announce(stage_id)
            self._wait_for_turn(await self.stage(stage_id))
            self._fill_slots()
        return await self.stage(stage_id)

    async def revoke(self, stage_id: int) -> bool:
        """A stage that is deferred is not wanted any more; False for any other."""
        revoked = await asyncio.to_thread(self._database.move_stage, stage_id, StageState.DEFERRED, StageState.REVOKED)
        if revoked:
            await self._changes.announce(stage_id, ended=True)
        return revoked

    async def read_concurrency(self) -> None:
        """Obeys the limits that are written down: more stages may run side by side than before."""
        await self.concurrency.read()
        self._fill_slots()

    async def submit_unless_there(self, job: Job, owner_uid: int, owner_gid: int, umask: int) -> StageRow:
        """Queues a stage, unless this user's same stage is not over.

        One that follows a stream and has seen its end may still be busy with the last steps. It begins anew then, for
        the stream may go on.
        """
        find = partial(self._database.unfinished_stage, owner_uid, job_to_json(job))
        while (same := await asyncio.to_thread(find)) is not None:
            # All users' stages succeed under this lock: the search, which may take long, is outside.
            async with self._ending:
                row = await self.stage(same.id)
                if not row.state.is_final:
                    if row.progress.get("stream_ended"):
                        self._wanted_again.add(row.id)
                    return row
        return await self.submit(job, owner_uid, owner_gid, umask)

    async def cancel(self, stage_id: int) -> StageRow:
        """Cancels a stage that is not over; idempotent. Its place is free at once, whatever its process does.

        One that follows files is asked to end at first: it takes what is complete, and succeeds. The second time it is
        cancelled like others.
        """
        row = await self.stage(stage_id)
        if row.state.is_final:
            return row
        if not row.cancel and row.attempts and ends_when_asked(row):
            await self._ask_to_end(row)
            return await self.stage(stage_id)
        if row.state is StageState.DEFERRED and await asyncio.to_thread(
            self._database.move_stage, stage_id, StageState.DEFERRED, StageState.CANCELLED
        ):
            await self._changes.announce(stage_id, ended=True)
            return await self.stage(stage_id)
        await self._change(stage_id, cancel=True)
        run = self._runs.get(stage_id)
        if run is not None:
            self._stop(run)
        elif stage_id not in self._tasks:
            self._delayed.discard(stage_id)
            self._turns[_follows(row)].remove(row.owner_uid, stage_id)
            self.concurrency.forget(stage_id)
            await self._change(stage_id, state=StageState.CANCELLED, finished_ns=time.time_ns())
        return await self.stage(stage_id)

    async def end_following(self, reservations: Container[str]) -> None:
        """Asks the stages that follow files of these reservations to end, once."""
        following = {
            use.id
            for use in await asyncio.to_thread(self._database.stage_uses)
            if use.follows and use.kind == MatchedFilesJob.kind and use.reservation in reservations
            if use.state in (StageState.QUEUED, StageState.RUNNING)
        }
        self._asked_to_end &= following
        for stage_id in sorted(following - self._asked_to_end):
            row = await self.stage(stage_id)
            if not row.state.is_final and not row.cancel:
                await self._ask_to_end(row)
            self._asked_to_end.add(stage_id)

    async def _ask_to_end(self, row: StageRow) -> None:
        """It takes what is complete, also if this manager dies before it has."""
        await self._change(row.id, cancel=True)
        run = self._runs.get(row.id)
        if run is not None:
            run.process.ask_to_end()

    async def stage(self, stage_id: int) -> StageRow:
        """A stage with its newest progress; NotFoundError without it."""
        return self._with_progress(await asyncio.to_thread(self._database.stage, stage_id))

    async def stages(self, owner_uid: int | None = None) -> list[StageRow]:
        """All stages of a user, or of all users, with their newest progress."""
        rows = await asyncio.to_thread(self._database.stages, None, owner_uid)
        return [self._with_progress(row) for row in rows]

    def version(self, stage_id: int) -> int:
        """Changes with every change of the stage."""
        return self._changes.version(stage_id)

    @property
    def delayed(self) -> list[int]:
        """Stages that failed, and wait for their next attempt."""
        return [*self._delayed]

    @property
    def stuck(self) -> list[StuckProcess]:
        """Processes of stages that do not end although they were killed, also those of earlier managers."""
        return self._stuck.all()

    async def wait_for_change(self, stage_id: int, seen: int, timeout_seconds: float) -> None:
        """Returns when the stage's version is not `seen`, or it is over, or the time is."""
        if (await self.stage(stage_id)).state.is_final:
            return
        await self._changes.wait(stage_id, seen, timeout_seconds)

    def _with_progress(self, row: StageRow) -> StageRow:
        run = self._runs.get(row.id)
        if run is not None:
            row = replace(row, progress=run.progress, notes=tuple(run.notes))
        unwritten = self._unwritten.get(row.id)
        return row if unwritten is None else replace(row, notes=(*row.notes, unwritten))

    def _wait_for_turn(self, row: StageRow) -> None:
        self.concurrency.note(row)
        self._turns[_follows(row)].add(row.owner_uid, row.id)

    def _fill_slots(self) -> None:
        """Begins the stages whose turn it is."""
        for turns in self._turns.values():
            while not self._stopping and (stage_id := turns.begin(self.concurrency.may_begin)) is not None:
                self.concurrency.begun(stage_id)
                self._tasks[stage_id] = asyncio.create_task(self._run(stage_id, turns), name=f"stage {stage_id}")

    def _stop(self, run: StageRun) -> None:
        """Ends a run. Its place is free from now on; until it has ended, it counts against its user's share."""
        if not run.is_stopping:
            turns = self._turns[_follows(run.row)]
            turns.end(run.row.id)
            turns.hold(run.row.owner_uid)
            run.stop()
            self._fill_slots()

    async def _run(self, stage_id: int, turns: UserTurns) -> None:
        pause_seconds: float | None = None
        uid: int | None = None
        try:
            row = await self._when_readable(stage_id)
            uid = row.owner_uid
            pause_seconds = await self._run_once(row)
        except _EndingError:
            _log.warning("stage %d is left to the next manager: %s", stage_id, self._unwritten.get(stage_id))
        except Exception:
            _log.exception("stage %d", stage_id)
            failure = failure_of(
                "internal", "the manager failed to run the stage; see its log, ROOT/log/manager.log", may_pass=False
            )
            with contextlib.suppress(_EndingError):
                await self._write_down(stage_id, state=StageState.FAILED, failure=failure, finished_ns=time.time_ns())
        finally:
            del self._tasks[stage_id]
            self._unwritten.pop(stage_id, None)
            turns.end(stage_id)
            self.concurrency.ended(stage_id)
            if pause_seconds is None:
                self.concurrency.forget(stage_id)
            if pause_seconds is not None and uid is not None:
                self._delayed.add(stage_id)
                asyncio.get_running_loop().call_later(pause_seconds, self._queue_again, turns, uid, stage_id)
            self._fill_slots()

    def _queue_again(self, turns: UserTurns, uid: int, stage_id: int) -> None:
        """It was not cancelled meanwhile."""
        if stage_id in self._delayed:
            self._delayed.discard(stage_id)
            turns.add(uid, stage_id)
            self._fill_slots()

    async def _run_once(self, row: StageRow) -> float | None:
        """Runs it once; returns after how many seconds it is to run again, None: not."""
        # It may have been cancelled, or have run, since it was queued.
        if row.state is not StageState.QUEUED:
            return None
        if row.cancel and not ends_when_asked(row):
            await self._write_down(row.id, state=StageState.CANCELLED, finished_ns=time.time_ns())
            return None
        self._wanted_again.discard(row.id)
        await self._write_down(
            row.id, state=StageState.RUNNING, attempts=row.attempts + 1, started_ns=time.time_ns(), failure=None
        )
        receipt = self.receipts.begin(row)
        budget = self._budgets.begin(row.owner_uid)
        run: StageRun | None = None
        process: StuckProcess | None = None
        tree: tuple[str, Path] | None = None
        try:
            await self.until_written(row.id, partial(stage_key, self._root))
            try:
                tree = await asyncio.to_thread(self._hold_tree, row)
            except ForebayError as error:
                return await self._fail(row, failure_of(error.code, error.what, may_pass=True), row.attempts + 1)
            try:
                spawned = await asyncio.to_thread(self._spawn, row, tree)
            except ForebayError as error:
                failure = failure_of(error.code, error.what, may_pass=False)
                await self._write_down(row.id, state=StageState.FAILED, failure=failure, finished_ns=time.time_ns())
                return None
            run = StageRun(row, StageProcess(spawned, budget), receipt, self)
            process = _process_of(run)
            if process is not None:
                await self._stuck.began(process)
            fail_point("manager.stage.spawned")
            self._runs[row.id] = run
            is_cancelled = (await self._when_readable(row.id)).cancel
            if self._stopping or (is_cancelled and not ends_when_asked(row)):
                self._stop(run)
            elif is_cancelled:
                run.process.ask_to_end()
            outcome = await run.follow()
            fail_point("manager.stage.ended")
            held, tree = tree, None
            await self._release_tree(held)  # before anybody hears that it is over
            if outcome.complaint:
                _log.warning("stage %d wrote: %s", row.id, outcome.complaint)
            return await self._settle(run, outcome)
        finally:
            self._budgets.end(row.owner_uid)
            self._runs.pop(row.id, None)
            await asyncio.to_thread(receipt.discard)
            if run is not None:
                await self._let_go(run, process)
            await self._release_tree(tree)

    def _hold_tree(self, row: StageRow) -> tuple[str, Path] | None:
        return None if self.trees is None else self.trees.hold(job_from_json(row.job), row.owner_uid)

    async def _release_tree(self, tree: tuple[str, Path] | None) -> None:
        if tree is not None and self.trees is not None:
            await asyncio.to_thread(self.trees.release, tree[0])

    def _spawn(self, row: StageRow, tree: tuple[str, Path] | None) -> Any:
        command = [sys.executable, "-P", "-m", "forebay.workflows.staging", json.dumps(row.job)]
        command += ["--root", str(self._root), "--lifeline"]
        acting = acting_row(row, self._database)
        environment = stage_environment(acting, self._root, self._settings.environment)
        environment["FOREBAY_STAGE_TREE"] = "" if tree is None else str(tree[1])
        return StageProcess.spawn(command, environment, row.umask, acting)

    async def _let_go(self, run: StageRun, process: StuckProcess | None) -> None:
        """The run is over; its process perhaps not. `process`: as it is written down."""
        row, turns = run.row, self._turns[_follows(run.row)]
        held = run.is_stopping and not turns.has(row.id)
        if not run.process.has_ended and _process_of(run) is None:
            await run.process.wait_and_close()  # it ends just now
        if run.process.has_ended or process is None:
            if held:
                turns.release(row.owner_uid)
            if process is not None:
                await self._stuck.ended(process)
            return
        if not held:
            turns.end(row.id)
            turns.hold(row.owner_uid)
        run.kill()
        await self._stuck.add(replace(process, since_ns=time.time_ns()), run.process.wait_and_close())

    def _has_ended_after_all(self, stuck: StuckProcess) -> None:
        self._turns[stuck.follows].release(stuck.uid)
        self._fill_slots()

    async def _settle(self, run: StageRun, outcome: Outcome) -> float | None:
        """Writes down how a run of the stage ended; returns after how many seconds it is to run again, None: not."""
        row, saved = run.row, {"progress": run.progress, "notes": run.notes}
        now = await self._when_readable(row.id)
        failure = outcome.failure
        if outcome.result is not None and outcome.status == 0:
            failure = await self._keep_receipt(run.receipt, row.id, outcome.result)
            if failure is None:
                async with self._ending:
                    if row.id in self._wanted_again and not now.cancel:
                        await self._write_down(row.id, state=StageState.QUEUED, attempts=0, progress={})
                        return 0.0
                    await self._write_down(
                        row.id, state=StageState.SUCCEEDED, result=outcome.result, finished_ns=time.time_ns(), **saved
                    )
                return None
        await asyncio.to_thread(run.receipt.discard)
        if now.cancel and not (ends_when_asked(row) and (self._stopping or not run.is_stopping)):
            await self._write_down(row.id, state=StageState.CANCELLED, finished_ns=time.time_ns(), **saved)
            return None
        if self._stopping:
            # It was not the stage that failed, which has begun all the same.
            await self._write_down(row.id, state=StageState.QUEUED, attempts=max(row.attempts, 1), **saved)
            return None
        if failure is None:
            failure = _failure_of_process(outcome, run.process.pid, row.owner_uid)
        # Attempts that came further than the one before do not count.
        advanced = run.progress.get("items_done", 0) > row.progress.get("items_done", 0)
        return await self._fail(row, failure, 1 if advanced else now.attempts, **saved)

    async def _fail(self, row: StageRow, failure: dict[str, Any], attempts: int, **saved: Any) -> float | None:
        """Writes down a failure; returns after how many seconds it is to run again, None: not."""
        if failure["may_pass"] and attempts < _ATTEMPTS_MAX:
            pause_seconds = min(2.0 ** (attempts - 1), _RETRY_SECONDS_MAX)
            _log.warning("stage %d is tried again in %g s: %s", row.id, pause_seconds, failure["what"])
            await self._write_down(row.id, state=StageState.QUEUED, attempts=attempts, failure=failure, **saved)
            return pause_seconds
        await self._write_down(row.id, state=StageState.FAILED, failure=failure, finished_ns=time.time_ns(), **saved)
        return None

    async def _keep_receipt(self, receipt: ReceiptWriter, stage_id: int, result: dict[str, Any]) -> Any:
        """Ends the receipt and makes it durable; the failure if that cannot be."""
        try:
            await self.until_written(stage_id, partial(receipt.end, result))
            await asyncio.to_thread(receipt.publish)
        except ForebayError as error:
            return failure_of(error.code, error.what, may_pass=not isinstance(error, RefusedError))
        return None

    async def save_progress(self, run: StageRun) -> None:
        """See `RunKeeper`."""
        with contextlib.suppress(NoSpaceError, StorageError):
            change = partial(self._database.change_stage, run.row.id, progress=run.progress, notes=run.notes)
            await asyncio.to_thread(change)

    async def announce(self, stage_id: int) -> None:
        """See `RunKeeper`."""
        await self._changes.announce(stage_id)

    async def _when_readable(self, stage_id: int) -> StageRow:
        """The stage as the database has it, as soon as that answers."""
        found: list[StageRow] = []
        await self.until_written(stage_id, lambda: found.append(self._database.stage(stage_id)))
        return found[0]

    async def _change(self, stage_id: int, **values: Any) -> None:
        await asyncio.to_thread(self._database.change_stage, stage_id, **values)
        await self._changes.announce(stage_id, ended=_ends(values))

    async def _write_down(self, stage_id: int, **values: Any) -> None:
        """What a run has to tell; nobody would ask for it again."""
        await self.until_written(stage_id, partial(self._database.change_stage, stage_id, **values))
        await self._changes.announce(stage_id, ended=_ends(values))

    async def until_written(self, stage_id: int, change: Callable[[], object]) -> None:
        """See `RunKeeper`; _EndingError if the manager ends first."""
        while True:
            try:
                await asyncio.to_thread(change)
                break
            except (NoSpaceError, StorageError) as error:
                if stage_id not in self._unwritten:
                    _log.warning("stage %d waits: %s", stage_id, error)
                    trouble = "is full" if isinstance(error, NoSpaceError) else "fails"
                    self._unwritten[stage_id] = (
                        f"the disk of the manager {trouble} ({error.where}); the stage continues by itself "
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


def _shortened(text: str) -> str:
    return text if len(text) <= _LOGGED_CHARACTERS_MAX else f"{text[:_LOGGED_CHARACTERS_MAX]}…"


def _process_of(run: StageRun) -> StuckProcess | None:
    """Its process as it is written down; None if that has ended."""
    identity = process_identity(run.process.pid)
    if identity is None:
        return None
    return StuckProcess(identity, run.row.id, run.row.owner_uid, _follows(run.row), run.process.pid, 0)


def _follows(row: StageRow) -> bool:
    return bool(row.job.get("follow"))


def ends_when_asked(row: StageRow) -> bool:
    """It follows files: asked to end, it takes what is complete."""
    return _follows(row) and row.job["kind"] == MatchedFilesJob.kind


def _failure_of_process(outcome: Outcome, pid: int, uid: int) -> dict[str, Any]:
    """Of a process that has not told one."""
    status = outcome.status
    if status is None:
        what = f"the stage's process {pid} does not end although it was killed; see `forebay doctor`"
    elif status < 0:
        what = f"the stage's process died of signal {-status}"
    else:
        what = f"the stage's process of user {uid} ended with status {status}"
        # Such as that of a Python which cannot read its own library.
        if lines := outcome.complaint.strip().splitlines():
            what += f": {lines[-1].strip()[:_COMPLAINT_CHARACTERS_MAX]}"
    return failure_of("killed", what, may_pass=status is not None and status < 0)
