# SPDX-License-Identifier: Apache-2.0
"""Passes bytes between pairs of sockets, in one thread for all of them, and ends the pairs of one owner for good.

A pair has a near side, where the owner is, and a far side, which serves it. When the near side ends, or the owner is
ended, the far side is told so and is listened to until it ends, too: then nobody works for this pair any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import socket
import threading
import time
from dataclasses import dataclass, field

from forebay.errors import DeadlineExceededError

__all__ = ["Relay", "allow_many_connections"]

_PIPE_BYTES = 1 << 20
_PIECE_BYTES = 4096  # what each pipe holds
_SPLICE = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK
#: So many that are not needed now are kept for who does not take all at once.
_SPARE_MAX = 8
_NOT_REGISTERED = -1
_BROKEN = select.EPOLLERR | select.EPOLLHUP


class _Pipe:
    """Bytes on their way from one socket to another: they stay in the kernel, and are not copied."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        with contextlib.suppress(OSError):  # then it holds less
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.count = 0  #: bytes in it

    def take(self, source: socket.socket) -> int:
        """Takes what has come from the socket, into the empty pipe. How much; 0: nothing more comes. BlockingIOError if
        nothing is there.
        """
        self.count = 0
        with contextlib.suppress(BlockingIOError):
            self.count = os.splice(source.fileno(), self._in, _PIPE_BYTES, flags=_SPLICE)
        if not self.count:
            # At a byte that is out of band splice goes on no more, although there is something to read.
            self.count = os.write(self._in, source.recv(_PIECE_BYTES))
        return self.count

    def give(self, target: socket.socket) -> None:
        """Gives the socket what it takes now."""
        with contextlib.suppress(BlockingIOError):
            while self.count and (given := os.splice(self._out, target.fileno(), self.count, flags=_SPLICE)):
                self.count -= given

    def empty(self) -> None:
        """What is in it is lost."""
        while self.count:
            self.count -= len(os.read(self._out, self.count))

    def close(self) -> None:
        """Likewise, and so is the pipe."""
        os.close(self._out)
        os.close(self._in)


@dataclass(eq=False, slots=True)
class _Side:
    socket: socket.socket
    other: _Side | None = None
    owner: int = 0
    is_near: bool = False
    waiting: _Pipe | None = None  #: what this side has not taken yet; while there is some, the other side is not read
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
        self._changed = threading.Condition()  # guards all below
        self._owners: dict[int, _Owner] = {}
        self._sides: dict[int, _Side] = {}
        self._closed: list[socket.socket] = []  # their numbers must mean nothing else while events are served
        self._poll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake, select.EPOLLIN)
        self._pipe = _Pipe()  # empty while nobody is served
        self._spare: list[_Pipe] = []
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
        if events & select.EPOLLOUT and side.waiting is not None:
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
            count = self._pipe.take(side.socket)
        except BlockingIOError:
            return
        except OSError:
            self._is_gone(side)
            return
        if side.other.closed:
            self._pipe.empty()  # nobody wants it
            if not count:
                self._is_gone(side)
            return
        if count:
            self._send(side.other, self._pipe)
            return
        side.ended = True
        self._watch(side)
        self._tell(side.other)

    def _send(self, side: _Side, pipe: _Pipe) -> None:
        """What it does not take now it gets later."""
        assert side.other is not None
        try:
            pipe.give(side.socket)
            if pipe.count and pipe is self._pipe:
                side.waiting, self._pipe = pipe, self._spare.pop() if self._spare else _Pipe()
        except OSError:  # it is gone, or no descriptors are left
            self._pipe.empty()
            self._is_gone(side)
            return
        if not pipe.count and pipe is side.waiting:
            self._drop(side)
        self._watch(side)
        self._watch(side.other)
        if side.other.ended:
            self._tell(side)

    def _drop(self, side: _Side) -> None:
        """What it has not taken, if there is something."""
        if (pipe := side.waiting) is None:
            return
        side.waiting = None
        if len(self._spare) < _SPARE_MAX:
            pipe.empty()
            self._spare.append(pipe)
        else:
            pipe.close()

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
            self._drop(far)
            far.told = True
            with contextlib.suppress(OSError):
                far.socket.shutdown(socket.SHUT_WR)
            self._watch(far)

    def _close(self, side: _Side | None) -> None:
        assert side is not None
        if side.closed:
            return
        side.closed = True
        self._drop(side)
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
    """Each pair takes two descriptors, and two more where a side does not take all at once: as many as the system lets
    this process have.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
