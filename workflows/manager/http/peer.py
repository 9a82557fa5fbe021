# SPDX-License-Identifier: Apache-2.0
"""Identifies who is at the other end of the manager's socket, as the kernel reports it, for every request."""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import re
import socket
import struct
from collections.abc import Iterable
from typing import Annotated, Any

import h11
from fastapi import Depends, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from forebay.errors import InvalidArgumentError
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.http.connection_shares import ConnectionShares

__all__ = ["REQUEST_SECONDS_MAX", "CurrentPeer", "PeerProtocol", "asking_peer"]

_CREDENTIALS = struct.Struct("iII")
_SO_PEERGROUPS = 59  # Linux's; the module socket has no name for it
_GROUPS_BYTES_MAX = 1024
_HEAD_BYTES_MAX = 64 << 10  # of a request
_HEAD_LINES_MAX = 100
#: How long a whole request, or the next one on the same connection, may take to come.
REQUEST_SECONDS_MAX = 30.0
#: How long a connection stays, unread, on which something came that is no request.
_REFUSED_SECONDS = 1.0
_TOO_MANY_BODY = (
    b'{"error": {"code": "busy", "what": "you have too many connections to the manager; close some, then try again", '
    b'"where": ""}}'
)
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_TOO_MANY_BODY), _TOO_MANY_BODY)
)


def asking_peer(peer: Peer, headers: Iterable[tuple[bytes, bytes]]) -> Peer:
    """For whom the peer asks: itself, or the user that the server names, to which somebody of another node has come.

    Raises
    ------
    PermissionDeniedError
        It is no administrator: nobody else asks in another's name.
    InvalidArgumentError
        The header is none of the server's.
    """
    named = [value for name, value in headers if name == b"forebay-for"]
    if not named:
        return peer
    peer.must_be_administrator("only the server asks in another user's name")
    match = re.fullmatch(rb"([0-9]{1,10}) ([0-9]{1,10})(?: ([0-9,]*))?", named[0]) if len(named) == 1 else None
    if match is None:
        raise InvalidArgumentError("the server does not say for whom it asks")
    groups = frozenset(int(number) for number in (match[3] or b"").split(b",") if number)
    return Peer(int(match[1]), int(match[2]), groups | {int(match[2])})


class _ShortRequests(h11.Connection):
    """Refuses what no client of ours sends, and what would keep the loop, and with it everybody: bodies in chunks, for
    one of 60 000 chunks of a byte takes more than a second; and heads of many lines, of which each takes microseconds,
    before anybody knows whose turn it is.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        if self.their_state is h11.IDLE:
            head, _ = self.trailing_data
            if head[:_HEAD_BYTES_MAX].partition(b"\r\n\r\n")[0].count(b"\n") > _HEAD_LINES_MAX:
                raise h11.RemoteProtocolError(f"a request has at most {_HEAD_LINES_MAX} headers")
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"transfer-encoding" for name, _ in event.headers):
            raise h11.RemoteProtocolError("a body has to have a content-length")
        return event


class PeerProtocol(H11Protocol):
    """HTTP over a Unix socket that knows its peer. Connections are shared out between users, and one on which no whole
    request comes for a time is cut.
    """

    shares = ConnectionShares()  #: of the process

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = _ShortRequests(h11.SERVER, _HEAD_BYTES_MAX)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _pid, uid, gid = _CREDENTIALS.unpack(credentials)
        peer = Peer(uid, gid, _groups(connection, uid, gid))
        self.app_state = {**self.app_state, "peer": peer, "until_taken": self._until_taken}
        self._uid = peer.uid
        self._cut_timer: asyncio.TimerHandle | None = None
        self._expect_request()
        if not peer.is_administrator and not self.shares.enter(peer.uid, self):
            transport.write(_TOO_MANY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.shares.leave(self._uid, self)
        self._expect_no_request()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._expect_no_request()
        elif self.conn.their_state is h11.SEND_BODY:
            self._expect_request()

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        if answered is self.cycle and self.conn.their_state is h11.SEND_BODY:
            # It was answered before it was whole, and would have to be read to its end.
            self.transport.close()
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            return
        self._expect_no_request()
        self._expect_request()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request. To take a connection costs more than to refuse what comes on it, so who has as
        many as one may comes again a second later.
        """
        self._expect_no_request()
        self.flow.pause_reading()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        refusal = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (refusal, h11.Data(data=msg.encode("ascii")), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.loop.call_later(_REFUSED_SECONDS, self.transport.close)

    @property
    def is_idle(self) -> bool:
        """No request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def cut(self) -> None:
        """Ends the connection at once."""
        self.transport.abort()

    async def _until_taken(self) -> None:
        """Returns when nearly nothing of an answer waits here to be read. Who does not read is cut after a time."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                await self.flow.drain()
        except TimeoutError:
            self.cut()

    def _expect_request(self) -> None:
        """From the first byte on, the time for a whole request runs."""
        if self._cut_timer is None:
            self._cut_timer = self.loop.call_later(REQUEST_SECONDS_MAX, self.cut)

    def _expect_no_request(self) -> None:
        if self._cut_timer is not None:
            self._cut_timer.cancel()
            self._cut_timer = None


def _groups(connection: Any, uid: int, gid: int) -> frozenset[int]:
    """As they were when the connection was made."""
    try:
        numbers = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES_MAX)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        # More than Python reads from the kernel.
        try:
            return frozenset(os.getgrouplist(pwd.getpwuid(uid).pw_name, gid))
        except KeyError:
            return frozenset({gid})
    return frozenset(number for (number,) in struct.iter_unpack("I", numbers)) | {gid}


def _peer(request: Request) -> Peer:
    peer = request.state.peer
    assert isinstance(peer, Peer)
    return peer


CurrentPeer = Annotated[Peer, Depends(_peer)]
