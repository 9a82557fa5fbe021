# SPDX-License-Identifier: Apache-2.0
"""Other processes of a test: Python programs that the test talks to by lines."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.time_limits import seconds

__all__ = ["PythonProcess", "TalkingProcess", "is_stopped", "processes_where", "wait_until_asleep"]


def processes_where(is_wanted: Callable[[Path], bool]) -> list[int]:
    """Processes of which this is true, asked with their folder in /proc. One that ends meanwhile, or is hidden from us
    as another user's, is not among them.
    """
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if folder.name.isdecimal() and is_wanted(folder):
                found.append(int(folder.name))
    return found


def is_stopped(pid: int) -> bool:
    """By a signal, SIGSTOP for example."""
    return _state(pid) == "T"


def wait_until_asleep(pid: int) -> None:
    """Returns when its main thread waits for something; AssertionError if it ends instead."""
    while (state := _state(pid)) != "S":
        assert state not in "ZX", f"process {pid} has ended"


def _state(pid: int) -> str:
    """As in /proc: S waits, T is stopped, Z has ended; X: there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


class TalkingProcess:
    """A process that the test talks to by lines. A context manager, which ends what still runs."""

    def __init__(self, command: Sequence[str], *, called: str, env: Mapping[str, str] | None = None) -> None:
        self._called = called
        # Without a buffer: communicate() reads the pipe itself and would miss the lines that a buffer has.
        self._process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def line(self) -> str:
        """The next line that it prints; fails with its error output if it ends instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status, _, errors = self.finish()
            raise AssertionError(f"{self._called} ended with status {status}:\n{errors}")
        return line.decode().rstrip("\n")

    def tell(self, line: str = "") -> None:
        """Sends it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def kill(self) -> None:
        """It dies without a word."""
        self._process.kill()
        self._process.wait(seconds(30))

    def send(self, sent: int) -> None:
        """Sends it a signal."""
        self._process.send_signal(sent)

    def wait_until_asleep(self) -> None:
        """Returns when its main thread waits for something."""
        wait_until_asleep(self.pid)

    def finish(self, timeout: float = seconds(120)) -> tuple[int, str, str]:
        """Waits for its end: exit status (negative: the signal), the rest of its output, its error output."""
        output, errors = self._process.communicate(timeout=timeout)
        return self._process.returncode, output.decode(), errors.decode()

    def succeed(self, timeout: float = seconds(120)) -> str:
        """Waits for its end, which must be a good one, and returns the rest of its output."""
        status, output, errors = self.finish(timeout)
        assert status == 0, f"exit status {status}:\n{output}\n{errors}"
        return output

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


class PythonProcess(TalkingProcess):
    """Runs a Python program with the test's environment."""

    def __init__(self, program: str, *arguments: str) -> None:
        command = [sys.executable, "-X", "faulthandler", "-u", "-c", textwrap.dedent(program), *arguments]
        super().__init__(command, called="the process")
