# SPDX-License-Identifier: Apache-2.0
"""Who works on one stream of a pool: two writers, a follower with a name, a reader group of two ranks, and readers that
come late. Whoever has ended is replaced; all that each was told goes into the history.
"""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass, field
from typing import Any

import forebay
from tests.server_faults.pool_nodes import COMPUTES, PoolNodes
from tests.soak.history import HistoryLog
from tests.soak.looks import tell_look
from tests.support.load import LoadProcess, options, until
from tests.support.time_limits import seconds

__all__ = ["PoolCast", "StreamOfPool"]

#: Events that nobody judges, and that would make most of the log.
_UNTOLD = {"begun", "put"}
#: Longest time for what ends by itself, or goes on, once all servers are there.
_SECONDS_MAX = seconds(90)
_CONSUMER = "render"
#: Who was told of an accident late ends late, and is replaced.
_ATTEMPTS_MAX = 3


@dataclass(frozen=True)
class StreamOfPool:
    """Drawn once; every group writes so."""

    address: str
    durable: bool
    last: int
    elements: int
    variables: int
    pause_us: int
    writer_node: int  #: of rank 0; rank 1 is on the node without a server
    reader_nodes: tuple[int, int, int]  #: of the follower, of one rank of the group, of late readers

    @classmethod
    def drawn(cls, address: str, chance: random.Random, *, durable: bool) -> StreamOfPool:
        # Of 8 bytes. Up to 64 KiB go to the home; the largest make blocks of 2 MB. Two streams leave some of the
        # reservation free: segments that hold anything of one group are no other's.
        last, elements, variables = chance.choice([(40, 20_000, 2), (20, 60_000, 2), (10, 250_000, 1)])
        return cls(
            address=address,
            durable=durable,
            last=last,
            elements=elements,
            variables=variables,
            pause_us=chance.choice([20_000, 50_000]),
            writer_node=chance.choice([1, 2, 3]),
            reader_nodes=(chance.randint(1, 4), chance.randint(1, 4), chance.randint(1, 4)),
        )


@dataclass
class _Role:
    """A process and how the history calls it."""

    name: str
    process: LoadProcess
    stopped: bool = field(default=False)


