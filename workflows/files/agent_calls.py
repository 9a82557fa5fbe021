# SPDX-License-Identifier: Apache-2.0
"""The manager's side of the agents: calls wait here until the agent of their server takes them, and has answered.

An agent asks for its next call; nobody connects to an agent. docs/design/files-on-nodes.md has the rules.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forebay.errors import (
    DeadlineExceededError,
    DisconnectedError,
    ErrorCode,
    ForebayError,
    ProtocolError,
    RefusedError,
    error_of_code,
)

__all__ = ["AgentAwayError", "AgentCalls", "Turn"]

#: How long a call waits for an agent to take it.
_TAKEN_SECONDS_MAX = 10.0
#: One that has not asked for so long is away: nobody waits for it.
_AWAY_SECONDS = 30.0
#: So many agents wait here for something to do: a user's requests from other nodes are limited.
_WAITING_MAX = 16
_TURN_SECONDS_MAX = 10.0
#: How long an agent that may not wait here does so by itself.
_PAUSE_SECONDS = 1.0


class AgentAwayError(DisconnectedError):
    """No agent of that server answers, or its server does not answer it. Files of other servers are not concerned."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What an agent says of itself when it asks for what it is to do next."""

    server: str
    root_uuid: str
    agent: str  #: another one for each run of the agent
    shown: frozenset[str] = frozenset()  #: reservations of which its drivers have something
    ended: frozenset[str] = frozenset()  #: those whose daemons do not run
    cgroup_problem: str = ""  #: as `FilesEngines.cgroup_problem`
    under_way: frozenset[int] = frozenset()  #: calls of this manager that it has taken and not answered
    answers: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)  #: to calls of this manager
    wait_seconds: float = 0.0  #: how long it waits for something to do


@dataclass(slots=True, eq=False)
class _Call:
    number: int
    document: dict[str, Any]
    taken: bool = False
    answer: Mapping[str, Any] | None = None


@dataclass(slots=True)
class _Server:
    """What is known of one server's agent."""

    seen_at: float  #: when it asked last, by the monotonic clock; at first the manager's start
    turns: int = 0  #: that it has begun
    shown: frozenset[str] = frozenset()  #: reservations of which its drivers have something
    ended: frozenset[str] = frozenset()  #: those whose daemons do not run
    cgroup_problem: str = ""
    to_take: deque[_Call] = field(default_factory=deque)
    taken: dict[int, _Call] = field(default_factory=dict)


