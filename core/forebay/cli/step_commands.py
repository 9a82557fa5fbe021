# SPDX-License-Identifier: Apache-2.0
"""Runs a command for each step that a follower gives, several at once; the cursor moves in the order of the steps."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from forebay.cli.child_command import ChildCommand
from forebay.follower import Follower
from forebay.step import Step

__all__ = ["CommandTurns", "Failure", "StepCommands"]


@dataclass(frozen=True)
class Failure:
    """A command that did not succeed."""

    stream: str
    step: int
    reason: str


@dataclass
class CommandTurns:
    """What the commands of one command line share, of one stream or of many: how many run, and which failed."""

    jobs: int
    failures: list[Failure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.running = asyncio.Semaphore(self.jobs)
        self.failed = asyncio.Event()

    def note(self, failure: Failure) -> None:
        self.failures.append(failure)
        self.failed.set()


@dataclass
class _Passage:
    """A step in hand: pinned until its command has ended."""

    step: Step
    run: asyncio.Task[str] | None  #: gives why the command failed; None: the step needs none

    @property
    def succeeded(self) -> bool:
        return self.run is None or (self.run.done() and not self.run.result())


class StepCommands:
    """The cursor passes a step when its command, and those of all steps before it, ended with status 0.

    After a failure no further command begins; those that run may finish.

    Parameters
    ----------
    command : ChildCommand
        ``{step}``, ``{address}`` and ``{stream}`` in it are replaced by the step's number, its address, and the
        stream's name.
    address : str
        Of the stream, as a command takes it.
    turns : CommandTurns
        Shared with the commands for other streams.
    every : int
        Steps that it does not divide are passed without a command.
    """

    def __init__(
        self,
        command: ChildCommand,
        address: str,
        *,
        turns: CommandTurns,
        every: int = 1,
    ) -> None:
        self._command = command
        self._address = address
        self._stream = address.rpartition("/")[2]
        self._turns = turns
        self._every = every
        self._passages: deque[_Passage] = deque()
        self.succeeded = 0  #: commands that ended with status 0
        self.last: int | None = None  #: the last step that the cursor has passed

    @property
    def failures(self) -> list[Failure]:
        """Of all streams."""
        return self._turns.failures

    async def follow(self, follower: Follower) -> None:
        """Until the stream ends or a command fails.

        What ends the stream otherwise is raised when the running commands have ended. If this task is cancelled, they
        are ended.
        """
        coming: asyncio.Task[Step] | None = None
        ending: BaseException | None = None
        held: Step | None = None
        failed = asyncio.create_task(self._turns.failed.wait())
        try:
            while True:
                self._pass_on(follower)
                running = [passage.run for passage in self._passages if passage.run and not passage.run.done()]
                # A step taken back and written anew waits for the command of its former self.
                if held is not None and not running and not self.failures:
                    self._begin(held)
                    held = None
                    continue
                asks = ending is None and held is None and not self.failures
                if coming is None and asks and len(running) < self._turns.jobs:
                    coming = asyncio.create_task(follower.__anext__())
                if coming is not None and self.failures:
                    coming.cancel()
                waited_for: list[asyncio.Task[str] | asyncio.Task[Step] | asyncio.Task[Literal[True]]] = [*running]
                if coming is not None:
                    waited_for.append(coming)
                if not waited_for:
                    break
                if not self.failures:
                    waited_for.append(failed)
                await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
                if coming is None or not coming.done():
                    continue
                done, coming = coming, None
                if done.cancelled():
                    continue
                ending = done.exception()
                if ending is None and not self.failures:
                    step = done.result()
                    if step.rewound:
                        held = step
                    else:
                        self._begin(step)
        finally:
            failed.cancel()
            await self._end(coming)
        if ending is not None and not isinstance(ending, StopAsyncIteration):
            raise ending

    def _begin(self, step: Step) -> None:
        run = None if step.number % self._every else asyncio.create_task(self._run(step.number))
        self._passages.append(_Passage(step, run))

    def _pass_on(self, follower: Follower) -> None:
        """Moves the cursor behind the steps that are done, up to the first that is not."""
        while self._passages and self._passages[0].succeeded:
            step = self._passages.popleft().step
            follower.ack(step)
            self.last = step.number
            step.release()

    async def _run(self, number: int) -> str:
        async with self._turns.running:
            if self.failures:
                return "not run, because another command failed"
            values = {"step": str(number), "address": f"{self._address}@{number}", "stream": self._stream}
            reason = await self._command.run(values)
            if reason:
                self._turns.note(Failure(self._stream, number, reason))
            else:
                self.succeeded += 1
        return reason

    async def _end(self, coming: asyncio.Task[Step] | None) -> None:
        """Nothing is left behind."""
        tasks: list[asyncio.Task[str] | asyncio.Task[Step]] = [
            passage.run for passage in self._passages if passage.run is not None
        ]
        if coming is not None:
            tasks.append(coming)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._passages:
            self._passages.popleft().step.release()
