# SPDX-License-Identifier: Apache-2.0
"""How juicefs is called. Every flag has its reason in docs/design/files-on-nodes.md."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forebay.errors import DeadlineExceededError, StorageError

__all__ = ["COMPACTION_BYTES", "NAME", "LoopbackNet", "format_command", "gc_command", "mount_command", "run_engine"]

#: Of the file system; blocks begin with it.
NAME = "files"
_REDIS_PLACE = 254
#: Each thread of `gc` writes a piece of a file anew, of 64 MiB, before it removes the old one.
_THREADS = 2
_CHUNK_BYTES = 64 << 20
#: What `gc` needs to compact, in all parts together: they are not used quite alike.
COMPACTION_BYTES = 3 * _THREADS * _CHUNK_BYTES // 2
_FUSE_OPTIONS = "nosuid,nodev"
_ANYBODY = 65534


@dataclass(frozen=True, slots=True)
class LoopbackNet:
    """Addresses of one reservation on one node: part i is the one that ends with i, Redis that with 254.

    Ordinary users cannot listen at the port, so none can take a forwarder's place.
    """

    number: int  #: from 0 to 16383: the home's for reservations of its own, and nodes', do not meet
    port: int  #: below 1024

    @property
    def pattern(self) -> str:
        """The parts' address, as juicefs wants it."""
        return f"http://{self._prefix}.%d:{self.port}/"

    @property
    def redis(self) -> str:
        """The address of Redis."""
        return self.part(_REDIS_PLACE)

    def part(self, part: int) -> str:
        """A part's address."""
        return f"{self._prefix}.{part}"

    def url(self, user: str) -> str:
        """Redis as juicefs wants it; the password goes by environment."""
        return f"redis://{user}@{self.redis}:{self.port}/0"

    @property
    def _prefix(self) -> str:
        return f"127.{64 + (self.number >> 8)}.{self.number & 255}"


def format_command(
    program: Path, net: LoopbackNet, user: str, parts: int, capacity_bytes: int, files: int
) -> list[str]:
    """Writes into Redis what the file system is."""
    return [
        *(str(program), "format", "--storage", "webdav", "--bucket", net.pattern, "--shards", str(parts)),
        *("--trash-days", "0", "--block-size", "4M", "--capacity", _gibibytes(capacity_bytes), "--inodes", str(files)),
        *(net.url(user), NAME),
    ]


def gc_command(program: Path, net: LoopbackNet, user: str) -> list[str]:
    """Compacts what was overwritten, and removes blocks that no file has."""
    return [str(program), "gc", "--compact", "--delete", "--threads", str(_THREADS), net.url(user)]


def mount_command(program: Path, net: LoopbackNet, user: str, place: Path, log: Path, *, squash: bool) -> list[str]:
    """Mounts; in the foreground. The log's name is what the process is found by."""
    command = [str(program), "mount", "--bucket", net.pattern, f"--log={log}", "--no-syslog", "--no-usage-report"]
    command += ["--backup-meta", "0", "--attr-cache", "0", "--entry-cache", "0", "--dir-entry-cache", "0"]
    command += ["--cache-size", "0", "--cache-dir", "memory", "--buffer-size", "100", "--hide-internal"]
    command += ["--metrics", f"{net.redis}:0", "-o", _FUSE_OPTIONS]
    if squash:
        command += ["--root-squash", f"{_ANYBODY}:{_ANYBODY}"]
    return [*command, net.url(user), str(place)]


def run_engine(command: Sequence[str], environment: Mapping[str, str], deadline: float) -> str:
    """Runs it to its end; what it says. It does not outlive this process.

    Raises
    ------
    StorageError
        It fails.
    DeadlineExceededError
        It is not done in time, and was killed.
    """
    try:
        done = subprocess.run(
            command,
            cwd="/",
            env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C", "HOME": "/root", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=max(0.1, deadline - time.monotonic()),
            start_new_session=True,
            preexec_fn=_ends_with_its_parent,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DeadlineExceededError(f"juicefs {command[1]} is not done in time") from None
    if done.returncode != 0:
        words = (done.stdout.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise StorageError(f"juicefs {command[1]} has failed: {words[-200:]}")
    return done.stdout


def _gibibytes(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.6f}"


def _ends_with_its_parent() -> None:
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
