# SPDX-License-Identifier: Apache-2.0
"""One run of a site's command: in a session of its own, which is killed as a whole at the deadline.

Before the program is executed, the new process writes its identity into a file. It still holds every lock of the
operation that starts it then. So whoever has the lock next finds the file, and ends what an operation has left that was
killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import DeadlineExceededError, StorageError
from forebay.fail_point import fail_point
from forebay.manager.process_identity import process_identity
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.files.daemon_cgroup import DaemonCgroup

__all__ = ["CommandRunner"]

_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_WORDS_BYTES_MAX = 4096
_REASON_CHARACTERS_MAX = 200
_LOG_BYTES_MAX = 256 * 1024
#: How long killed processes have to be gone.
_KILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """Commands of one reservation on one machine. The caller has the lock that guards `record`."""

    commands: SiteCommands
    values: Mapping[str, str]  #: what every command is told: FOREBAY_… in its environment
    record: Path  #: which command runs now
    log: Path

    def run(self, operation: str, values: Mapping[str, str], deadline: float = float("inf")) -> None:
        """Runs the operation's command; nothing if the site has none.

        Parameters
        ----------
        deadline : float
            On the monotonic clock; the command's own counts, too.

        Raises
        ------
        StorageError
            It has failed; or what ran before cannot be ended.
        DeadlineExceededError
            It was killed.
        """
        self.end_left_behind()
        if operation not in self.commands.lists:
            return
        self.commands.check(operation)
        deadline = min(deadline, time.monotonic() + self.commands.seconds_max(operation))
        process, words = self._start(operation, values)
        try:
            text, in_time = _words_until_end(process, words, deadline)
        finally:
            os.close(words)
        if not in_time:
            self.end_left_behind()
        status = process.wait()
        self._note(operation, values, status, text)
        if not in_time:
            raise DeadlineExceededError(f"the command {operation} was not done in time, and was killed", self._name)
        if status != 0:
            raise StorageError(f"the command {operation} failed: {_last_line(text, status)}", self._name)
        self.record.unlink(missing_ok=True)
        fail_point(f"files.commands.{operation}")

    def end_left_behind(self) -> None:
        """Kills the session of a command that an operation left, which was killed itself; or that is over its time.

        Raises
        ------
        StorageError
            It does not end: its disk does not answer.
        """
        try:
            identity = self.record.read_text(encoding="ascii")
            session = int(identity.split("/")[1])
        except FileNotFoundError:
            return
        except (ValueError, IndexError):  # the machine went down while it was written
            self.record.unlink(missing_ok=True)
            return
        now = process_identity(session)
        is_of_this_boot = identity.split("/")[0] == (process_identity(os.getpid()) or "").split("/")[0]
        if is_of_this_boot and now in (None, identity):  # else the number is another process's
            _end_session(session, f"FOREBAY_RESERVATION_ID={self._name}", time.monotonic() + _KILL_SECONDS)
        self.record.unlink(missing_ok=True)

    def forget(self) -> None:
        """No command is to run any more, and nothing that they have left is to go on."""
        self._cgroup.remove()

    @property
    def _cgroup(self) -> DaemonCgroup:
        return DaemonCgroup(self.commands.cgroup, self._name)

    @property
    def _name(self) -> str:
        return self.values["FOREBAY_RESERVATION_ID"]

    def _start(self, operation: str, values: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
        record = self.record

        def write_record() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            enter()
            os.umask(0o077)
            record.write_text(process_identity(os.getpid()) or "", encoding="ascii")

        words, theirs = os.pipe2(os.O_CLOEXEC)
        command = self.commands.lists[operation]
        try:
            with self._cgroup.door() as enter:
                process = subprocess.Popen(
                    command,
                    cwd="/",
                    env={"PATH": _PATH, "LC_ALL": "C", "FOREBAY_OPERATION": operation, **self.values, **values},
                    stdin=subprocess.DEVNULL,
                    stdout=theirs,
                    stderr=theirs,
                    start_new_session=True,
                    preexec_fn=write_record,
                )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(words)
            raise StorageError(f"the command {operation} cannot be started: {error}"[:300], self._name) from None
        finally:
            os.close(theirs)
        return process, words

    def _note(self, operation: str, values: Mapping[str, str], status: int, text: str) -> None:
        """Into the log, which is bounded. A full disk is no reason to fail."""
        with contextlib.suppress(OSError):
            if self.log.exists() and self.log.stat().st_size > _LOG_BYTES_MAX:
                self.log.replace(self.log.with_name(f"{self.log.name}.1"))
            when = time.strftime("%Y-%m-%d %H:%M:%S")
            node = values.get("FOREBAY_NODE", "")
            with self.log.open("a", encoding="utf-8") as lines:
                lines.write(f"{when} {operation} {node}: status {status}\n{text}".rstrip("\n") + "\n")


def _words_until_end(process: subprocess.Popen[bytes], words: int, deadline: float) -> tuple[str, bool]:
    """The end of what it says, and whether it has ended in time. A daemon that it leaves may keep its output open."""
    os.set_blocking(words, False)
    kept = b""
    over = os.pidfd_open(process.pid)
    open_ends = [over, words]
    try:
        while True:
            ready = select.select(open_ends, [], [], max(0.0, min(deadline - time.monotonic(), 1e6)))[0]
            if words in ready:
                with contextlib.suppress(BlockingIOError):
                    piece = os.read(words, 65536)
                    kept = (kept + piece)[-_WORDS_BYTES_MAX:]
                    if not piece:
                        open_ends.remove(words)
            if over in ready and words not in ready:
                return kept.decode(errors="replace"), True
            if not ready or time.monotonic() > deadline:
                return kept.decode(errors="replace"), over in ready
    finally:
        os.close(over)


def _last_line(text: str, status: int) -> str:
    lines = ["".join(letter for letter in line if letter.isprintable()) for line in text.splitlines()]
    said = [line.strip() for line in lines if line.strip()]
    if said:
        return said[-1][-_REASON_CHARACTERS_MAX:]
    return f"status {status}" if status >= 0 else f"signal {-status}"


def _end_session(session: int, mark: str, deadline: float) -> None:
    """Kills all processes of a session, and returns when they are gone. Without its leader, those that have the mark in
    their environment, too: the session's number may be another's by now.
    """
    while members := _members(session, mark):
        if time.monotonic() > deadline:
            raise StorageError(f"process {members[0]} of a command was killed, and does not end")
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                process = os.pidfd_open(pid)
                try:
                    if pid in _members(session, mark):  # the descriptor means the process that was found
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                        select.select([process], [], [], max(0.0, deadline - time.monotonic()))
                finally:
                    os.close(process)


def _members(session: int, mark: str) -> list[int]:
    found = []
    leader_lives = process_identity(session) is not None
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] in "ZX" or int(fields[3]) != session:
                continue
            if leader_lives or mark.encode() in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.append(int(entry))
    return found
