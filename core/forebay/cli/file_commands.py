# SPDX-License-Identifier: Apache-2.0
"""Runs a command for each file or folder that a follower gives, several at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from forebay.cli.child_command import ChildCommand
from forebay.files.file_follower import AppearedFile, FileFollower

__all__ = ["FailedFile", "FileCommands"]


@dataclass(frozen=True)
class FailedFile:
    """A command that did not succeed."""

    name: str
    reason: str


class FileCommands:
    """A file is done when its command ended with status 0. After a failure no further command begins; those that run
    may finish.

    Parameters
    ----------
    command : ChildCommand
        ``{path}``, ``{name}`` and ``{number}`` in it are replaced by the file's.
    jobs : int
        How many run at once.
    """

    def __init__(self, command: ChildCommand, jobs: int) -> None:
        self._command = command
        self._jobs = jobs
        self.succeeded = 0  #: commands that ended with status 0
        self.failures: list[FailedFile] = []

    async def follow(self, follower: FileFollower) -> None:
        """Until the follower ends or a command fails.

        What the follower raises is raised when the running commands have ended. If this task is cancelled, they are
        ended.
        """
        running: set[asyncio.Task[None]] = set()
        coming: asyncio.Task[AppearedFile] | None = None
        ending: BaseException | None = None
        try:
            while running or (ending is None and not self.failures):
                asks = ending is None and not self.failures
                if asks and coming is None and len(running) < self._jobs:
                    coming = asyncio.create_task(follower.__anext__())
                if coming is not None and self.failures:
                    coming.cancel()
                await asyncio.wait({*running, *({coming} if coming else ())}, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in running if task.done()]:
                    running.discard(task)
                    task.result()  # what it raises is no command's failure
                if coming is None or not coming.done():
                    continue
                done, coming = coming, None
                if done.cancelled():
                    continue
                ending = done.exception()
                if ending is None and not self.failures:
                    running.add(asyncio.create_task(self._run(done.result())))
        finally:
            left: list[asyncio.Task[None] | asyncio.Task[AppearedFile]] = [*running, *([coming] if coming else [])]
            for unwanted in left:
                unwanted.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if ending is not None and not isinstance(ending, StopAsyncIteration):
            raise ending

    async def _run(self, file: AppearedFile) -> None:
        reason = await self._command.run({"path": file.path, "name": file.name, "number": str(file.number)})
        if reason:
            self.failures.append(FailedFile(file.name, reason))
            return
        await asyncio.to_thread(file.done)
        self.succeeded += 1
