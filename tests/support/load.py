# SPDX-License-Identifier: Apache-2.0
"""The load generator ``forebay_load`` as processes of a test: what each one says, waited for with deadlines."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.support.time_limits import seconds

__all__ = ["Event", "LoadProcess", "check", "follow", "load_generator", "write"]

Event = dict[str, Any]

#: Longest wait for anything that a healthy system does at once; long, because test machines are busy.
DEADLINE_SECONDS = seconds(90)


def load_generator() -> Path:
    """The program, from the build that ``$FOREBAY_BUILD_DIR`` names."""
    build = os.environ.get("FOREBAY_BUILD_DIR")
    program = Path(build or "build/dev") / "tests" / "support" / "forebay_load"
    if not program.is_file():
        pytest.fail(f"{program} is missing: build it with `./run build`, or name another build with FOREBAY_BUILD_DIR")
    return program


class LoadProcess:
    """One process. A context manager, which kills what still runs.

    ``program`` is another one that tells events in the same way; ``heard`` gets each event, in a thread of its own.
    """

    def __init__(
        self,
        *arguments: object,
        environment: Mapping[str, str],
        program: Sequence[str] = (),
        heard: Callable[[Event], None] | None = None,
        **process_options: Any,
    ) -> None:
        self._heard = heard
        self.arguments = [str(argument) for argument in arguments]
        self.events: list[Event] = []
        self._told = threading.Condition()
        self._ended = False
        self._process = subprocess.Popen(
            [*(program or (str(load_generator()),)), *self.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            **process_options,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The last line of a killed process may be cut: it was not told then.
            if not line.endswith("\n"):
                break
            event = json.loads(line)
            if self._heard is not None:
                self._heard(event)
            with self._told:
                self.events.append(event)
                self._told.notify_all()
        with self._told:
            self._ended = True
            self._told.notify_all()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def running(self) -> bool:
        """Has it not ended yet?"""
        return self._process.poll() is None

    def named(self, event: str) -> list[Event]:
        """The events of that name so far."""
        with self._told:
            return [told for told in self.events if told["event"] == event]

    def has_told(self, event: str, after: int) -> bool:
        """Is there an event of that name among those from number ``after`` on?"""
        with self._told:
            return any(told["event"] == event for told in self.events[after:])

    def count(self) -> int:
        """Number of events so far."""
        with self._told:
            return len(self.events)

    def wait_for(
        self,
        event: str | tuple[str, ...],
        matching: Callable[[Event], bool] = lambda _: True,
        *,
        after: int = 0,
        timeout: float = DEADLINE_SECONDS,
    ) -> Event:
        """The first event of that name, or one of those names, that matches, among those from number ``after`` on."""
        names = (event,) if isinstance(event, str) else event
        found: list[Event] = []

        def is_told() -> bool:
            found[:] = [told for told in self.events[after:] if told["event"] in names and matching(told)]
            return bool(found) or self._ended

        with self._told:
            self._told.wait_for(is_told, timeout)
        if not found:
            raise AssertionError(f"no {event!r} event within {timeout} s from\n{self}")
        return found[0]

    def command(self, line: str) -> int:
        """Tells it a command; returns the number of events before it, for ``wait_for(after=…)``."""
        before = self.count()
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return before

    def ask(self, line: str, event: str | tuple[str, ...], *, timeout: float = DEADLINE_SECONDS) -> Event:
        """Tells it a command and waits for the event that answers it."""
        return self.wait_for(event, after=self.command(line), timeout=timeout)

    def end_commands(self) -> None:
        """It ends once it has done the commands so far."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def send(self, sent: signal.Signals) -> None:
        """Sends it a signal."""
        self._process.send_signal(sent)

    def kill(self) -> None:
        """It dies without a word; returns when it is gone and all that it had said is in ``events``."""
        self._process.kill()
        self.finish()

    def finish(self, timeout: float = DEADLINE_SECONDS) -> int:
        """Waits for its end: exit status (negative: the signal)."""
        self.end_commands()
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s:\n{self}") from None
        self._listener.join(timeout)
        return status

    def succeed(self, timeout: float = DEADLINE_SECONDS) -> list[Event]:
        """Waits for a good end and returns all events."""
        status = self.finish(timeout)
        assert status == 0, f"exit status {status}:\n{self}"
        return self.events

    def fail(self, code: str, timeout: float = DEADLINE_SECONDS) -> Event:
        """Waits for its end by an error with this code, and returns the error."""
        status = self.finish(timeout)
        errors = self.named("error")
        assert (status, [error["code"] for error in errors[-1:]]) == (1, [code]), f"{self}"
        return errors[-1]

    def __str__(self) -> str:
        with self._told:
            earlier, tail = self.events[:-15], self.events[-15:]
        wrong = [event for event in earlier if event["event"] == "violation"]
        lines = [f"forebay_load {' '.join(self.arguments)} (pid {self.pid}, status {self._process.poll()})"]
        if not self.running():
            assert self._process.stderr is not None
            lines.append(self._process.stderr.read())
        return "\n".join([*lines, *(str(event) for event in (*wrong[:5], *tail))])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running():
            self._process.kill()
        self._process.wait()
        self._listener.join(DEADLINE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def options(named: Mapping[str, object]) -> list[str]:
    """Command-line options of keyword arguments: ``when_full="error"``; True for a flag."""
    texts: list[str] = []
    for name, value in named.items():
        if value is None or value is False:
            continue
        texts.append(f"--{name.replace('_', '-')}")
        if value is not True:
            texts.append(str(value))
    return texts


def write(environment: Mapping[str, str], address: str, **named: object) -> LoadProcess:
    """Starts a rank that writes; options as ``forebay_load write --help`` names them."""
    return LoadProcess("write", address, *options(named), environment=environment)


def follow(environment: Mapping[str, str], address: str, **named: object) -> LoadProcess:
    """Starts a reader that follows."""
    return LoadProcess("follow", address, *options(named), environment=environment)


def check(environment: Mapping[str, str], address: str) -> list[Event]:
    """Reads and checks every kept step in a process of its own; its "step" events."""
    with LoadProcess("check", address, environment=environment) as reader:
        reader.succeed()
        return reader.named("step")


def until(condition: Callable[[], bool], what: str, timeout: float = DEADLINE_SECONDS) -> None:
    """Waits for a state that nobody announces; only for what the system itself offers no event for."""
    limit = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.01)
