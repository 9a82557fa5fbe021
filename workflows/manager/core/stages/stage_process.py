# SPDX-License-Identifier: Apache-2.0
"""The process of a stage: started as its user, in a session of its own, known by a descriptor that cannot come to mean
another process. It is taken for hostile: only its end is believed, and what it says is read by `MessagePipe`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay.errors import PermissionDeniedError, StorageError
from forebay.manager.records import StageRow
from forebay.workflows.manager.core.stages.message_pipe import MessagePipe
from forebay.workflows.manager.core.stages.reading_budget import ReadingBudget
from forebay.workflows.staging.reporting import MESSAGE_BYTES_MAX

__all__ = ["StageProcess"]

_END = b"e"
_OOM_SCORE = "500"  # of 1000, as the kernel counts; that of daemons is 0


class StageProcess:
    """One run of a stage. Belongs to the event loop's thread, except `spawn`."""

    def __init__(self, process: subprocess.Popen[bytes], budget: ReadingBudget) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.pid = process.pid
        self._process = process
        self._descriptor = os.pidfd_open(process.pid)
        self._lifeline = process.stdin
        self._ended = asyncio.Event()
        self._has_ended = False
        self.messages = MessagePipe(os.dup(process.stdout.fileno()), MESSAGE_BYTES_MAX, budget)
        self.complaints = MessagePipe(os.dup(process.stderr.fileno()), MESSAGE_BYTES_MAX, budget)
        process.stdout.close()
        process.stderr.close()
        asyncio.get_running_loop().add_reader(self._descriptor, self._note_end)

    @staticmethod
    def spawn(
        command: Sequence[str], environment: Mapping[str, str], umask: int, owner: StageRow
    ) -> subprocess.Popen[bytes]:
        """Starts it; may take long where the program lies on a slow file system, so it is called in a thread.

        Raises
        ------
        PermissionDeniedError
            The user may not execute the program.
        StorageError
            It cannot be started for another reason.
        """
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                cwd="/",
                umask=umask,
                start_new_session=True,
                **_identity(owner),
            )
        except PermissionError as error:
            raise PermissionDeniedError(
                f"user {owner.owner_uid} may not execute {command[0]}, which runs their stages ({error.strerror}); an "
                "administrator installs Forebay where all users can read it: "
                f"`namei -l {command[0]}` shows what is closed"
            ) from None
        except OSError as error:
            raise StorageError(f"{command[0]} cannot be started for user {owner.owner_uid}: {error.strerror}") from None
        # Where memory is short it goes before the daemons. What root sets, the process does not take back.
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/oom_score_adj").write_text(_OOM_SCORE)
        return process

    @property
    def has_ended(self) -> bool:
        """The process is gone; one that the system does not let go, in spite of SIGKILL, has not ended."""
        return self._has_ended

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal; SIGKILL to all of its process group."""
        if self._has_ended:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)
            if number is signal.SIGKILL:
                # It has not been waited for: its number, and its group's, are still its own.
                os.killpg(self.pid, number)

    def ask_to_end(self) -> None:
        """Asks a stage that follows files to take what is complete and to end."""
        if self._has_ended:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._lifeline.fileno(), _END)

    async def wait(self) -> int:
        """Its exit status, negative: the signal that it died of."""
        await self._ended.wait()
        return self._process.wait()

    async def wait_and_close(self) -> None:
        """Returns when it has ended, and lets go of its descriptors."""
        await self.wait()
        self.close()

    def close(self) -> None:
        """Lets go of the descriptors of a process that has ended."""
        with contextlib.suppress(BrokenPipeError):
            self._lifeline.close()
        self.messages.close()
        self.complaints.close()

    def _note_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        # What it may have left in its group has nothing to do any more. Its number is its own until it is waited for.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._descriptor)
        self._has_ended = True
        self.messages.program_ended()
        self.complaints.program_ended()
        self._ended.set()


def _identity(row: StageRow) -> dict[str, Any]:
    """How the child becomes the user who asked for the stage."""
    if row.owner_uid == os.geteuid():
        return {}
    name = pwd.getpwuid(row.owner_uid).pw_name
    return {"user": row.owner_uid, "group": row.owner_gid, "extra_groups": os.getgrouplist(name, row.owner_gid)}
