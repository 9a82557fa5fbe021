# SPDX-License-Identifier: Apache-2.0
"""Processes of stages that do not end although they were killed: a file system that they use does not answer.

All that run are written down, so that a manager knows those of one that was killed. What does not end counts against
its user, and `forebay doctor` names it. Belongs to the event loop's thread; the table is read and written in others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sql

from forebay.errors import NoSpaceError, StorageError
from forebay.manager.process_identity import process_identity
from forebay.workflows.manager.core.database.database import Database, metadata

__all__ = ["StuckProcess", "StuckProcesses"]

_log = logging.getLogger(__name__)

_stuck = sql.Table(
    "stuck_processes",
    metadata,
    sql.Column("process", sql.String, primary_key=True),
    sql.Column("stage", sql.Integer, nullable=False),
    sql.Column("uid", sql.BigInteger, nullable=False),
    sql.Column("follows", sql.Boolean, nullable=False),
    sql.Column("pid", sql.Integer, nullable=False),
    sql.Column("since_ns", sql.BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class StuckProcess:
    """A stage's process that does not end although it was killed."""

    process: str  #: which one: its `process_identity`
    stage: int
    uid: int
    follows: bool  #: the stage follows a stream
    pid: int
    since_ns: int  #: when it was killed; 0: it was not, it runs


class StuckProcesses:
    """Those of one instance.

    Parameters
    ----------
    on_end : callable
        Is told of each one that has ended after all.
    """

    def __init__(self, database: Database, on_end: Callable[[StuckProcess], None]) -> None:
        self._database = database
        self._on_end = on_end
        self._known: dict[str, StuckProcess] = {}
        self._waits: set[asyncio.Task[None]] = set()

    async def start(self) -> list[StuckProcess]:
        """Those of earlier managers that are there still. What ran when one of them died is killed."""
        for known in await asyncio.to_thread(self._rows):
            descriptor = _open_process(known)
            if descriptor is None:
                await asyncio.to_thread(self._forget, known)
                continue
            found = known
            if not known.since_ns:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                found = replace(known, since_ns=time.time_ns())
                await asyncio.to_thread(self._write_down, found)
            self._watch(found, _wait_for_end(descriptor))
        return self.all()

    async def began(self, process: StuckProcess) -> None:
        """A stage has this process from now on."""
        try:
            await asyncio.to_thread(self._write_down, process)
        except (NoSpaceError, StorageError) as error:
            _log.warning("process %d of stage %d is not written down: %s", process.pid, process.stage, error)

    async def ended(self, process: StuckProcess) -> None:
        """It has ended by itself, or when it was asked to."""
        try:
            await asyncio.to_thread(self._forget, process)
        except (NoSpaceError, StorageError) as error:
            # The next manager sees that it is gone.
            _log.warning("that process %d has ended is not written down: %s", process.pid, error)

    async def add(self, stuck: StuckProcess, ended: Coroutine[Any, Any, None]) -> None:
        """One more; `ended` returns when it has ended."""
        try:
            await asyncio.to_thread(self._write_down, stuck)
        except (NoSpaceError, StorageError) as error:
            _log.warning("process %d, which does not end, is not written down: %s", stuck.pid, error)
        self._watch(stuck, ended)

    def all(self) -> list[StuckProcess]:
        """Those that are there still."""
        return [*self._known.values()]

    def stop(self) -> None:
        """The manager ends; what is written down stays."""
        for wait in self._waits:
            wait.cancel()

    def _watch(self, stuck: StuckProcess, ended: Coroutine[Any, Any, None]) -> None:
        self._known[stuck.process] = stuck
        wait = asyncio.create_task(self._await_end(stuck, ended))
        self._waits.add(wait)
        wait.add_done_callback(self._waits.discard)

    async def _await_end(self, stuck: StuckProcess, ended: Coroutine[Any, Any, None]) -> None:
        await ended
        del self._known[stuck.process]
        self._on_end(stuck)
        await self.ended(stuck)

    def _rows(self) -> list[StuckProcess]:
        with self._database.look() as connection:
            return [StuckProcess(**row) for row in connection.execute(_stuck.select()).mappings()]

    def _write_down(self, stuck: StuckProcess) -> None:
        with self._database.change() as connection:
            connection.execute(_stuck.delete().where(_stuck.c.process == stuck.process))
            connection.execute(_stuck.insert().values(asdict(stuck)))

    def _forget(self, stuck: StuckProcess) -> None:
        with self._database.change() as connection:
            connection.execute(_stuck.delete().where(_stuck.c.process == stuck.process))


def _open_process(stuck: StuckProcess) -> int | None:
    """Its descriptor; None if it has ended, although its number may be another's by now."""
    try:
        descriptor = os.pidfd_open(stuck.pid)
    except ProcessLookupError:
        return None
    # What is open cannot come to mean another process any more.
    if process_identity(stuck.pid) == stuck.process:
        return descriptor
    os.close(descriptor)
    return None


async def _wait_for_end(descriptor: int) -> None:
    """Returns when the process has ended, whose child it may be; closes the descriptor."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
