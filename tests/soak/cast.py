# SPDX-License-Identifier: Apache-2.0
"""One stream of a soak with everybody who works on it: each start, accident and end, told to the history."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
from collections.abc import Mapping
from typing import Any

import forebay
from tests.soak.history import HistoryLog
from tests.soak.looks import tell_look
from tests.soak.shape import StreamShape
from tests.support.instance import CommandLineInstance
from tests.support.load import LoadProcess, options
from tests.support.time_limits import seconds

__all__ = ["Cast"]

#: Events that nobody judges, and that would make most of the log.
_UNTOLD = {"begun", "put"}
_READERS_MAX = 5
_READER_KINDS = ("oldest", "latest", "durable", "named", "named", "named", "holder", "checker", "adios2")
_SECONDS_TO_END = seconds(40)
#: So many times as long for who goes on telling something.
_PATIENCE = 10


class Cast:
    """The groups and readers of one stream. Writers form one group at a time."""

    def __init__(
        self, instance: CommandLineInstance, log: HistoryLog, address: str, shape: StreamShape, chance: random.Random
    ) -> None:
        self.instance = instance
        self.log = log
        self.address = address
        self.shape = shape
        self.chance = chance
        self.writers: list[LoadProcess] = []
        self.readers: dict[str, LoadProcess] = {}
        self.stopped: set[str] = set()
        self.kills = 0
        self._names: dict[int, str] = {}
        self._count = 0
        self._formed = False
        log.tell("director", "stream", stream=address, keeping=shape.keeping(), durable=shape.durable)

    # Starting

    def _start(self, role: str, command: str, program: tuple[str, ...] = (), **given: Any) -> LoadProcess:
        self._count += 1
        name = f"{self.address}/{role}{self._count}"
        told = {key: value for key, value in given.items() if value is not None}
        self.log.tell("director", "started", name=name, role=role, stream=self.address, **told)

        def heard(event: dict[str, Any]) -> None:
            if event["event"] not in _UNTOLD:
                self.log.hear(name, event)

        arguments = (self.address,) if program else (command, self.address, *options(given))
        process = LoadProcess(
            *arguments, environment=self._environment_of(role), program=self._program_of(role, program), heard=heard
        )
        self._names[process.pid] = name
        return process

    def _environment_of(self, role: str) -> Mapping[str, str]:
        """What processes of this role find their server by."""
        return self.instance.environment

    def _program_of(self, role: str, program: tuple[str, ...]) -> tuple[str, ...]:
        """What runs `program`; empty: the load generator."""
        return program

    def start_group(self) -> None:
        """A new group replaces the stream, or goes on after its last or an earlier step."""
        given = {**self.shape.writer_options(), "mode": "a", "group": f"g{self._count}"}
        given["steps"] = self.chance.choice([0, 0, 5, 40, 150])
        newest = self.newest()
        drawn = self.chance.random()
        if drawn < 0.12:
            given |= {"mode": "w", "force": True}
        elif drawn < 0.35 and newest is not None:
            given |= {"append_after": self.chance.randint(max(0, newest - 20), newest), "force": True}
        self.writers = [self._start("writer", "write", rank=rank, **given) for rank in range(self.shape.ranks)]
        self._formed = False

    def newest(self) -> int | None:
        """The newest committed step, or None."""
        try:
            with forebay.Admin() as admin:
                return admin.stream(self.address).committed
        except forebay.ForebayError:
            return None

    def start_reader(self) -> None:
        """A follower of any kind, or one that reads all that is kept and leaves."""
        if len(self.readers) >= _READERS_MAX:
            return
        kind = self.chance.choice(_READER_KINDS)
        common: dict[str, Any] = {"open_timeout_ms": 30_000}
        if kind == "checker":
            process = self._start("checker", "check", unchecked=not self.shape.checksums)
        elif kind == "adios2":
            process = self._start("adios2", "", (sys.executable, "-m", "tests.soak.adios2_reader"), start="oldest")
        elif kind == "named":
            taken = {reader.arguments[reader.arguments.index("--consumer") + 1] for reader in self._named()}
            free = sorted({*self.shape.consumers, "extra"} - taken)
            if not free:
                return
            process = self._start("follower", "follow", consumer=self.chance.choice(free), ack=True, hold=1, **common)
        elif kind == "holder":
            process = self._start("follower", "follow", start="oldest", hold=8, commands=True, **common)
        elif kind == "latest":
            process = self._start("follower", "follow", start="oldest", latest=True, unordered=True, **common)
        else:
            watermark = "durable" if kind == "durable" else None
            hold = self.chance.choice([0, 3, 10])
            process = self._start("follower", "follow", start="oldest", watermark=watermark, hold=hold, **common)
        self.readers[self._names[process.pid]] = process

    def _named(self) -> list[LoadProcess]:
        return [reader for reader in self.readers.values() if "--consumer" in reader.arguments]

    # Accidents

    def kill_rank(self) -> bool:
        """One rank dies; the group is broken then."""
        running = [writer for writer in self.writers if writer.running()]
        if not running:
            return False
        self.chance.choice(running).kill()
        self.kills += 1
        return True

    def disturb_reader(self) -> bool:
        """One reader dies, stops, goes on, or lets go of what it holds."""
        running = {name: reader for name, reader in self.readers.items() if reader.running()}
        if not running:
            return False
        name = self.chance.choice(sorted(running))
        reader = running[name]
        if name in self.stopped:
            reader.send(signal.SIGCONT)
            self.stopped.discard(name)
        elif "--commands" in reader.arguments and self.chance.random() < 0.85:
            self._command(reader, self.chance.choice(["next", "next", "next", "compare", "release"]))
        elif self.chance.random() < 0.4:
            reader.send(signal.SIGSTOP)
            self.stopped.add(name)
        else:
            reader.kill()
            self.kills += 1
        return True

    @staticmethod
    def _command(reader: LoadProcess, line: str) -> None:
        try:
            reader.command(line)
        except BrokenPipeError:
            return

    # Looking

    def look(self) -> None:
        """The watermarks and the kept steps, as the server tells them."""
        try:
            with forebay.Admin() as admin:
                tell_look(self.log, admin, self.address)
        except (forebay.NotFoundError, forebay.DisconnectedError):
            return

    def read_all(self) -> None:
        """Another process reads every kept step, when nobody is at work."""
        if self.newest() is not None:
            self._leave(self._start("checker", "check", unchecked=not self.shape.checksums), _SECONDS_TO_END)

    # Ending

    def reap(self) -> None:
        """Tells the ends of those who have gone by themselves."""
        for name, reader in list(self.readers.items()):
            if not reader.running():
                del self.readers[name]
                self._leave(reader, 10)
        if self.writers and not any(writer.running() for writer in self.writers):
            for writer in self.writers:
                self._leave(writer, 10)
            self.writers = []

    def _leave(self, process: LoadProcess, seconds: float) -> None:
        name = self._names.pop(process.pid)
        self.stopped.discard(name)
        with process:
            status = None
            # A reader may have thousands of steps before it: it hangs when it tells of no further one.
            for _ in range(_PATIENCE):
                told = process.count()
                with contextlib.suppress(AssertionError):
                    status = process.finish(seconds)
                if status is not None or process.count() == told:
                    break
            if status is None:
                self.log.tell(name, "breach", rule="hang", what=f"did not go on, or end, within {seconds} s: {process}")
            else:
                self.log.tell(name, "exited", status=status)

    def rest(self) -> None:
        """Ends everybody. Writers are cut short; followers must then come to their end by themselves."""
        for writer in self.writers:
            if writer.running() and self._is_at_work(writer):
                writer.kill()
                self.kills += 1
        for name in list(self.stopped):
            self.readers[name].send(signal.SIGCONT)
        # Whoever waits for a stream that nobody ever began, or for a group that never formed, has nothing to wait for.
        waits = self.newest() is None
        for reader in self.readers.values():
            if waits and reader.running():
                reader.kill()
        for writer in self.writers:
            self._leave(writer, _SECONDS_TO_END)
        self.writers = []
        for reader in self.readers.values():
            self._leave(reader, _SECONDS_TO_END)
        self.readers = {}

    @staticmethod
    def _is_at_work(writer: LoadProcess) -> bool:
        """Would it go on for long?"""
        return writer.arguments[writer.arguments.index("--steps") + 1] in ("0", "150")

    def go_on(self, seconds: float) -> None:
        """Returns when a writer or reader, drawn at random, has got further, or cannot."""
        running = [
            process
            for process in (*self.writers, *self.readers.values())
            if process.running() and self._names[process.pid] not in self.stopped
        ]
        if not running:
            return
        process = self.chance.choice(running)
        try:
            process.wait_for(("committed", "step", "got", "end"), after=process.count(), timeout=seconds)
        except AssertionError:
            return
