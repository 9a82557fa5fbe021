# SPDX-License-Identifier: Apache-2.0
"""Daemons of a driver: started in a session and a cgroup of their own, found again by what the kernel says of them,
ended by it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from forebay.errors import StorageError, UnsupportedError
from forebay.manager.process_identity import process_identity
from forebay.workflows.files.daemon_cgroup import DaemonCgroup

__all__ = ["bound_logs", "end_daemons", "find_daemons", "last_words", "program_path", "start_daemon"]

#: A log beyond this is cut: its end is kept beside it, so that two parts of this size are left.
_LOG_BYTES_MAX = 4 << 20
_OOM_SCORE = "250"  # of 1000, as the kernel counts; stages of users have more
_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin"


def program_path(name: str, package: str) -> str:
    """Where the program lies; UnsupportedError, naming its package, if it is not installed."""
    for folder in _FOLDERS.split(":"):
        if os.access(path := f"{folder}/{name}", os.X_OK):
            return path
    raise UnsupportedError(f"{name} is not installed; install it (package {package})")


def start_daemon(
    command: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    cgroup: DaemonCgroup,
    *,
    goes_first: bool = False,
) -> str:
    """Starts it with nothing of this process but its rights; its identity.

    Its signals are as at a program's start: who starts us may block some. `goes_first`: users make it grow, and where
    memory is short it goes before the instance's own daemons.
    """
    with log.open("ab") as words, cgroup.door() as enter:

        def begin() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            enter()

        try:
            process = subprocess.Popen(
                command,
                cwd="/",
                env={"PATH": _FOLDERS, "LC_ALL": "C", **environment},
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=begin,
            )
        except OSError as error:
            raise StorageError(f"{command[0]} cannot be started: {error.strerror}", str(log)) from None
    if goes_first:
        with suppress(OSError):
            Path(f"/proc/{process.pid}/oom_score_adj").write_text(_OOM_SCORE)
    process.returncode = 0  # it outlives this process, which does not wait for it
    return process_identity(process.pid) or ""


def bound_logs(folder: Path) -> None:
    """Cuts logs of a driver's folder that have grown large; what a daemon wrote last is then in NAME.1. They are opened
    for appending, so that the next line is the first one. Clients may bring a daemon to write many.
    """
    for log in (*folder.glob("*.log"), *folder.glob("*.out")):
        if log.stat().st_size <= _LOG_BYTES_MAX:
            continue
        with log.open("rb+") as written:
            written.seek(-_LOG_BYTES_MAX, os.SEEK_END)
            log.with_name(f"{log.name}.1").write_bytes(written.read(_LOG_BYTES_MAX))
            written.truncate(0)


def last_words(*logs: Path) -> str:
    """The last line of the first of these logs that has one."""
    for log in logs:
        with suppress(OSError):
            if lines := log.read_text(errors="replace").strip().splitlines():
                return lines[-1][-200:]
    return "it did not say why"


def find_daemons(mark: Path) -> dict[int, str]:
    """Processes of this user that have this path among their arguments: name of the program, by pid.

    Other users may give their processes any arguments, those of set-user-id programs too: all four of a process's user
    ids must be ours. A program that writes its title anew, as juicefs does, has all its arguments in the first one.
    """
    wanted = os.fsencode(mark)
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with suppress(OSError):
            if not _is_ours(entry):
                continue
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            is_titled = b"=" + wanted + b" " in words[0]
            if is_titled or any(word == wanted or word.endswith(b"=" + wanted) for word in words[1:]):
                program = words[0].partition(b" ")[0] if is_titled else words[0]
                found[int(entry)] = os.fsdecode(os.path.basename(program))
    return found


def end_daemons(mark: Path, deadline: float) -> None:
    """Kills all that `find_daemons` finds, and returns when they are gone: none of their threads is in the kernel.

    Raises
    ------
    StorageError
        One of them is not gone at the deadline: it waits for its disk.
    """
    while pids := [pid for pid in find_daemons(mark) if process_identity(pid) is not None]:
        if time.monotonic() > deadline:
            raise StorageError(f"process {pids[0]} was killed, and others like it come again and again", str(mark))
        for pid in pids:
            with suppress(ProcessLookupError):
                process = os.pidfd_open(pid)
                try:
                    if pid in find_daemons(mark):  # the descriptor means the process that was found
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                    if not select.select([process], [], [], max(0.0, deadline - time.monotonic()))[0]:
                        raise StorageError(f"process {pid} was killed and does not end: its disk does not answer")
                finally:
                    os.close(process)


def _is_ours(entry: str) -> bool:
    for line in Path(f"/proc/{entry}/status").read_bytes().splitlines():
        if line.startswith(b"Uid:"):
            return set(line.split()[1:]) == {b"%d" % os.geteuid()}
    return False
