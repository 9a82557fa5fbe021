# SPDX-License-Identifier: Apache-2.0
"""A server that may have an accident at one of its changes to files, and users who go on over it and ask again."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from forebay import Admin
from forebay.errors import CorruptError, NoSpaceError, StorageError
from tests.fault.instance import Instance
from tests.support.file_changes import Accident, Change, Moment, library, logged_changes
from tests.support.load import Event, LoadProcess, until
from tests.support.staging_server import StartError

__all__ = ["WatchedInstance"]

Answer = TypeVar("Answer")

#: What the system says, and what the server tells its operator to do.
REASONS = {Moment.FAILING: os.strerror(errno.EIO), Moment.FULL: os.strerror(errno.ENOSPC)}
ADVICE = {Moment.FAILING: "repair that, then start the server again", Moment.FULL: "free some space, then start"}


class WatchedInstance(Instance):
    """Where the accident ends the server, another one takes over, in which there is none."""

    def __init__(self, folder: Path, *, user: int | None = None) -> None:
        # What is made durable is asked for: no timer makes one run's changes others than the next one's. Writers come
        # back at once; those that were told of a failed journal end, which the next server cannot know.
        super().__init__(folder / "root", capacity="64MiB", restart_grace_ms=3000, flush_interval_ms=-1, user=user)
        self.committed: dict[str, dict[int, int]] = defaultdict(dict)  #: what writers were told: incarnations of steps
        self._log = folder / "changes"
        self._accident: Accident | None = None
        self._told: list[str] = []
        self._turns = threading.Lock()
        self._supervisor: threading.Thread | None = None
        self._leaving = False
        self._refused = False  # to start
        self._end: int | None = None  # status of the server that was to have the accident

    def come_up(self, accident: Accident | None = None) -> None:
        """Returns when clients can connect."""
        self._accident, self._leaving, self._refused, self._end = accident, False, False, None
        self._told.clear()
        (self.root.parent / f"{self.root.name}.log").unlink(missing_ok=True)
        try:
            self.start(environment=self._watching(accident))
        except StartError as failure:
            self._end = failure.status
            self._check_refusal()
            self.start()
        else:
            self._supervisor = threading.Thread(target=self._supervise, args=(self.pid,), daemon=True)
            self._supervisor.start()

    def __enter__(self) -> Self:
        return self  # It comes up when it is told to.

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_watched()
        super().__exit__(kind, error, trace)

    def go_down(self) -> list[Change]:
        """Ends the server in order; returns the changes of the one that was to have the accident."""
        self._end_watched()
        if self._end == -signal.SIGKILL and not self.running():
            self.start()
        if self.running():
            assert self.stop() == 0
        changes = logged_changes(self._log)
        self._check_end(changes)
        return changes

    def insist(self, ask: Callable[[Admin], Answer]) -> Answer:
        """The answer to a question, asked a second time where the first failed over the accident."""
        with Admin(self.socket(), reconnect_timeout=60) as admin:
            try:
                return ask(admin)
            except (NoSpaceError, StorageError, CorruptError) as error:
                told = str(error)
            self._note(told)
            if self._has_filled() or "restart the server" in told:
                self._renew()
            return ask(admin)

    def write_up_to(self, address: str, count: int, **options: object) -> None:
        """Steps before that number are committed, and the stream is closed."""
        while (event := self._write(address, count, **options))["event"] == "error":
            self._note(f"{event['what']} ({event['where']})")
            # What failed is out of use in this server.
            self._renew()

    def hold(self, address: str) -> LoadProcess:
        """A reader that holds the first step: no accident keeps it from that."""
        reader, _ = self._opened(lambda: self.follow(address, start="oldest", hold=10, commands=True))
        assert reader.ask("next", "step")["pinned"]
        return reader

    def settle(self, is_done: Callable[[], bool], what: str) -> None:
        """Waits for what the server does by itself, unless it has said that something is in the way."""
        until(lambda: is_done() or self._has_complained(), what)

    def _watching(self, accident: Accident | None) -> dict[str, str]:
        values: list[object] = [self.root, self._log, "", 0, 0]
        if accident:
            change = accident.change
            values[2:] = [f"{change.kind} {change.path}", change.occurrence, int(accident.moment)]
        return {"LD_PRELOAD": str(library()), "FOREBAY_WATCH_CHANGES": "\n".join(map(str, values))}

    def _supervise(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with self._turns:
            self._end = self.wait()
            if not self._leaving:
                self.start()

    def _end_watched(self) -> None:
        with self._turns:
            self._leaving = True
            if self._end is None and self.running():
                self.send(signal.SIGTERM)
        if self._supervisor:
            self._supervisor.join()
            self._supervisor = None

    def _renew(self) -> None:
        assert not self._leaving, "the accident is over"
        self._end_watched()
        if not self.running():
            self.start()

    def _opened(self, start: Callable[[], LoadProcess]) -> tuple[LoadProcess, Event]:
        """A program, with the outcome of its open. It says so if no server is there, and is started again then."""
        while True:
            process = start()
            event = process.wait_for(("opened", "error"))
            if event.get("code") != "disconnected":
                return process, event
            until(lambda: self._end is not None, "the end of the server is seen")
            with self._turns:
                assert self.running()

    def _write(self, address: str, count: int, **options: object) -> Event:
        writer, event = self._opened(lambda: self.write(address, mode="a", commands=True, elements=1000, **options))
        done = event.get("next", 0)
        while event["event"] != "error" and done < count:
            event = writer.ask("step", ("committed", "error"))
            if event["event"] == "committed":
                self.committed[address][event["step"]] = event["incarnation"]
                done = event["step"] + 1
        if event["event"] != "error":
            event = writer.ask("close", ("closed", "error"))
        writer.kill()
        return event

    def _has_filled(self) -> bool:
        return self._accident is not None and self._accident.moment == Moment.FULL

    def _was_deleted_later(self) -> bool:
        """What could not be deleted at once was, when the rest was gone: nobody need be told."""
        assert self._accident is not None
        deleted = self._accident.change.path.startswith("./quarantine/destroyed.")
        return self._accident.moment == Moment.FAILING and deleted and not os.listdir(self.root / "quarantine")

    def _note(self, told: str) -> None:
        """Somebody was told of the accident."""
        assert self._accident is not None
        assert not self._accident.deadly, told
        assert REASONS[self._accident.moment] in told
        self._told.append(told)

    def _has_complained(self) -> bool:
        if self._accident is None or self._accident.deadly:
            return False
        return REASONS[self._accident.moment] in self.log()

    def _check_refusal(self) -> None:
        """Its last words were clear to whom starts it."""
        assert self._accident is not None
        if self._accident.deadly:
            return
        assert self._end == 1
        words = self.log().splitlines()[-1]
        for part in (REASONS[self._accident.moment], str(self.root), ADVICE[self._accident.moment]):
            assert part in words
        self._refused = True

    def _check_end(self, changes: list[Change]) -> None:
        """It died where it was to die and nowhere else, or has said what failed."""
        if self._accident is None:
            assert self._end == 0
        elif self._accident.deadly:
            assert self._end == -signal.SIGKILL
        else:
            assert self._accident.change in changes
            # What is there needs no space to be opened; later changes may find the disk full.
            needs_none = self._accident.moment == Moment.FULL and self._accident.change.kind in {"open", "mkdir"}
            assert needs_none or self._was_deleted_later() or self._told or self._has_complained(), "it said nothing"
            failed = self._refused or "not everything could be made durable" in self.log()
            assert self._end == (1 if failed else 0)
