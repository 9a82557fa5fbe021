# SPDX-License-Identifier: Apache-2.0
"""Runs a command for each step of all streams that match a pattern; streams join as they are made."""

from __future__ import annotations

import asyncio
import time

import forebay
from forebay.cli.child_command import ChildCommand
from forebay.cli.step_commands import CommandTurns, Failure, StepCommands
from forebay.ensemble import StreamPattern
from forebay.errors import ForebayError, NotFoundError, StepTimeoutError
from forebay.instance import InstanceLike, instance_of
from forebay.records import Address

__all__ = ["EnsembleCommands"]

_SECONDS_BETWEEN_LISTS = 0.5


class EnsembleCommands:
    """Each stream has a follower and a cursor of its own; ``jobs`` commands run at once, of all streams together.

    Parameters are those of ``forebay follow``.
    """

    def __init__(
        self,
        pattern: StreamPattern,
        command: ChildCommand,
        *,
        instance: InstanceLike | None,
        consumer: str,
        jobs: int,
        every: int,
        latest: bool,
        members: int | None,
        timeout: float | None,
    ) -> None:
        self._pattern = pattern
        self._command = command
        self._instance = instance_of(pattern.server, instance)
        self._consumer = consumer
        self._every = every
        self._latest = latest
        self._members = members
        self._timeout = timeout
        self._turns = CommandTurns(jobs)
        self._of_uuids: dict[str, str] = {}
        self.of_streams: dict[str, StepCommands] = {}

    @property
    def succeeded(self) -> int:
        """Commands that ended with status 0."""
        return sum(commands.succeeded for commands in self.of_streams.values())

    @property
    def failures(self) -> list[Failure]:
        return self._turns.failures

    async def follow(self) -> None:
        """Until all streams have ended or a command fails.

        What ended streams otherwise is raised when the others have ended: the first of it.
        """
        running: set[asyncio.Task[None]] = set()
        lost: list[BaseException] = []
        failed = asyncio.create_task(self._turns.failed.wait())
        waiting_since = time.monotonic()
        with forebay.Admin(self._instance) as admin:
            try:
                while True:
                    had_ended = not running
                    if not self.failures:
                        running |= await self._join(admin)
                    # A list that was made after the last one ended has brought no other.
                    if not running and (self.failures or (had_ended and self._is_complete)):
                        break
                    if running:
                        waiting_since = time.monotonic()
                    elif self._timeout is not None and time.monotonic() - waiting_since > self._timeout:
                        raise StepTimeoutError(f"no stream came within {self._timeout:g} s", f"streams {self._pattern}")
                    wait_for: set[asyncio.Future[None] | asyncio.Future[bool]] = {*running}
                    if not self.failures:
                        wait_for.add(failed)  # type: ignore[arg-type]
                    await asyncio.wait(wait_for, timeout=_SECONDS_BETWEEN_LISTS, return_when=asyncio.FIRST_COMPLETED)
                    for done in [task for task in running if task.done()]:
                        running.discard(done)
                        if (error := done.exception()) is not None:
                            lost.append(error)
            finally:
                failed.cancel()
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
        if lost:
            # One that is no stream's loss, say a server that is gone, is told before those that are.
            raise next((error for error in lost if not isinstance(error, ForebayError)), lost[0])

    @property
    def _is_complete(self) -> bool:
        return len(self._of_uuids) >= (1 if self._members is None else self._members)

    async def _join(self, admin: forebay.Admin) -> set[asyncio.Task[None]]:
        listed = await asyncio.to_thread(admin.streams, self._pattern.reservation)
        new: set[asyncio.Task[None]] = set()
        for info in listed:
            if self._pattern.matches(info) and info.uuid not in self._of_uuids:
                self._of_uuids[info.uuid] = info.name
                new.add(asyncio.create_task(self._follow_one(info.name)))
        return new

    async def _follow_one(self, name: str) -> None:
        address = Address(self._pattern.reservation, name, None, self._pattern.server)
        server = f"{address.server}/" if address.server else ""
        commands = self.of_streams[name] = StepCommands(
            self._command,
            f"forebay://{server}{address.path}",
            turns=self._turns,
            every=self._every,
        )
        try:
            stream = await asyncio.to_thread(forebay.open, address, instance=self._instance, timeout=0)
        except NotFoundError:
            return  # removed since it was listed
        with stream:
            follower = await asyncio.to_thread(
                stream.follow, self._consumer, timeout=self._timeout, ack="manual", latest_only=self._latest
            )
            with follower:
                await commands.follow(follower)
