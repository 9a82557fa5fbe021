# SPDX-License-Identifier: Apache-2.0
"""Doors that only root of a node can knock at: they take connections from ports below 1024 alone, which ordinary users
cannot have.

The kernel drops the others' first packet, by a filter on the listening socket. So nobody crowds at the door, or fills
its log, however many connections a user makes: who serves the door never hears of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from ipaddress import ip_address

from forebay.errors import StorageError, UnsupportedError

__all__ = ["connect_from_reserved", "serve_reserved_alone", "serve_reserved_alone_by"]

_RESERVED = 1024
#: As bindresvport(3) has them: below lie the ports of well-known services.
_OWN = range(600, _RESERVED)
_SO_ATTACH_FILTER = 26
_GETFD_CALL = 438  # pidfd_getfd, the same on all machines
_POLL_SECONDS = 0.02
#: Takes a packet whose source port, with which the header of TCP begins, is below 1024; else drops it.
_FILTER = (
    (0x28, 0, 0, 0),  # load the half word at 0
    (0x35, 1, 0, _RESERVED),  # 1024 or more: skip the next
    (0x06, 0, 0, 0xFFFFFFFF),  # take it
    (0x06, 0, 0, 0),  # drop it
)


def serve_reserved_alone(listening: socket.socket) -> None:
    """From now on nobody reaches this TCP socket, or what it accepts, from ports of 1024 and more."""
    text = b"".join(struct.pack("=HBBI", *instruction) for instruction in _FILTER)
    kept = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("@HP", len(_FILTER), ctypes.addressof(kept))
    listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def serve_reserved_alone_by(pid: int, deadline: float) -> None:
    """The same for all that another process listens at by TCP; who had come before from another port is sent away.

    Raises
    ------
    UnsupportedError
        The kernel does not let root take another process's sockets.
    StorageError
        It is not done at the deadline.
    """
    while True:
        was_anybody = False
        for each in _sockets_of(pid):
            with each:
                if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    serve_reserved_alone(each)
                elif _is_from_elsewhere(each):
                    was_anybody = True
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
        if not was_anybody:
            return
        if time.monotonic() > deadline:
            raise StorageError("connections of ordinary users cannot be ended in time", str(pid))
        time.sleep(_POLL_SECONDS)


def connect_from_reserved(address: str, port: int, seconds_max: float) -> socket.socket:
    """A connection to such a door; only root can make one. OSError if nobody listens, or all ports are in use."""
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
    failure = OSError(errno.EADDRINUSE, "all ports below 1024 are in use")
    for own in random.sample(_OWN, len(_OWN)):
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            # Connections to other doors may have the same one.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(("", own))
            made.settimeout(seconds_max)
            made.connect((address, port))
            return made
        except OSError as error:
            made.close()
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                raise
    raise failure


def _sockets_of(pid: int) -> Iterator[socket.socket]:
    """What this process has of TCP."""
    process = os.pidfd_open(pid)
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                if not os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                    continue
                taken = socket.socket(fileno=_taken(process, int(name)))
            except FileNotFoundError:
                continue  # it was closed just now
            if taken.family in (socket.AF_INET, socket.AF_INET6) and taken.type == socket.SOCK_STREAM:
                yield taken
            else:
                taken.close()
    finally:
        os.close(process)


def _taken(process: int, number: int) -> int:
    """Another process's descriptor as one of ours."""
    taken: int = ctypes.CDLL(None, use_errno=True).syscall(_GETFD_CALL, process, number, 0)
    if taken >= 0:
        return taken
    error = ctypes.get_errno()
    if error == errno.EBADF:
        raise FileNotFoundError(error, os.strerror(error))
    raise UnsupportedError(
        f"the NFS server's sockets cannot be taken: {os.strerror(error)}; it needs Linux 5.6, and a container needs "
        "the capability SYS_PTRACE"
    )


def _is_from_elsewhere(connected: socket.socket) -> bool:
    try:
        return bool(connected.getpeername()[1] >= _RESERVED)
    except OSError:
        return False  # it has ended, or is connected to nobody
