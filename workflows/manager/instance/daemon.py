# SPDX-License-Identifier: Apache-2.0
"""Starting and ending the two daemons of an instance, and recognising them by pid and start time."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import NO_ROOM, DeadlineExceededError, NoSpaceError, StorageError
from forebay.manager.process_identity import start_time
from forebay.workflows.staging.publication import write_whole

__all__ = ["Daemon", "is_locked"]

_LOG_LINES_SHOWN = 5


def is_locked(path: Path) -> bool:
    """True if a process holds the lock file."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@dataclass(frozen=True, slots=True)
class Daemon:
    """One of the daemons: its files below the root."""

    name: str
    lock: Path  #: held while it runs
    identity: Path  #: its pid and start time
    log: Path

    @property
    def is_running(self) -> bool:
        """True if the process lives and serves, or is about to."""
        return is_locked(self.lock)

    def start(self, command: Sequence[str], environment: dict[str, str], timeout_seconds: float) -> int:
        """Starts it in the background and returns its pid when it serves.

        `--ready-fd N` is added to the command.

        Raises
        ------
        StorageError
            It ended before it served; the text has the end of its log.
        NoSpaceError
            There is no room to remember which process it is; it was ended.
        DeadlineExceededError
            It does not serve in time; it was ended.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        ready, tell = os.pipe()
        try:
            with self.log.open("ab") as log:
                process = subprocess.Popen(
                    [*command, "--ready-fd", str(tell)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[tell],
                    cwd="/",
                    start_new_session=True,
                )
        finally:
            os.close(tell)
        try:
            self._remember(process.pid)
            readable, _, _ = select.select([ready], [], [], timeout_seconds)
            if not readable:
                raise DeadlineExceededError(
                    f"{self.name} did not serve within {timeout_seconds:g} s and was ended; see its log", str(self.log)
                )
            if os.read(ready, 16) != b"ready\n":
                status = process.wait()
                raise StorageError(
                    f"{self.name} ended with status {status} before it served. {self._last_words()}", str(self.log)
                )
        except BaseException:
            # Nobody would know it again.
            process.kill()
            process.wait()
            self.identity.unlink(missing_ok=True)
            raise
        finally:
            os.close(ready)
        return process.pid

    def stop(self, timeout_seconds: float, pid: int | None = None) -> bool:
        """Ends it and waits; one that does not end in time is killed. True if it had to be killed.

        Parameters
        ----------
        pid : int, optional
            The process that holds the lock, where the file that names it may be gone.
        """
        killed = False
        for number in (signal.SIGTERM, signal.SIGKILL):
            descriptor = self._open(pid)
            if descriptor is None:
                break
            try:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
                killed = number is signal.SIGKILL
                if select.select([descriptor], [], [], timeout_seconds)[0]:
                    break
            finally:
                os.close(descriptor)
        deadline = time.monotonic() + timeout_seconds
        while self.is_running:
            # The process has gone; its lock goes with the last of its descriptors.
            if time.monotonic() > deadline:
                raise DeadlineExceededError(
                    f"{self.name} still runs and is not the one that `forebay up` started; end the process that holds "
                    "the lock "
                    "(`fuser` names it), then run the same command again",
                    str(self.lock),
                )
            time.sleep(0.02)
        self.identity.unlink(missing_ok=True)
        return killed

    def _remember(self, pid: int) -> None:
        identity = json.dumps({"pid": pid, "started": start_time(pid)}) + "\n"
        try:
            write_whole(self.identity, identity)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise NoSpaceError(
                f"the disk is full, and {self.name} was not started; make room there, then run the same command again",
                str(self.identity.parent),
            ) from error

    def _open(self, pid: int | None) -> int | None:
        """A descriptor of the process, which cannot come to mean another one; None if it is gone."""
        started: int | None = None
        if pid is None:
            try:
                identity = json.loads(self.identity.read_text(encoding="utf-8"))
                pid, started = int(identity["pid"]), identity["started"]
            except (FileNotFoundError, ValueError, KeyError):
                return None
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        if started is not None and start_time(pid) != started:
            os.close(descriptor)
            return None
        return descriptor

    def _last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "Its log ends with: " + " / ".join(lines[-_LOG_LINES_SHOWN:]) if lines else "Its log is empty."