class AgentCalls:
    """Those of one manager. Usable from several threads.

    Parameters
    ----------
    root_uuid : callable
        Of the root that a server of this name has; DisconnectedError if there is no such server.
    """

    def __init__(self, root_uuid: Callable[[str], str]) -> None:
        self._root_uuid = root_uuid
        self._changed = threading.Condition(threading.RLock())  # Guards what follows.
        self._servers: dict[str, _Server] = {}
        self._numbers = 0
        self._begun_at = time.monotonic()
        self._waiting = 0

    def ask(self, server: str, operation: str, reservation: str, values: dict[str, Any], seconds: float) -> Any:
        """Has the agent of the server carry it out, and returns what it says.

        Raises
        ------
        ForebayError
            What the agent raises.
        AgentAwayError
            No agent takes it.
        DeadlineExceededError
            It is not done in time. The agent may still be at it; whatever it is asked next comes after it.
        ProtocolError
            The agent's error is none of this version's.
        """
        with self._changed:
            self._numbers += 1
            document = {"number": self._numbers, "operation": operation, "reservation": reservation, **values}
            call = _Call(self._numbers, document)
            known = self._known(server)
            known.to_take.append(call)
            self._changed.notify_all()
            seconds_max = 0.0 if self.is_away(server) else _TAKEN_SECONDS_MAX
            try:
                if not self._changed.wait_for(lambda: call.taken, seconds_max):
                    raise AgentAwayError(
                        f"no agent runs on server {server}; start `forebay agent` there, as root", reservation
                    )
                deadline = time.monotonic() + seconds
                while not self._changed.wait_for(
                    lambda: call.answer is not None, max(0.0, min(_AWAY_SECONDS / 4, deadline - time.monotonic()))
                ):
                    if self.is_away(server):  # who has taken something asks again at once
                        raise AgentAwayError(
                            f"the agent of server {server} is away; start `forebay agent` there, as root", reservation
                        )
                    if time.monotonic() >= deadline:
                        raise DeadlineExceededError(f"{operation} of files on server {server} is not done in time")
            finally:
                # Nobody waits for it any more.
                if call in known.to_take:
                    known.to_take.remove(call)
                known.taken.pop(call.number, None)
        assert call.answer is not None
        if (failure := call.answer.get("error")) is not None:
            raise _error_of(failure, server)
        return call.answer.get("result")

    def turn(self, said: Turn) -> dict[str, Any]:
        """An agent's request: takes its answers, and gives what it is to do next, if there is something in time.

        What was given to an earlier run of the agent, or got lost on the way to this one, is given again.

        Raises
        ------
        RefusedError
            The server of this name has another root.
        DisconnectedError
            There is no server of this name.
        """
        if self._root_uuid(said.server) != said.root_uuid:
            raise RefusedError(f"server {said.server} of the pool has another root than the one that this agent serves")
        with self._changed:
            known = self._known(said.server)
            known.seen_at = time.monotonic()
            known.turns += 1
            turn = known.turns
            for number, answer in said.answers.items():
                if (call := known.taken.pop(number, None)) is not None:
                    call.answer = answer
            lost = [call for number, call in known.taken.items() if number not in said.under_way]
            for call in sorted(lost, key=lambda call: -call.number):
                del known.taken[call.number]
                known.to_take.appendleft(call)
            known.shown, known.ended, known.cgroup_problem = said.shown, said.ended, said.cgroup_problem
            self._changed.notify_all()
            if not known.to_take:
                if self._waiting >= _WAITING_MAX:
                    return {"calls": [], "pause_seconds": _PAUSE_SECONDS}
                self._waiting += 1
                try:
                    self._changed.wait_for(
                        lambda: known.turns != turn or known.to_take, min(said.wait_seconds, _TURN_SECONDS_MAX)
                    )
                finally:
                    self._waiting -= 1
            if known.turns != turn:  # nobody waits for this answer any more
                return {"calls": [], "pause_seconds": _PAUSE_SECONDS}
            known.seen_at = time.monotonic()
            calls = list(known.to_take)
            known.to_take.clear()
            for call in calls:
                call.taken = True
                known.taken[call.number] = call
            self._changed.notify_all()
            return {"calls": [call.document for call in calls], "pause_seconds": 0.0}

    def is_away(self, server: str) -> bool:
        """No agent of this server has asked for a time."""
        with self._changed:
            known = self._servers.get(server)
            seen_at = self._begun_at if known is None else known.seen_at
            return time.monotonic() - seen_at >= _AWAY_SECONDS

    def server_showing(self, reservation: str) -> str | None:
        """Whose drivers have something of the reservation, as its agent last said; None: nobody's in the pool."""
        with self._changed:
            names = [name for name, known in self._servers.items() if reservation in known.shown]
        for name in names:
            try:
                self._root_uuid(name)
                return name
            except DisconnectedError:  # it was given up
                with self._changed:
                    self._servers.pop(name, None)
        return None

    def shown(self) -> frozenset[str]:
        """Reservations of which agents' drivers have something, as they last said."""
        with self._changed:
            return frozenset().union(*(known.shown for known in self._servers.values()))

    def ended(self) -> frozenset[str]:
        """Those whose daemons do not run although nodes need them."""
        with self._changed:
            return frozenset().union(*(known.ended for known in self._servers.values()))

    def cgroup_problems(self) -> dict[str, str]:
        """Why what daemons take counts to their agents, by server."""
        with self._changed:
            return {name: known.cgroup_problem for name, known in self._servers.items() if known.cgroup_problem}

    def _known(self, server: str) -> _Server:
        return self._servers.setdefault(server, _Server(self._begun_at))


def _error_of(failure: Mapping[str, Any], server: str) -> ForebayError:
    """What an agent has raised."""
    try:
        if failure["code"] == ErrorCode.DISCONNECTED.value:
            return AgentAwayError(f"server {server}: {failure['what']}", str(failure["where"]))
        return error_of_code(str(failure["code"]), str(failure["what"]), str(failure["where"]))
    except KeyError:
        return ProtocolError(
            f"the agent of server {server} fails in a way that this version does not know; run the same on both", server
        )
