# SPDX-License-Identifier: Apache-2.0
"""Whose process is at the other end of a connection by the loopback network, as the kernel says."""

from __future__ import annotations

import os
import socket
import struct

from forebay.errors import UnsupportedError

__all__ = ["check_told", "is_from_us"]

_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST = 1
_HEAD = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PLACE = struct.Struct(">HH16s16s")  # both ports and addresses, of what is asked about
_ANY = struct.pack("=I", 0) + b"\xff" * 8  # whatever interface and cookie
_UID_AT = _HEAD.size + 4 + _PLACE.size + len(_ANY) + 12
_ESTABLISHED = 1


def is_from_us(connection: socket.socket) -> bool:
    """Its other end is a socket of this process's user, which somebody has open. False also where that end is gone, or
    the kernel cannot say it.
    """
    try:
        (near, near_port), (far, far_port) = connection.getsockname(), connection.getpeername()
    except OSError:
        return False  # it has ended
    place = _PLACE.pack(far_port, near_port, socket.inet_aton(far), socket.inet_aton(near))
    body = _ASKED.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + place + _ANY
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.send(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        answer = kernel.recv(8192)
    if _HEAD.unpack_from(answer)[1] != _BY_FAMILY:
        return False  # there is no such socket any more, or the kernel has no module `tcp_diag`
    state = answer[_HEAD.size + 1]
    uid, inode = struct.unpack_from("=II", answer, _UID_AT)
    # A socket that its program has closed has no inode, and is said to be root's.
    return state == _ESTABLISHED and inode != 0 and uid == os.geteuid()


def check_told() -> None:
    """UnsupportedError if the kernel does not say it of our own connections either."""
    with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()):
        connection, _ = door.accept()
        with connection:
            if not is_from_us(connection):
                raise UnsupportedError("this kernel does not tell whose a connection is; load the module tcp_diag")
