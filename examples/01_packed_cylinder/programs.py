# SPDX-License-Identifier: Apache-2.0
"""The demo's child processes: each has a log, is watched while it runs, and ends with the demo however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


class Program:
    """A running child process."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is the demo's to handle
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status, negative for the signal that ended it; None while it runs."""
        return self._process.poll()

    def pause(self) -> None:
        """SIGSTOP: it stands still until told to go on."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: it dies without a word."""
        self._process.kill()

    def wait(self, timeout_s: float) -> int:
        """Exit status, once it has ended."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.name} has not ended within {timeout_s:g} s; see {self.log}") from None

    def end(self) -> None:
        """Asks it to end, and kills it if it does not."""
        if self.status is None:
            self._process.terminate()
            self.go_on()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def last_words(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])


class Programs:
    """All of them. A context manager: none outlives it."""

    def __init__(self, log_folder: Path) -> None:
        self._log_folder = log_folder
        self._programs: list[Program] = []
        self._doomed: list[Program] = []

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> Program:
        """Starts one; what it prints goes to NAME.log."""
        program = Program(name, command, environment, self._log_folder / f"{name}.log")
        self._programs.append(program)
        return program

    def may_fail(self, program: Program) -> None:
        """From now on this one may end as it likes."""
        self._doomed.append(program)

    def check(self) -> None:
        """Raises DemoError if one has failed that should not."""
        for program in self._programs:
            if program.status not in (None, 0) and program not in self._doomed:
                raise DemoError(f"{program.name} ended with status {program.status}:\n{program.last_words()}")

    @property
    def running(self) -> list[Program]:
        return [program for program in self._programs if program.status is None]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in self.running:
            program.end()


def processes_of_instance(root: Path) -> list[int]:
    """Processes of this user that serve the instance: server, manager, stages."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            environment = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended, or is another user's
        serves = os.path.basename(arguments[0]) == b"forebayd" or any(
            argument in (b"forebay.workflows.manager", b"forebay.workflows.staging") for argument in arguments
        )
        if serves and b"FOREBAY_ROOT=" + os.fsencode(root) in environment:
            found.append(int(process.name))
    return sorted(found)


def wait_for_end(pids: Sequence[int], timeout_s: float) -> list[int]:
    """Waits for processes that are no children; returns those that still run."""
    deadline = time.monotonic() + timeout_s
    while (left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left
