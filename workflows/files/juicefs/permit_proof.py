# SPDX-License-Identifier: Apache-2.0
"""How a node and a gate prove to each other that they know the node's permit, without sending it.

node → gate   HELLO: magic, version, part, what is wanted, the node's number, nonce
gate → node   nonce, proof of the gate: HMAC-SHA256 over role, HELLO and nonce
node → gate   proof of the node, once it has checked the gate's
gate → node   one byte: bytes pass from now on

Both nonces are new each time, so a recorded exchange is of no use. Each side's proof begins with its role, so neither
can be sent back as the other.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
import time
from collections.abc import Callable
from enum import IntEnum

from forebay.errors import DeadlineExceededError, DisconnectedError, PermissionDeniedError, ProtocolError

__all__ = ["PERMIT_BYTES", "Target", "derived", "let_pass", "prove_as_gate", "prove_as_node"]

PERMIT_BYTES = 32
_HELLO = struct.Struct(">4sBHBQ16s")  # magic, version, part, target, number, nonce
_MAGIC = b"FBGT"
_VERSION = 1
_NONCE_BYTES = 16
_GATE, _NODE = b"gate", b"node"
_PASS = b"\1"


class Target(IntEnum):
    """What a node wants to speak to."""

    BLOCKS = 0
    REDIS = 1


def derived(key: bytes, use: str, number: int) -> bytes:
    """A secret of its own for each use and node: who has one learns no other."""
    return hmac.digest(key, f"{use} {number}".encode(), hashlib.sha256)


def prove_as_node(
    connection: socket.socket, part: int, target: Target, number: int, permit: bytes, deadline: float
) -> None:
    """Comes back when the gate lets bytes pass.

    Raises
    ------
    PermissionDeniedError
        This is not the gate, or the gate does not take the permit.
    DisconnectedError, DeadlineExceededError
        The gate does not answer.
    """
    hello = _HELLO.pack(_MAGIC, _VERSION, part, target, number, secrets.token_bytes(_NONCE_BYTES))
    _send(connection, hello, deadline)
    try:
        answer = _received(connection, _NONCE_BYTES + PERMIT_BYTES, deadline)
        nonce, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
        if not hmac.compare_digest(proof, _proof(permit, _GATE, hello, nonce)):
            raise PermissionDeniedError("who listens there does not know this node's permit")
        _send(connection, _proof(permit, _NODE, hello, nonce), deadline)
        if _received(connection, 1, deadline) != _PASS:
            raise ProtocolError("the gate says something else")
    except DisconnectedError:
        raise PermissionDeniedError("the gate does not let this node in") from None


def prove_as_gate(
    connection: socket.socket, part: int, permit_of: Callable[[int], bytes | None], deadline: float
) -> tuple[int, Target]:
    """The number of the node that has proved that it has a permit, and what it wants. It waits for `let_pass`.

    Raises
    ------
    PermissionDeniedError
        It has none. A number that nobody has fails as a wrong proof does.
    ProtocolError, DisconnectedError, DeadlineExceededError
        It says something else, or nothing.
    """
    hello = _received(connection, _HELLO.size, deadline)
    magic, version, wanted, target, number, _ = _HELLO.unpack(hello)
    if (magic, version) != (_MAGIC, _VERSION) or target not in tuple(Target):
        raise ProtocolError("this is no node of this version")
    known = permit_of(number)
    permit = known or secrets.token_bytes(PERMIT_BYTES)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    _send(connection, nonce + _proof(permit, _GATE, hello, nonce), deadline)
    proof = _received(connection, PERMIT_BYTES, deadline)
    if not hmac.compare_digest(proof, _proof(permit, _NODE, hello, nonce)) or known is None:
        raise PermissionDeniedError("this node has no permit", str(number))
    if wanted != part:
        raise ProtocolError("this node looks for another part", str(wanted))
    return number, Target(target)


def let_pass(connection: socket.socket, deadline: float) -> None:
    """Tells a node that has proved its permit that the way is open."""
    _send(connection, _PASS, deadline)


def _proof(permit: bytes, role: bytes, hello: bytes, nonce: bytes) -> bytes:
    return hmac.digest(permit, role + hello + nonce, hashlib.sha256)


def _send(connection: socket.socket, text: bytes, deadline: float) -> None:
    connection.settimeout(_left(deadline))
    try:
        connection.sendall(text)
    except TimeoutError:
        raise DeadlineExceededError("the other side does not take what is sent") from None
    except OSError as error:
        raise DisconnectedError(f"the other side is gone: {error.strerror}") from None


def _received(connection: socket.socket, size: int, deadline: float) -> bytes:
    said = b""
    while len(said) < size:
        connection.settimeout(_left(deadline))
        try:
            piece = connection.recv(size - len(said))
        except TimeoutError:
            raise DeadlineExceededError("the other side does not answer in time") from None
        except OSError as error:
            raise DisconnectedError(f"the other side is gone: {error.strerror}") from None
        if not piece:
            raise DisconnectedError("the other side has ended the connection")
        said += piece
    return said


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineExceededError("the other side does not answer in time")
    return left
