# SPDX-License-Identifier: Apache-2.0
"""Runs a command for each step that a follower gives, several at once; the cursor moves in the order of the steps."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from forebay.follower import Follower
from forebay.step import Step

__all__ = ["CommandTurns", "Failure", "StepCommands"]

_PR_SET_PDEATHSIG = 1
_END_SECONDS_MAX = 10.0


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
    words : sequence of str
        The command; ``{step}``, ``{address}`` and ``{stream}`` in it are replaced by the step's number, its address,
        and the stream's name.
    address : str
        Of the stream, as a command takes it.
    environment : mapping
        What the commands run with.
    turns : CommandTurns
        Shared with the commands for other streams.
    every : int
        Steps that it does not divide are passed without a command.
    output : int, optional
        File descriptor of the commands' standard output; not given: this process's.
    """

    def __init__(
        self,
        words: Sequence[str],
        address: str,
        environment: Mapping[str, str],
        *,
        turns: CommandTurns,
        every: int = 1,
        output: int | None = None,
    ) -> None:
        self._words = words
        self._address = address
        self._environment = dict(environment)
        self._turns = turns
        self._every = every
        self._output = output
        self._die_with_parent = _dying_with_parent()
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
            reason = await self._run_command(number)
            if reason:
                self._turns.note(Failure(self._address.rpartition("/")[2], number, reason))
            else:
                self.succeeded += 1
        return reason

    async def _run_command(self, number: int) -> str:
        """Why it failed; empty: it did not."""
        words = [
            word.replace("{step}", str(number))
            .replace("{address}", f"{self._address}@{number}")
            .replace("{stream}", self._address.rpartition("/")[2])
            for word in self._words
        ]
        try:
            child = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._output,
                env=self._environment,
                preexec_fn=self._die_with_parent,
            )
        except OSError as error:
            return f"{words[0]} cannot be run: {error.strerror or error}"
        try:
            status = await child.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), _END_SECONDS_MAX)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
            raise
        if status < 0:
            return f"{words[0]} was killed by {signal.Signals(-status).name}"
        return f"{words[0]} ended with status {status}" if status else ""

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


def _dying_with_parent() -> Callable[[], None]:
    """What a child does first, so that no command goes on, and writes, beside the one of the follower's successor."""
    parent = os.getpid()
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return die_with_parent
