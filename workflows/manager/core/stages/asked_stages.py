# SPDX-License-Identifier: Apache-2.0
"""Stages that programs asked for by the path in their reservation (libdatawarp), and the job at whose end they are due.

A row goes with its stage. Belongs to the event loop's thread, except what says otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

import sqlalchemy as sql

from forebay.errors import RefusedError
from forebay.manager.records import JobRow, JobState
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.database.database import IDS_AT_ONCE, Database, metadata, stages_table
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.name_turns import TaskTurns

__all__ = ["AskedStage", "AskedStages", "Asking", "takes_stages"]

_NO_JOB = 0

_asked = sql.Table(
    "asked_stages",
    metadata,
    sql.Column("stage", sql.Integer, sql.ForeignKey("stages.id", ondelete="CASCADE"), primary_key=True),
    sql.Column("owner_uid", sql.BigInteger, nullable=False),
    sql.Column("reservation_id", sql.String, nullable=False),
    # Any bytes may be in a path: those that are no plain letters are written as %XX.
    sql.Column("path", sql.String, nullable=False),
    sql.Column("directory", sql.Boolean, nullable=False),
    sql.Column("job", sql.Integer, nullable=False, index=True),
    # Its program knows how it ended, or has staged the same path again since.
    sql.Column("told", sql.Boolean, nullable=False, server_default=sql.false()),
    sql.Index("ix_asked_stages_path", "owner_uid", "reservation_id", "path"),
)

_FAILED_UNTOLD = (stages_table.c.state == StageState.FAILED) & ~_asked.c.told


@dataclass(frozen=True, slots=True)
class Asking:
    """What a program asks for a stage by."""

    owner_uid: int
    reservation_id: str
    path: str  #: below the reservation's files; "" is all of them
    directory: bool
    job: int = _NO_JOB  #: number of the job's row; 0: none


@dataclass(frozen=True, slots=True)
class AskedStage:
    """A stage as a program finds it."""

    id: int
    path: str
    directory: bool
    state: StageState
    is_told: bool  #: its program knows how it ended


def takes_stages(job: JobRow) -> bool:
    """Its stage-out has not begun, so what is asked for now runs in it."""
    return job.state in (JobState.SETUP, JobState.DATA_IN, JobState.PRE_RUN, JobState.RUNNING, JobState.POST_RUN)


class AskedStages:
    """Those of one instance."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._jobs = JobTable(database)
        self._turns = TaskTurns()

    def turn(self, owner_uid: int) -> AbstractAsyncContextManager[None]:
        """Held while a stage is entered for a user's job, and while that job's are collected: none comes between."""
        return self._turns.of(str(owner_uid))

    def enter(self, asking: Asking, connection: sql.Connection, stage_id: int) -> None:
        """Enters one, in the transaction that makes the stage. Usable from any thread.

        Raises
        ------
        RefusedError
            The job's stage-out has begun meanwhile.
        """
        if asking.job != _NO_JOB:
            job = self._jobs.numbered(asking.job)
            if job is None or not takes_stages(job):
                raise RefusedError("the job is over: its stage-out has begun, and takes no more")
            # Nobody can ask any more how those before it ended, and the file may be another one by now.
            before = (_asked.c.owner_uid == asking.owner_uid) & (_asked.c.reservation_id == asking.reservation_id)
            before &= (_asked.c.path == _written(asking.path)) & (_asked.c.job == asking.job)
            connection.execute(_asked.update().where(before).values(told=True))
        connection.execute(
            _asked.insert().values(
                stage=stage_id,
                owner_uid=asking.owner_uid,
                reservation_id=asking.reservation_id,
                path=_written(asking.path),
                directory=asking.directory,
                job=asking.job,
                told=False,
            )
        )

    async def newest_at(self, uid: int, reservation_id: str, paths: Iterable[str]) -> dict[str, AskedStage]:
        """The newest stage of each of these paths that has one; revoked ones do not count."""

        def find() -> dict[str, AskedStage]:
            return self._newest(uid, reservation_id, _asked.c.path.in_([_written(path) for path in paths]))

        return await asyncio.to_thread(find)

    async def newest_below(self, uid: int, reservation_id: str, path: str) -> dict[str, AskedStage]:
        """The newest stage of this path, and of each below it."""
        start = f"{path}/" if path else ""
        found = await asyncio.to_thread(self._newest, uid, reservation_id, sql.true())
        return {name: stage for name, stage in found.items() if name == path or name.startswith(start)}

    async def note_told(self, stage_ids: Sequence[int]) -> None:
        """Their program learns how they ended."""

        def note() -> None:
            with self._database.change() as connection:
                for first in range(0, len(stage_ids), IDS_AT_ONCE):
                    some = stage_ids[first : first + IDS_AT_ONCE]
                    connection.execute(_asked.update().where(_asked.c.stage.in_(some)).values(told=True))

        await asyncio.to_thread(note)

    async def due(self, job_id: int) -> list[int]:
        """Those of the job that are not over, and those that have failed without their program's knowing."""

        def find() -> list[int]:
            final = [state for state in StageState if state.is_final]
            wanted = (_asked.c.job == job_id) & (stages_table.c.state.not_in(final) | _FAILED_UNTOLD)
            query = sql.select(_asked.c.stage).join(stages_table, stages_table.c.id == _asked.c.stage).where(wanted)
            with self._database.look() as connection:
                return list(connection.scalars(query.order_by(_asked.c.stage)))

        return await asyncio.to_thread(find)

    def needed_by_jobs(self, uid: int) -> set[int]:
        """Stages of this user's jobs that are not over: from them the job knows what was copied, and what was not. From
        any thread.
        """
        jobs = self._jobs.all([state for state in JobState if not state.is_final])
        own = [job for job in jobs if job.owner_uid == uid]
        needed = {stage_id for job in own for stage_id in job.stages.values()}
        ids = {job.id for job in own}
        query = sql.select(_asked.c.stage, _asked.c.job).join(stages_table, stages_table.c.id == _asked.c.stage)
        with self._database.look() as connection:
            untold = connection.execute(query.where((_asked.c.owner_uid == uid) & _FAILED_UNTOLD)).all()
        return needed | {row.stage for row in untold if row.job in ids}

    def _newest(self, uid: int, reservation_id: str, condition: sql.ColumnElement[bool]) -> dict[str, AskedStage]:
        query = (
            sql.select(_asked.c.stage, _asked.c.path, _asked.c.directory, _asked.c.told, stages_table.c.state)
            .join(stages_table, stages_table.c.id == _asked.c.stage)
            .where((_asked.c.owner_uid == uid) & (_asked.c.reservation_id == reservation_id) & condition)
            .where(stages_table.c.state != StageState.REVOKED)
            .order_by(_asked.c.stage)
        )
        newest: dict[str, AskedStage] = {}
        with self._database.look() as connection:
            for row in connection.execute(query):
                path = _read(row.path)
                newest[path] = AskedStage(row.stage, path, row.directory, StageState(row.state), row.told)
        return newest


def _written(path: str) -> str:
    return quote(os.fsencode(path))


def _read(text: str) -> str:
    return os.fsdecode(unquote_to_bytes(text))
