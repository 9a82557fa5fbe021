# SPDX-License-Identifier: Apache-2.0
"""Speaks to the Redis of a reservation at its socket; a few commands need no library."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from forebay.errors import DeadlineExceededError, DisconnectedError, StorageError

__all__ = ["RedisClient"]

_PIECE_BYTES = 1 << 16


class RedisClient:
    """A connection. A context manager: it ends with it.

    Raises
    ------
    DisconnectedError, DeadlineExceededError
        Redis does not answer, also by each call.
    """

    def __init__(self, path: Path, user: str, password: str, deadline: float) -> None:
        self._deadline = deadline
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._read = b""
        try:
            self._set_timeout()
            self._socket.connect(str(path))
            self.call("AUTH", user, password)
        except OSError as error:
            self._socket.close()
            raise DisconnectedError(f"Redis does not answer: {error.strerror}", str(path)) from None
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def call(self, *words: str | bytes) -> Any:
        """Says it, and what Redis answers: bytes, a number, None or a list of these.

        Raises
        ------
        StorageError
            Redis refuses it.
        """
        text = [b"*%d\r\n" % len(words)]
        for word in words:
            plain = word.encode() if isinstance(word, str) else word
            text.append(b"$%d\r\n%s\r\n" % (len(plain), plain))
        try:
            self._set_timeout()
            self._socket.sendall(b"".join(text))
            return self._answer()
        except TimeoutError:
            raise DeadlineExceededError("Redis does not answer in time") from None
        except OSError as error:
            raise DisconnectedError(f"Redis does not answer: {error.strerror}") from None

    def _answer(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            # Never what was said: it may be a password.
            raise StorageError(f"Redis refuses it: {rest.decode(errors='replace')[:100]}")
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._bytes(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._answer() for _ in range(int(rest))]
        raise DisconnectedError("this is no Redis")

    def _line(self) -> bytes:
        while b"\r\n" not in self._read:
            self._fill()
        line, _, self._read = self._read.partition(b"\r\n")
        return line

    def _bytes(self, count: int) -> bytes:
        while len(self._read) < count:
            self._fill()
        found, self._read = self._read[:count], self._read[count:]
        return found

    def _fill(self) -> None:
        self._set_timeout()
        piece = self._socket.recv(_PIECE_BYTES)
        if not piece:
            raise DisconnectedError("Redis has ended the connection")
        self._read += piece

    def _set_timeout(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError("Redis does not answer in time")
        self._socket.settimeout(left)
