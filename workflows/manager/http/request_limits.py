# SPDX-License-Identifier: Apache-2.0
"""What requests may take: bytes of a body, and places, which go round by user. Around the whole application.

A request has its place before its body is read, and until its answer has been taken; what has none costs no more than
the connection's buffer. Requests of root, of the instance's user and of the scheduler take no place.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay.errors import ErrorCode, ForebayError
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.user_turns import UserTurns
from forebay.workflows.manager.http.peer import asking_peer

__all__ = ["BODY_BYTES_MAX", "RequestLimits", "Turn", "turn_of"]

BODY_BYTES_MAX = 512 << 10
#: Of the scheduler's calls, which carry a script.
_CALL_BYTES_MAX = 5 << 20
_PLACES = 32
_RESERVE = 32
# Long lists are computed in threads, of which one runs at a time: each more makes all others wait longer.
_OF_ONE_MAX = 4


class _TooLargeError(Exception):
    """A body is, and that was answered."""


class Turn:
    """A request's place."""

    def __init__(self, turns: _RequestTurns | None, uid: int) -> None:
        self._turns = turns
        self._uid = uid
        self._number = 0

    async def take(self) -> None:
        """Waits for the request's turn."""
        if self._turns is not None:
            self._number = await self._turns.begin(self._uid)

    def give_back(self) -> None:
        """Lets the next one begin; idempotent."""
        if self._turns is not None and self._number:
            self._turns.end(self._number)
            self._number = 0

    @contextlib.asynccontextmanager
    async def given_back(self) -> AsyncIterator[None]:
        """Meanwhile the request only waits, and others have its place."""
        self.give_back()
        try:
            yield
        finally:
            await self.take()


class RequestLimits:
    """The application behind the limits.

    Parameters
    ----------
    is_nobodys : callable
        Of a user who takes no place, and whose bodies may be as long as a script.
    """

    def __init__(self, application: ASGIApp, is_nobodys: Callable[[Peer], bool]) -> None:
        self._application = application
        self._is_nobodys = is_nobodys
        self._turns = _RequestTurns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        peer, refusal = scope["state"]["peer"], None
        try:
            peer = asking_peer(peer, scope["headers"])
        except ForebayError as error:
            refusal = error
        scope["state"]["peer"] = peer
        nobodys = self._is_nobodys(peer)
        bytes_max = _CALL_BYTES_MAX if nobodys else BODY_BYTES_MAX
        turn = Turn(None if nobodys else self._turns, peer.uid)
        scope["state"]["turn"] = turn
        has_answered = is_refused = False
        taken_bytes = 0

        async def receive_some() -> Message:
            nonlocal taken_bytes, is_refused
            message = await receive()
            taken_bytes += len(message.get("body", b""))
            if taken_bytes > bytes_max:
                if not has_answered:
                    await _refuse_length(send, bytes_max)
                is_refused = True
                raise _TooLargeError
            return message

        async def send_some(message: Message) -> None:
            nonlocal has_answered
            has_answered = True
            if not is_refused:
                await send(message)

        # What is refused takes the loop's time as well.
        await turn.take()
        try:
            if refusal is not None:
                await _refuse(send, 403, refusal.code, refusal.what)
                return
            if _announced_bytes(scope) > bytes_max:
                await _refuse_length(send, bytes_max)
                return
            with contextlib.suppress(_TooLargeError):
                await self._application(scope, receive_some, send_some)
            # It takes memory as long as nobody reads it.
            await scope["state"]["until_taken"]()
        finally:
            turn.give_back()


def turn_of(request: Request) -> Turn:
    """The request's place."""
    turn = request.state.turn
    assert isinstance(turn, Turn)
    return turn


class _RequestTurns:
    """Requests that wait for a place."""

    def __init__(self) -> None:
        self._turns = UserTurns(_PLACES, _RESERVE, of_one_max=_OF_ONE_MAX)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def begin(self, uid: int) -> int:
        """Returns when the request has a place, its number."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._turns.add(uid, number)
        self._fill()
        try:
            await self._waiting[number]
        except asyncio.CancelledError:
            self._turns.remove(uid, number)
            self.end(number)
            raise
        finally:
            del self._waiting[number]
        return number

    def end(self, number: int) -> None:
        """It is through. Its place is free in the loop's next round: else requests that wait for nothing would all be
        answered in this one, of each connection one, and what others ask takes several rounds.
        """
        asyncio.get_running_loop().call_soon(self._free, number)

    def _free(self, number: int) -> None:
        self._turns.end(number)
        self._fill()

    def _fill(self) -> None:
        while (number := self._turns.begin()) is not None:
            waiting = self._waiting[number]
            if not waiting.done():  # else it was given up, and gives the place back soon
                waiting.set_result(None)


def _announced_bytes(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return 0


async def _refuse_length(send: Send, bytes_max: int) -> None:
    what = f"the request has more than {bytes_max >> 10} KiB; send less at once"
    await _refuse(send, 413, ErrorCode.INVALID_ARGUMENT, what)


async def _refuse(send: Send, status: int, code: ErrorCode, what: str) -> None:
    body = json.dumps({"error": {"code": code, "what": what, "where": ""}}).encode()
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})