class PoolCast:
    """A context manager: whoever still runs is killed at its end."""

    def __init__(self, nodes: PoolNodes, log: HistoryLog, stream: StreamOfPool, home: int) -> None:
        self.log = log
        self.stream = stream
        self.address = stream.address
        self.writers: list[_Role] = []
        self.follower: list[_Role] = []
        self.group: list[_Role] = []
        self._nodes = nodes
        self._home = home
        self._count = 0
        log.tell(
            "director",
            "stream",
            stream=self.address,
            keeping={"last": stream.last, "consumers": [_CONSUMER]},
            durable=stream.durable,
        )

    @property
    def readers(self) -> list[_Role]:
        """That follow."""
        return [*self.follower, *self.group]

    def _start(self, role: str, node: int, command: str, **given: Any) -> _Role:
        self._count += 1
        name = f"{self.address}/{role}{self._count}"
        told = {key: value for key, value in given.items() if value is not None}
        self.log.tell("director", "started", name=name, role=role, stream=self.address, node=node, **told)

        def heard(event: dict[str, Any]) -> None:
            if event["event"] not in _UNTOLD:
                self.log.hear(name, event)

        process = LoadProcess(
            command,
            self.address,
            *options(given),
            environment=self._nodes.environment_of(node),
            program=self._nodes.load_on(node),
            heard=heard,
        )
        return _Role(name, process)

    def start_writers(self, append_after: int | None = None, steps: int = 0) -> None:
        """A new group goes on after the last step, or withdraws what came after an earlier one."""
        stream = self.stream
        given: dict[str, Any] = {
            "mode": "a",
            "ranks": 2,
            "group": f"g{self._count}",
            "steps": steps,
            "elements": stream.elements,
            "variables": stream.variables,
            "varying": True,
            "pause_us": stream.pause_us,
            "attempts": 400,
            "durability": "durable" if stream.durable else "committed",
            "retention": f"last:{stream.last},consumers:{_CONSUMER}",
            "block_timeout_ms": 15_000,
            "open_timeout_ms": 60_000,
            "grace_ms": 3000,
            "append_after": append_after,
            "force": append_after is not None,
        }
        places = enumerate((stream.writer_node, COMPUTES))
        self.writers = [self._start("writer", node, "write", rank=rank, **given) for rank, node in places]

    def _start_readers(self) -> None:
        """Those that are missing."""
        common = {"open_timeout_ms": 60_000, "timeout_ms": 120_000, "losses": True}
        first, second, _ = self.stream.reader_nodes
        if not self.follower:
            self.follower = [self._start("follower", first, "follow", consumer=_CONSUMER, ack=True, hold=3, **common)]
        if not self.group:
            group = f"r{self._count}"
            self.group = [
                self._start("follower", node, "follow", start="oldest", rank=rank, ranks=2, group=group, **common)
                for rank, node in enumerate((second, COMPUTES))
            ]

    # What is done to them

    def kill_rank(self, rank: int) -> None:
        """A writer dies."""
        self._kill(self.writers[rank % len(self.writers)])

    def kill_reader(self, place: int) -> None:
        """The follower, or a rank of the group."""
        self._kill(self.readers[place % len(self.readers)])

    @staticmethod
    def _kill(role: _Role) -> None:
        if role.process.running():
            role.process.kill()

    def stand_still(self, roles: list[_Role], place: int, duration: float) -> None:
        """One of them is stopped for that long."""
        process = roles[place % len(roles)].process
        if process.running():
            process.send(signal.SIGSTOP)
            time.sleep(duration)
            process.send(signal.SIGCONT)

    def withdraw(self, steps: int) -> None:
        """The group is killed, and another withdraws its last steps."""
        for role in self.writers:
            self._kill(role)
        self._end(self.writers)
        newest = self.newest()
        after = None if newest is None or newest <= steps else newest - steps
        self.start_writers(append_after=after)

    # Looking

    def newest(self) -> int | None:
        """The newest committed step; None: nobody knows."""
        try:
            with self._nodes.admin(self._home) as admin:
                return admin.stream(self.address).committed
        except forebay.ForebayError:
            return None

    def look(self) -> None:
        """Watermarks and kept steps, as the home tells them."""
        try:
            with self._nodes.admin(self._home) as admin:
                tell_look(self.log, admin, self.address)
        except (forebay.NotFoundError, forebay.DisconnectedError):
            return

    def has_failed(self) -> bool:
        """A sync has: the stream promises nothing new."""
        with self._nodes.admin(self._home) as admin:
            return admin.stream(self.address).status is forebay.StreamStatus.FAILED

    def read_all(self) -> None:
        """Another process reads every kept step by its number."""
        if self.newest() is not None:
            self._end([self._start("checker", self.stream.reader_nodes[2], "check", losses=True)])

    # From one action to the next

    def mend(self) -> None:
        """Replaces who has ended. Of a group whose rank is gone the other must end by itself."""
        if not self.writers or self._is_broken(self.writers):
            self._end(self.writers)
            self.start_writers()
        for readers in (self.follower, self.group):
            if self._is_broken(readers):
                self._end(readers)
        self._start_readers()

    @staticmethod
    def _is_broken(roles: list[_Role]) -> bool:
        return any(not role.process.running() for role in roles)

    def _end(self, roles: list[_Role]) -> None:
        """Waits for their ends and tells them."""
        while roles:
            role = roles.pop()
            with role.process as process:
                try:
                    status = process.finish(_SECONDS_MAX)
                except AssertionError:
                    self.log.tell(role.name, "breach", rule="hang", what=f"does not end: {process}")
                    continue
                self.log.tell(role.name, "exited", status=status)

    def go_on(self, duration: float) -> None:
        """Returns when a step has committed and been read, or after that time."""
        limit = time.monotonic() + duration
        for roles, event in ((self.writers, "committed"), (self.readers, "step")):
            for role in roles[:1]:
                try:
                    role.process.wait_for(event, after=role.process.count(), timeout=max(0, limit - time.monotonic()))
                except AssertionError:
                    return

    def must_go_on(self) -> None:
        """All servers are there: writers commit, and all readers get what they commit."""
        for _ in range(_ATTEMPTS_MAX):
            # Some are still to be told of what happened before.
            self.mend()
            late = [role for role in self.writers if not self._tells(role, "committed", after=role.process.count())]
            told = [line["step"] for role in self.writers for line in role.process.named("committed")]
            late += [role for role in self.readers if not self._tells(role, "step", least=max(told, default=0))]
            if not late:
                return
        for role in late:
            self.log.tell(role.name, "breach", rule="hang", what=f"goes on no more: {role.process}")

    @staticmethod
    def _tells(role: _Role, event: str, *, after: int = 0, least: int = 0) -> bool:
        """It gets so far."""
        try:
            role.process.wait_for(event, lambda told: told["step"] >= least, after=after, timeout=_SECONDS_MAX)
        except AssertionError:
            return False
        return True

    def close(self) -> None:
        """The last group ends the stream, and everybody comes to that end."""
        for role in self.writers:
            self._kill(role)
        self._end(self.writers)
        self.start_writers(steps=3)
        self._end(self.writers)
        self._end(self.follower)
        self._end(self.group)

    def await_no_pins(self) -> None:
        """Nobody reads any more."""

        def is_free() -> bool:
            with self._nodes.admin(self._home) as admin:
                return not any(step.pins for step in admin.steps(self.address))

        until(is_free, f"nothing of {self.address} is held")

    def kill_all(self) -> None:
        """Nothing is left running."""
        for role in (*self.writers, *self.readers):
            with role.process:
                pass
