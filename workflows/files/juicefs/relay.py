# SPDX-License-Identifier: Apache-2.0
"""Passes bytes between pairs of sockets, in one thread for all of them, and ends the pairs of one owner for good.

A pair has a near side, where the owner is, and a far side, which serves it. When the near side ends, or the owner is
ended, the far side is told so and is listened to until it ends, too: then nobody works for this pair any more.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import threading
import time
from dataclasses import dataclass, field

from forebay.errors import DeadlineExceededError

__all__ = ["Relay", "allow_many_connections"]

_BUFFER_BYTES = 256 << 10
_NOT_REGISTERED = -1
_BROKEN = select.EPOLLERR | select.EPOLLHUP


@dataclass(eq=False, slots=True)
class _Side:
    socket: socket.socket
    other: _Side | None = None
    owner: int = 0
    is_near: bool = False
    waiting: bytes = b""  #: what this side has not taken yet; while there is some, the other side is not read
    ended: bool = False  #: nothing more comes from it
    told: bool = False  #: it knows that nothing more comes
    closed: bool = False
    mask: int = _NOT_REGISTERED  #: what epoll looks for


@dataclass(eq=False, slots=True)
class _Owner:
    pairs: set[_Side] = field(default_factory=set)  #: far sides
    ended: bool = False


class Relay:
    """Usable from several threads; its own one starts at once."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all below but the buffer, which is the thread's
        self._owners: dict[int, _Owner] = {}
        self._sides: dict[int, _Side] = {}
        self._closed: list[socket.socket] = []  # their numbers must mean nothing else while events are served
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.EPOLLIN)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        threading.Thread(target=self._run, daemon=True, name="relay").start()

    def add(self, near: socket.socket, far: socket.socket, owner: int) -> bool:
        """Bytes pass from now on, and the sockets are the relay's. False if the owner was ended: they are closed."""
        for each in (near, far):
            each.setblocking(False)
        with self._changed:
            entry = self._owners.setdefault(owner, _Owner())
            if entry.ended:
                near.close()
                far.close()
                return False
            left, right = _Side(near, owner=owner, is_near=True), _Side(far, owner=owner)
            left.other, right.other = right, left
            entry.pairs.add(right)
            for side in (left, right):
                self._sides[side.socket.fileno()] = side
                self._watch(side)
        return True

    def count(self, owner: int) -> int:
        """How many pairs it has."""
        with self._changed:
            entry = self._owners.get(owner)
            return len(entry.pairs) if entry else 0

    def end(self, owner: int, deadline: float) -> None:
        """Ends its pairs, and adds none any more; comes back when no far side works for it.

        Raises
        ------
        DeadlineExceededError
            One still does. Asked again, it goes on.
        """
        with self._changed:
            entry = self._owners.setdefault(owner, _Owner())
            entry.ended = True
            for far in list(entry.pairs):
                assert far.other is not None
                self._near_is_gone(far.other)
            if not self._changed.wait_for(lambda: not entry.pairs, max(0.0, deadline - time.monotonic())):
                raise DeadlineExceededError("requests of this node are still under way", str(owner))

    def _run(self) -> None:
        while True:
            for number, events in self._poll.poll():
                if number == self._wake:
                    os.eventfd_read(self._wake)
                    continue
                with self._changed:
                    side = self._sides.get(number)
                    if side is not None:
                        self._serve(side, events)
            with self._changed:
                for each in self._closed:
                    each.close()
                self._closed.clear()

    def _serve(self, side: _Side, events: int) -> None:
        assert side.other is not None
        if events & select.EPOLLOUT:
            self._send(side, side.waiting)
        if events & (select.EPOLLIN | _BROKEN) and not side.closed and not side.ended and not side.other.waiting:
            self._receive(side)
        elif events & _BROKEN and not side.closed:
            if side.is_near or side.ended:
                self._is_gone(side)
            else:
                # It has ended, and the near side has still to take what it has said.
                self._poll.unregister(side.socket)
                side.mask = _NOT_REGISTERED

    def _receive(self, side: _Side) -> None:
        assert side.other is not None
        try:
            count = side.socket.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError:
            self._is_gone(side)
            return
        if side.other.closed:
            if not count:
                self._is_gone(side)
            return  # nobody wants it
        if count:
            self._send(side.other, self._buffer[:count])
            return
        side.ended = True
        self._watch(side)
        self._tell(side.other)

    def _send(self, side: _Side, text: bytes | memoryview) -> None:
        """What it does not take now it gets later."""
        assert side.other is not None
        try:
            sent = side.socket.send(text)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._is_gone(side)
            return
        side.waiting = bytes(text[sent:])
        self._watch(side)
        self._watch(side.other)
        if side.other.ended:
            self._tell(side)

    def _tell(self, side: _Side) -> None:
        """That nothing more comes, once it has all. A near side needs no more than that: the pair is over."""
        if side.waiting or side.told:
            return
        side.told = True
        if side.is_near:
            self._is_gone(side.other)
            return
        with contextlib.suppress(OSError):
            side.socket.shutdown(socket.SHUT_WR)

    def _is_gone(self, side: _Side | None) -> None:
        assert side is not None
        if side.is_near:
            self._near_is_gone(side)
            return
        if side.closed:
            return
        # The far side has ended: nobody works for the pair.
        self._close(side)
        self._close(side.other)
        entry = self._owners[side.owner]
        entry.pairs.discard(side)
        if not entry.pairs:
            if not entry.ended:
                del self._owners[side.owner]
            self._changed.notify_all()

    def _near_is_gone(self, side: _Side) -> None:
        far = side.other
        assert far is not None
        self._close(side)
        if not far.closed:
            far.waiting = b""
            far.told = True
            with contextlib.suppress(OSError):
                far.socket.shutdown(socket.SHUT_WR)
            self._watch(far)

    def _close(self, side: _Side | None) -> None:
        assert side is not None
        if side.closed:
            return
        side.closed = True
        side.waiting = b""
        if side.mask != _NOT_REGISTERED:
            self._poll.unregister(side.socket)
        del self._sides[side.socket.fileno()]
        with contextlib.suppress(OSError):
            side.socket.shutdown(socket.SHUT_RDWR)
        self._closed.append(side.socket)
        os.eventfd_write(self._wake, 1)

    def _watch(self, side: _Side) -> None:
        """Looks for what can be done with it now."""
        assert side.other is not None
        if side.closed:
            return
        reads = not side.ended and not side.other.waiting
        mask = (select.EPOLLIN if reads else 0) | (select.EPOLLOUT if side.waiting else 0)
        if side.mask == _NOT_REGISTERED:
            self._poll.register(side.socket, mask)
        elif mask != side.mask:
            self._poll.modify(side.socket, mask)
        side.mask = mask


def allow_many_connections() -> None:
    """Each pair takes two descriptors: as many as the system lets this process have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
