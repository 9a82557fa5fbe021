# SPDX-License-Identifier: Apache-2.0
"""A manager's workday on a disk that is full, or that refuses writes, and what its users are told then."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pytest

import forebay
from forebay.cli.failures import ExitStatus
from forebay.errors import ForebayError, NoSpaceError, StorageError
from forebay.manager.client import ManagerClient
from tests.fault.workday import Answer, Workday
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.mounted import fill
from tests.support.processes import is_stopped

__all__ = ["FailingWrites", "FullDisk", "InterruptedWorkday", "Trouble", "TroubledWorkday"]


class Trouble(Protocol):
    """What may be wrong with a disk."""

    advice: str  #: what every error says
    stage_codes: frozenset[str]  #: a stage that begins meanwhile may fail with these

    def begin(self, instance: CommandLineInstance) -> None:
        """From now on."""

    def end(self) -> None:
        """It has passed."""


class FullDisk:
    """The file system that holds the root has not a byte left."""

    advice = "make room"
    stage_codes = frozenset({"no_space"})

    def begin(self, instance: CommandLineInstance) -> None:
        self._ballast = fill(instance.root.parent)

    def end(self) -> None:
        self._ballast.unlink()


class FailingWrites:
    """Each write of the manager that runs fails."""

    advice = "see to its disk"
    #: Its process inherits what makes the writes of the manager fail.
    stage_codes = frozenset({"io_error"})

    def begin(self, instance: CommandLineInstance) -> None:
        self._pid = instance.manager_pid() if instance.files.manager_identity.exists() else 0
        if self._pid:
            self._limits = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (0, self._limits[1]))

    def end(self) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._limits)


class TroubledWorkday(Workday):
    """Each request first meets the trouble, and is asked again when that has passed."""

    def __init__(self, instance: CommandLineInstance, folder: Path, trouble: Trouble) -> None:
        super().__init__(instance, folder)
        self.trouble = trouble
        self.passing = frozenset({"busy"}) | trouble.stage_codes
        self.told = 0  #: users who were told of it

    def insist(self, ask: Callable[[ManagerClient], Answer]) -> Answer:
        before = self.instance.manager_pid()
        with self.troubled():
            try:
                return super().insist(ask)
            except (NoSpaceError, StorageError) as error:
                self.note_error(str(error))
            self.check_reading()
        assert self.instance.manager_pid() == before
        return super().insist(ask)

    def look(self, ask: Callable[[ManagerClient], Answer]) -> Answer:
        return super().insist(ask)

    def go_down(self) -> None:
        with self.troubled():
            self.switch("down")
        super().go_down()

    def come_up(self) -> None:
        if self.instance.files.manager_database.exists():
            with self.troubled():
                self.switch(*self.instance.up_command)
        super().come_up()

    @contextlib.contextmanager
    def troubled(self) -> Iterator[None]:
        """While it lasts."""
        self.trouble.begin(self.instance)
        try:
            yield
        finally:
            self.trouble.end()

    def switch(self, *command: str) -> bool:
        """``forebay up`` or ``down``: true if it succeeds; else it has said what to do."""
        done = self.instance.run(*command)
        if done.returncode != ExitStatus.OK:
            assert done.returncode == ExitStatus.ERROR, done.stderr
            self.note_error(done.stderr)
        return done.returncode == ExitStatus.OK

    def note_error(self, text: str) -> None:
        """A user is told."""
        assert self.trouble.advice in text
        assert "Traceback" not in text
        self.told += 1

    def check_reading(self) -> None:
        """What there is can be looked at, and doctor says what is wrong."""
        with self.instance.manager() as manager:
            known = {row.name for row in manager.reservations()}
            stages = [row.id for row in manager.stages()]
        assert stages == list(range(1, 1 + len(stages)))
        assert known <= {"kept", "spare", "passing"}
        doctor = self.instance.run("doctor")
        assert doctor.returncode == ExitStatus.ERROR
        assert "problem: manager: the " in doctor.stdout, doctor.stdout + doctor.stderr
        assert self.trouble.advice in doctor.stdout


class InterruptedWorkday(TroubledWorkday):
    """The trouble begins when a manager is about to make its n-th change, and passes when somebody has been told.

    To be closed, also where the day fails.
    """

    def __init__(self, instance: CommandLineInstance, folder: Path, trouble: Trouble, fail_point: str) -> None:
        super().__init__(instance, folder, trouble)
        self.met = 0  #: managers that came by there
        self._fail_point = fail_point
        self._pool = ThreadPoolExecutor()
        self._watch: Future[None] | None = None
        self._over = threading.Event()

    def insist(self, ask: Callable[[ManagerClient], Answer]) -> Answer:
        while True:
            try:
                return self.look(ask)
            except (NoSpaceError, StorageError) as error:
                self.note_error(str(error))

    def write(self, address: str, **options: Any) -> forebay.WritableStream:
        # The manager may be about to change something that nobody waits for: then this user meets the full disk.
        while True:
            try:
                return super().write(address, **options)
            except NoSpaceError as error:
                self.note_error(str(error))

    def go_down(self) -> None:
        while not self.switch("down"):
            pass
        self.disarm()

    def come_up(self) -> None:
        self._told = threading.Event()
        self._passed = threading.Event()
        self._over = threading.Event()
        self._watch = self._pool.submit(self._make_trouble)
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("FOREBAY_FAIL_POINT", self._fail_point)
            started = self.switch(*self.instance.up_command)
        if not started:
            self.instance.up()

    def disarm(self) -> None:
        """This manager's trouble is over, or does not begin any more."""
        assert self._watch is not None
        self._over.set()
        self._watch.result()

    def close(self) -> None:
        """Stops watching."""
        self._over.set()
        self._pool.shutdown()

    def note_error(self, text: str) -> None:
        super().note_error(text)
        self._told.set()
        until(lambda: self._passed.is_set() or self._done_watching(), "the trouble passes")

    def _done_watching(self) -> bool:
        assert self._watch is not None
        return self._watch.done()

    def _make_trouble(self) -> None:
        while not self._over.wait(0.01):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                pid = self.instance.manager_pid()
                if is_stopped(pid):
                    break
        else:
            return
        self.met += 1
        with self.troubled():
            os.kill(pid, signal.SIGCONT)
            until(lambda: self._told.is_set() or self._over.is_set() or self._has_told(), "somebody is told")
        self._passed.set()

    def _has_told(self) -> bool:
        """A stage says that it waits, which was nobody's request."""
        if not self.instance.files.manager_identity.exists():
            return True
        with contextlib.suppress(ForebayError), self.instance.manager() as manager:
            return any("continues by itself" in note for row in manager.stages() for note in row.notes)
        return False
