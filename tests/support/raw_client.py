# SPDX-License-Identifier: Apache-2.0
"""Clients of a staging server's socket that keep to no rule: they send what others have sent, again and again."""

from __future__ import annotations

import os
import select
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

from forebay import Admin

__all__ = ["HELLO", "RawClient", "header", "recorded", "recorded_of"]

#: docs/formats/protocol.md: magic, type, descriptors, length of the body, request.
_HEADER = struct.Struct("<4sHHII")
_DEADLINE_S = 60
_DESCRIPTORS_MAX = 64
#: The type of a client's first message.
HELLO = 1


def header(kind: int, body_bytes: int, request: int = 1) -> bytes:
    """The beginning of a message whose body is so long."""
    return _HEADER.pack(b"FBY1", kind, 0, body_bytes, request)


def recorded(server: str, ask: Callable[[Admin], object]) -> list[bytes]:
    """The messages that a client sends which asks that, its hello first."""

    def ask_by(path: str) -> None:
        with Admin(path) as admin:
            ask(admin)

    return recorded_of(server, ask_by)


def recorded_of(server: str, client: Callable[[str], object]) -> list[bytes]:
    """The messages of a client that makes one connection, to the socket that it is given."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder) / "socket"
        listener.bind(str(path))
        listener.listen()
        sent: list[bytes] = []
        relay = threading.Thread(target=_relay, args=(listener, server, sent))
        relay.start()
        client(str(path))
        relay.join(_DEADLINE_S)
    stream = b"".join(sent)
    messages = []
    while stream:
        length = _HEADER.size + _HEADER.unpack_from(stream)[3]
        messages.append(stream[:length])
        stream = stream[length:]
    return messages


def _relay(listener: socket.socket, server: str, sent: list[bytes]) -> None:
    client, _ = listener.accept()
    listener.close()  # another connection is refused, and does not wait for an answer
    with client, socket.socket(socket.AF_UNIX) as upstream:
        upstream.connect(server)
        while True:
            for ready in select.select([client, upstream], [], [], _DEADLINE_S)[0]:
                data, descriptors, _, _ = socket.recv_fds(ready, 1 << 16, _DESCRIPTORS_MAX)
                if not data:
                    return
                if ready is client:
                    sent.append(data)
                socket.send_fds(upstream if ready is client else client, [data], descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)


class RawClient:
    """A connection on which nothing has been said."""

    def __init__(self, server: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(server)
        self._received = b""

    def send(self, data: bytes) -> int:
        """Sends what the server takes before it ends the connection, or takes no more for a while; returns how much."""
        self._socket.settimeout(0.3)
        done = 0
        try:
            while done < len(data):
                done += self._socket.send(data[done:])
        except OSError:
            pass
        return done

    def answers(self, count: int) -> list[int]:
        """Waits for so many answers and returns their requests; fewer if the server ends the connection."""
        self._socket.settimeout(_DEADLINE_S)
        found: list[int] = []
        while len(found) < count:
            while (message := self._take()) is None:
                data = self._socket.recv(1 << 16)
                if not data:
                    return found
                self._received += data
            found.append(message)
        return found

    def answers_so_far(self) -> int:
        """How many more have arrived by now."""
        self._socket.settimeout(0)
        try:
            while data := self._socket.recv(1 << 16):
                self._received += data
        except OSError:
            pass
        count = 0
        while self._take() is not None:
            count += 1
        return count

    def received(self) -> bytes:
        """The next answer, whole."""
        self._socket.settimeout(_DEADLINE_S)
        while (length := self._length()) is None:
            data = self._socket.recv(1 << 16)
            assert data, "the server has ended the connection"
            self._received += data
        answer, self._received = self._received[:length], self._received[length:]
        return answer

    def ended(self) -> bool:
        """The server has ended the connection, or does so within a minute."""
        self._socket.settimeout(_DEADLINE_S)
        try:
            while self._socket.recv(1 << 16):
                pass
        except ConnectionError:
            return True
        return True

    def _length(self) -> int | None:
        """Of the first answer, if it is here as a whole."""
        if len(self._received) < _HEADER.size:
            return None
        length = _HEADER.size + int(_HEADER.unpack_from(self._received)[3])
        return length if len(self._received) >= length else None

    def _take(self) -> int | None:
        length = self._length()
        if length is None:
            return None
        request = int(_HEADER.unpack_from(self._received)[4])
        self._received = self._received[length:]
        return request

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
