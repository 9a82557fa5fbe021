# SPDX-License-Identifier: Apache-2.0
"""Of connections to a port of this machine, those of this user and of root: programs of others get none, however many
they ask for, and so take no descriptor that a page would need.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

__all__ = ["keep_own"]

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ANY = 0xFFFFFFFF  # state; cookie
# linux/netlink.h: length, type, flags, sequence, port.
_HEADER = struct.Struct("=IHHII")
# linux/inet_diag.h: family, protocol, extensions, pad, states.
_REQUEST = struct.Struct("=BBBBI")
# Ports and addresses of both ends, in the network's order; interface, cookie.
_ENDS = struct.Struct(">HH4s12x4s12x")
_SOCKET = struct.Struct("=III")
_USER_OFFSET = _HEADER.size + 64  # of inet_diag_msg.idiag_uid
_USER = struct.Struct("=I")


def keep_own(server: Any) -> None:
    """From now on, what others connect to this server of aiohttp's is ended at once, where the kernel tells users."""
    # Open from the start: strangers may take all descriptors for a moment.
    kernel = _asked_kernel()
    if kernel is None:
        return
    let_in = server.connection_made
    own = {os.geteuid(), 0}

    def connection_made(handler: Any, transport: asyncio.Transport) -> None:
        let_in(handler, transport)
        user = _peer_user(kernel, transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
        if user not in own:
            # Not before aiohttp has begun with it.
            asyncio.get_running_loop().call_soon(transport.abort)

    server.connection_made = connection_made


def _asked_kernel() -> socket.socket | None:
    """Where the kernel is asked; None if it does not even tell whose a connection of this process is."""
    try:
        kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
        kernel.settimeout(1)
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            client.connect(listener.getsockname())
            tells = _peer_user(kernel, client.getsockname(), listener.getsockname()) == os.geteuid()
    except OSError:
        return None
    return kernel if tells else None


def _peer_user(kernel: socket.socket, peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """Whose the other end of a connection within this machine is; None if it is gone."""
    ends = _ENDS.pack(peer[1], here[1], socket.inet_aton(peer[0]), socket.inet_aton(here[0]))
    request = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY) + ends + _SOCKET.pack(0, _ANY, _ANY)
    header = _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
    kernel.send(header + request)
    answer = kernel.recv(4096)
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    user: int = _USER.unpack_from(answer, _USER_OFFSET)[0]
    return user
