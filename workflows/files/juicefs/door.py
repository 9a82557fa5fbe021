# SPDX-License-Identifier: Apache-2.0
"""Listens at addresses, and lets a bounded number of threads greet who comes. Gate and forwarder are made of it."""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

from forebay.errors import ForebayError
from forebay.workflows.files.reserved_ports import connect_from_reserved, serve_reserved_alone

__all__ = ["GREETING_SECONDS_MAX", "connected", "listen_for_ever", "listener", "lively"]

#: How long the proof of a permit may take.
GREETING_SECONDS_MAX = 10.0
_THREADS = 32
_GREETED_MAX = 512
_BACKLOG = 1024
#: When a peer that takes nothing, or does not answer, counts as gone.
_DEAD_MILLISECONDS = 60_000
_PROBE_SECONDS = 15


def listener(address: str, port: int, *, reserved_alone: bool = False) -> socket.socket:
    """Listens there, also where connections of a listener before it are not forgotten yet. `reserved_alone`: to root of
    other nodes, by ports that ordinary users cannot have.
    """
    family = socket.AF_INET6 if ip_address(address).version == 6 else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        if reserved_alone:
            serve_reserved_alone(made)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def connected(address: str, port: int, seconds_max: float) -> socket.socket:
    """A connection to a gate."""
    made = connect_from_reserved(address, port, seconds_max)
    lively(made)
    return made


def lively(connection: socket.socket) -> None:
    """Small messages go at once, and a peer that has vanished is noticed."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_MILLISECONDS)


def listen_for_ever(
    greeters: Mapping[socket.socket, Callable[[socket.socket], None]],
    is_wanted: Callable[[socket.socket], bool] = lambda connection: True,
) -> None:
    """Gives each listener's connections to its function, in one of several threads; the function keeps them. What fails
    is closed.

    Who is not wanted, or comes while too many are being greeted, is sent away. The former take no place of others.
    """
    places = threading.BoundedSemaphore(_GREETED_MAX)
    poll = select.poll()
    by_number = {}
    for each in greeters:
        each.setblocking(False)
        by_number[each.fileno()] = each
        poll.register(each, select.POLLIN)

    def greet(place: socket.socket, connection: socket.socket) -> None:
        try:
            greeters[place](connection)
        except (ForebayError, OSError) as error:
            connection.close()
            print(error, file=sys.stderr, flush=True)
        finally:
            places.release()

    with ThreadPoolExecutor(_THREADS) as threads:
        while True:
            for number, _ in poll.poll():
                with contextlib.suppress(OSError):
                    connection, _ = by_number[number].accept()
                    if not is_wanted(connection) or not places.acquire(blocking=False):
                        connection.close()
                        continue
                    threads.submit(greet, by_number[number], connection)
