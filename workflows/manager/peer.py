# SPDX-License-Identifier: Apache-2.0
"""Identifies who is at the other end of the manager's socket, as the kernel reports it, for every request."""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import socket
import struct
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Depends, Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from forebay.errors import NotFoundError, PermissionDeniedError

__all__ = ["CurrentPeer", "Peer", "PeerProtocol", "check_may_stage"]

_CREDENTIALS = struct.Struct("iII")
_SO_PEERGROUPS = 59  # Linux's; the module socket has no name for it
_GROUPS_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that asks."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int] = frozenset()  #: the others that it is in

    @property
    def is_administrator(self) -> bool:
        """Root and the manager's own user may do everything."""
        return self.uid in (0, os.geteuid())

    def must_own(self, uid: int, what: str) -> None:
        """PermissionDeniedError unless the peer is that user or an administrator."""
        if self.uid != uid and not self.is_administrator:
            raise PermissionDeniedError(f"{what} belongs to user {uid}, and you are user {self.uid}; ask them")


def check_may_stage(peer: Peer) -> None:
    """A stage runs as its user, which only a manager that runs as root can make happen for others."""
    if peer.uid != os.geteuid() and os.geteuid() != 0:
        raise PermissionDeniedError(
            f"the manager runs as user {os.geteuid()} and cannot stage for user {peer.uid}; run the stage yourself: "
            "python -m forebay.workflows.staging"
        )
    try:
        pwd.getpwuid(peer.uid)
    except KeyError:
        raise NotFoundError(f"user {peer.uid} has no account on this machine") from None


class PeerProtocol(H11Protocol):
    """HTTP over a Unix socket that knows its peer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        peer = Peer(*_CREDENTIALS.unpack(credentials))
        self.app_state = {**self.app_state, "peer": replace(peer, groups=_groups(connection, peer))}


def _groups(connection: Any, peer: Peer) -> frozenset[int]:
    """As they were when the connection was made."""
    try:
        numbers = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES_MAX)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        # More than Python reads from the kernel.
        try:
            return frozenset(os.getgrouplist(pwd.getpwuid(peer.uid).pw_name, peer.gid))
        except KeyError:
            return frozenset({peer.gid})
    return frozenset(number for (number,) in struct.iter_unpack("I", numbers)) | {peer.gid}


def _peer(request: Request) -> Peer:
    peer = request.state.peer
    assert isinstance(peer, Peer)
    return peer


CurrentPeer = Annotated[Peer, Depends(_peer)]
