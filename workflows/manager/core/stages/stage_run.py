# SPDX-License-Identifier: Apache-2.0
"""One run of a stage: what its process says, until it has ended, or does not end although it was killed.

Nothing that the process says is believed further than the run goes: messages are bounded and checked, and the manager
writes the receipt from them. Belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from forebay.errors import ForebayError, InvalidArgumentError
from forebay.manager.records import StageRow
from forebay.workflows.manager.core.stages.receipts import ReceiptWriter
from forebay.workflows.manager.core.stages.stage_messages import checked_failure, checked_progress, parse_message
from forebay.workflows.manager.core.stages.stage_process import StageProcess

__all__ = ["Outcome", "RunKeeper", "StageRun", "failure_of"]

_STOP_SECONDS = 10.0
_KILLED_SECONDS_MAX = 5.0  # that the system may take to end a process that was killed
_SAVE_INTERVAL_SECONDS = 1.0
_NOTES_MAX = 100
_NOTE_CHARACTERS_MAX = 500
_COMPLAINT_BYTES_MAX = 2000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    status: int | None  #: of the process; None: it does not end although it was killed
    result: dict[str, Any] | None  #: what it said when it had succeeded
    failure: dict[str, Any] | None
    complaint: str  #: the end of what it wrote to standard error


class RunKeeper(Protocol):
    """Who keeps what a run has to tell."""

    async def save_progress(self, run: StageRun) -> None:
        """Progress and notes have changed; need not be written down."""

    async def announce(self, stage_id: int) -> None:
        """Who waits for the stage should look at it."""

    async def until_written(self, stage_id: int, change: Callable[[], object]) -> None:
        """Makes a change, in a thread, as soon as the disk takes it."""


class StageRun:
    """The run of `row` by `process`."""

    def __init__(self, row: StageRow, process: StageProcess, receipt: ReceiptWriter, keeper: RunKeeper) -> None:
        self.row = row
        self.process = process
        self.receipt = receipt
        self.begun_ns = time.time_ns()
        self.progress: dict[str, Any] = row.progress
        self.notes: list[str] = list(row.notes)
        self.is_stopping = False
        self._keeper = keeper
        self._result: dict[str, Any] | None = None
        self._failure: dict[str, Any] | None = None
        self._given_up = asyncio.Event()
        self._saved_at = 0.0

    async def follow(self) -> Outcome:
        """Returns when it is over."""
        reading = asyncio.create_task(self._read())
        complaining = asyncio.create_task(self.process.complaints.read_rest(_COMPLAINT_BYTES_MAX))
        ended = asyncio.create_task(self.process.wait())
        given_up = asyncio.create_task(self._given_up.wait())
        tasks: tuple[asyncio.Task[Any], ...] = (reading, complaining, ended, given_up)
        try:
            await asyncio.wait((ended, given_up), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return Outcome(None, None, self._failure, "")
            await reading
            complaint = (await complaining).decode(errors="replace")
            return Outcome(ended.result(), self._result, self._failure, complaint)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if self.process.has_ended:
                self.process.close()

    def stop(self) -> None:
        """Has it end: asks first, then kills, then gives it up."""
        if not self.is_stopping:
            self.is_stopping = True
            self.process.signal(signal.SIGTERM)
            asyncio.get_running_loop().call_later(_STOP_SECONDS, self.kill)

    def kill(self) -> None:
        """Kills it, and gives it up if that does not end it."""
        self.is_stopping = True
        self.process.signal(signal.SIGKILL)
        asyncio.get_running_loop().call_later(_KILLED_SECONDS_MAX, self._given_up.set)

    async def _read(self) -> None:
        try:
            while (line := await self.process.messages.read()) is not None:
                await self._take(parse_message(line))
        except ForebayError as error:
            self._result = None
            self._failure = failure_of(error.code, error.what, may_pass=False)
            self.kill()

    async def _take(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        if kind == "progress":
            self.progress = checked_progress(event)
            await self._changed()
        elif kind == "note":
            text = event.get("text")
            if isinstance(text, str):
                self.notes = [*self.notes, text[:_NOTE_CHARACTERS_MAX]][-_NOTES_MAX:]
                await self._changed()
        elif kind == "files" and isinstance(event.get("files"), list):
            await self._keeper.until_written(self.row.id, partial(self.receipt.add, event["files"]))
        elif kind == "done" and isinstance(event.get("result"), dict):
            self._result = event["result"]
        elif kind == "failed":
            self._failure = checked_failure(event.get("failure"))
        else:
            raise InvalidArgumentError("the stage's process said what no Forebay says, and was ended")

    async def _changed(self) -> None:
        if time.monotonic() - self._saved_at > _SAVE_INTERVAL_SECONDS:
            self._saved_at = time.monotonic()
            await self._keeper.save_progress(self)
        await self._keeper.announce(self.row.id)


def failure_of(code: str, what: str, *, may_pass: bool) -> dict[str, Any]:
    """A failure that the manager sees."""
    return {"code": code, "what": what, "where": "", "may_pass": may_pass, "stream_broken": False}
