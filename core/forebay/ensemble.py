# SPDX-License-Identifier: Apache-2.0
"""Follows all streams of a reservation whose names match a pattern, as one; new streams join while it runs.

Each stream that is followed has a connection and a thread of its own, because a connection of the protocol serves one
reader. One more connection lists the streams.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Self

from forebay import options
from forebay.admin import Admin
from forebay.closing import Closing
from forebay.errors import ForebayError, InvalidArgumentError, NotFoundError, StepTimeoutError, StreamInterruptedError
from forebay.follower import Acknowledge, Follower, StartText
from forebay.instance import InstanceLike, instance_of, instance_path, server_place
from forebay.records import Address, Notice, StreamInfo, StreamStatus
from forebay.step import Step
from forebay.stream import Stream, Verify, Watermark

__all__ = ["EnsembleFollower", "StreamPattern", "follow_all"]

_SECONDS_BETWEEN_LISTS = 0.5
_LOST_SHOWN_MAX = 3
_COME_BACK = (StreamStatus.LIVE, StreamStatus.ENDED)
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class StreamPattern:
    """``RES/PATTERN``: streams of one reservation. In the pattern ``*``, ``?`` and ``[...]`` stand for characters."""

    reservation: str
    pattern: str
    server: str = ""  #: as in :class:`Address`

    @staticmethod
    def is_one(text: str) -> bool:
        """Whether the text has wildcards: no name of a stream has them."""
        return not _WILDCARDS.isdisjoint(text)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Takes what :meth:`Address.parse` takes, with wildcards in the stream's name; InvalidArgumentError."""
        head, slash, pattern = options.text("pattern", text, "'RES/PATTERN'").rpartition("/")
        if not slash or cls.is_one(head) or "@" in pattern or not pattern:
            raise InvalidArgumentError(
                f"{text!r} is no pattern of streams: write RES/PATTERN, for example run1/member-*; wildcards stand in "
                "the stream's name only"
            )
        place = Address.parse(f"{head}/x")
        return cls(place.reservation, pattern, place.server)

    def matches(self, info: StreamInfo) -> bool:
        return fnmatchcase(info.name, self.pattern)

    def __str__(self) -> str:
        return f"{self.reservation}/{self.pattern}"


@dataclass(eq=False)
class _Member:
    """A stream that is followed. Its thread gives a step, and waits until another one is asked for."""

    info: StreamInfo
    follower: Follower
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(1))
    done: bool = False  #: the loop has done its last step, which may not be acknowledged yet
    acknowledging: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge_done(self) -> None:
        """Acknowledges the step that is done; whoever comes first does it, its thread or the end."""
        with self.acknowledging:
            if self.done:
                self.done = False
                self.follower._acknowledge_previous()


class EnsembleFollower(Closing, Iterator[Step]):
    """Iterator over the steps of many streams as they commit; made by :func:`forebay.follow_all`. A context manager.

    ``async for step in follower`` waits without keeping the event loop busy. ``step.address`` says whose step it is.
    Steps of one stream come in order. A stream that is faster than the others does not keep theirs waiting: while
    several have a step, they take turns. ``next()`` belongs to one thread at a time.

    Raises
    ------
    StepTimeoutError
        No step of any stream came within ``timeout``. The follower stays usable.
    StreamInterruptedError, StreamFailedError
        Streams were lost. The steps of all the others come first; a stream that is written again meanwhile joins again.
    """

    def __init__(
        self,
        pattern: StreamPattern,
        instance: InstanceLike | None,
        follow: Callable[[Stream], Follower],
        *,
        reader_options: dict[str, object],
        timeout_ms: int,
        members: int | None,
        on_notice: Callable[[Address, Notice], object] | None,
    ) -> None:
        self._pattern = pattern
        self._instance = instance
        self._follow = follow
        self._reader_options = reader_options
        self._timeout_ms = timeout_ms
        self._members_wanted = members
        self._on_notice = on_notice
        self._changed = threading.Condition()
        # Guarded by _changed.
        self._arrived: deque[tuple[_Member, Step | Notice]] = deque()
        self._live: dict[str, _Member] = {}  # by the stream's uuid
        self._joined: dict[str, Address] = {}
        self._lost: dict[str, ForebayError] = {}
        self._in_hand: _Member | None = None
        self._listed_ns = self._ended_ns = 0
        self._failure: BaseException | None = None
        self._wake: Callable[[], object] = lambda: None
        self._closed = False
        self._server = server_place(instance)
        self._admin = Admin(instance)
        try:
            self._join_new()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._look, name="forebay-ensemble", daemon=True).start()

    @property
    def addresses(self) -> list[Address]:
        """The streams that have joined so far, in order of joining."""
        with self._changed:
            return list(self._joined.values())

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._closed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Step:
        deadline = self._deadline()
        self._ask_for_another()
        while True:
            with self._changed:
                while (item := self._take()) is None:
                    self._changed.wait(self._left(deadline))
            if (step := self._step_of(item)) is not None:
                return step

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Step:
        deadline = self._deadline()
        self._ask_for_another()
        loop = asyncio.get_running_loop()
        while True:
            come = asyncio.Event()
            try:
                with self._changed:
                    item = self._take()
                    if item is None:
                        self._wake = lambda come=come: loop.call_soon_threadsafe(come.set)  # type: ignore[misc]
            except StopIteration:
                raise StopAsyncIteration from None
            if item is None:
                try:
                    await asyncio.wait_for(come.wait(), self._left(deadline))
                except TimeoutError:
                    pass  # _left() says so at the next turn, unless something has come meanwhile.
                finally:
                    with self._changed:
                        self._wake = lambda: None
                continue
            if (step := self._step_of(item)) is not None:
                return step

    def close(self) -> None:
        """Ends following; consumers' cursors are let go. The step in hand is not acknowledged. Idempotent."""
        with self._changed:
            self._closed = True
            members = list(self._live.values())
            self._arrived.clear()
            self._in_hand = None
            self._changed.notify_all()
            self._wake()
        for member in members:
            # What the loop has done is not given again. If that fails it is: steps may come twice.
            with suppress(ForebayError):
                member.acknowledge_done()
            member.follower.close()
            member.asked.release()
        self._admin.close()

    def _deadline(self) -> float | None:
        return None if self._timeout_ms < 0 else time.monotonic() + self._timeout_ms / 1000

    def _left(self, deadline: float | None) -> float | None:
        if deadline is None:
            return None
        left = deadline - time.monotonic()
        if left <= 0:
            what = f"of {len(self._live)} streams" if self._live else "(no stream that is written matches)"
            raise StepTimeoutError(
                f"no step came within {self._timeout_ms / 1000:g} s {what}; ask again, or give a longer timeout",
                f"streams {self._pattern}",
            )
        return left

    def _ask_for_another(self) -> None:
        """The step in hand is done: its stream's follower acknowledges it, and waits for the next one."""
        with self._changed:
            member, self._in_hand = self._in_hand, None
        if member is not None:
            member.done = True
            member.asked.release()

    def _take(self) -> tuple[_Member, Step | Notice] | None:
        """What has come; None: nothing yet. StopIteration, or what ended it, when nothing more can come."""
        if self._closed:
            raise StopIteration
        if self._arrived:
            item = self._arrived.popleft()
            if isinstance(item[1], Step):
                self._in_hand = item[0]
            return item
        if self._failure is not None:
            raise self._failure
        if self._live or not self._joined:
            return None
        # A list that was made after the last one ended has brought no other, and none that is back.
        if self._listed_ns <= self._ended_ns or len(self._joined) < (self._members_wanted or 1):
            return None
        if self._lost:
            raise self._loss()
        raise StopIteration

    def _loss(self) -> ForebayError:
        named = [f"{self._joined[uuid]}: {error.what}" for uuid, error in list(self._lost.items())[:_LOST_SHOWN_MAX]]
        more = len(self._lost) - len(named)
        text = "; ".join(named) + (f"; and {more} more streams" if more else "")
        return type(next(iter(self._lost.values())))(text, f"streams {self._pattern}")

    def _step_of(self, item: tuple[_Member, Step | Notice]) -> Step | None:
        member, what = item
        if isinstance(what, Step):
            return what
        if self._on_notice is not None:
            self._on_notice(member.follower.stream.address, what)
        return None

    def _look(self) -> None:
        """Lists the streams again and again; a thread of its own."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, _SECONDS_BETWEEN_LISTS):
                    return
            try:
                self._join_new()
            except BaseException as failure:
                with self._changed:
                    if not self._closed:
                        self._failure = failure
                        self._notify()
                return

    def _join_new(self) -> None:
        began_ns = time.monotonic_ns()
        for info in self._admin.streams(self._pattern.reservation):
            if not self._pattern.matches(info):
                continue
            with self._changed:
                known = info.uuid in self._joined
                returns = isinstance(self._lost.get(info.uuid), StreamInterruptedError) and info.status in _COME_BACK
            if known and not returns:
                continue
            address = Address(self._pattern.reservation, info.name, None, self._pattern.server)
            stream = Stream(address, self._reader_options, self._server, instance_path(self._instance), None)
            try:
                follower = self._follow(stream)
            except NotFoundError:
                continue  # removed since it was listed
            member = _Member(info, follower)
            with self._changed:
                if self._closed:
                    follower.close()
                    return
                self._lost.pop(info.uuid, None)
                self._joined[info.uuid] = address
                self._live[info.uuid] = member
            threading.Thread(target=self._feed, args=(member,), name=f"forebay-{address}", daemon=True).start()
        with self._changed:
            self._listed_ns = began_ns
            self._notify()

    def _feed(self, member: _Member) -> None:
        """Waits for one step after another of a stream; its thread."""
        lost: ForebayError | None = None
        failure: BaseException | None = None
        try:
            while True:
                member.asked.acquire()
                member.acknowledge_done()
                step = member.follower._next(lambda notice: self._arrive(member, notice))
                self._arrive(member, step)
        except StopIteration:
            pass
        except ForebayError as error:
            lost = error
        except BaseException as error:
            failure = error
        member.follower.close()
        with self._changed:
            self._live.pop(member.info.uuid, None)
            if lost is not None:
                self._lost[member.info.uuid] = lost
            self._failure = self._failure or failure
            self._ended_ns = time.monotonic_ns()
            self._notify()

    def _arrive(self, member: _Member, what: Step | Notice) -> None:
        with self._changed:
            if not self._closed:
                self._arrived.append((member, what))
                self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        self._wake()

    def __repr__(self) -> str:
        return f"<EnsembleFollower of {self._pattern}: {len(self._live)} of {len(self._joined)} streams live>"


@options.known_options
def follow_all(
    pattern: str,
    consumer: str = "",
    *,
    instance: InstanceLike | None = None,
    members: int | None = None,
    timeout: float | None = None,
    start: StartText = "cursor",
    min_watermark: Watermark = "committed",
    latest_only: bool = False,
    ack: Acknowledge = "auto",
    on_notice: Callable[[Address, Notice], object] | None = None,
    verify: Verify = "auto",
    reconnect_timeout: float | None = 60.0,
) -> EnsembleFollower:
    """Follows all streams of a reservation whose names match, as one: ``follow_all("run1/member-*", "statistics")``.

    Streams that are made while it runs join within about half a second. It needs a connection and a thread for each
    stream that is not ended.

    Parameters
    ----------
    pattern : str
        ``"RES/PATTERN"``; ``*``, ``?`` and ``[...]`` stand for characters of the stream's name.
    consumer : str
        As in :meth:`Stream.follow`: each stream keeps the position of this consumer, so that it goes on after a crash.
    instance : Instance or path, optional
        As in :func:`forebay.open`.
    members : int, optional
        How many streams there will be: it ends when that many have joined and all have ended. Not given: it ends when
        all streams that are there have ended, which misses those that begin later.
    timeout : float, optional
        Seconds that one wait for the next step of any stream may take; None: for ever.
    start, min_watermark, latest_only, ack
        As in :meth:`Stream.follow`, for each stream.
    on_notice : callable, optional
        Called with a stream's address and a :class:`Notice`, as by :meth:`Stream.follow`.
    verify, reconnect_timeout
        As in :func:`forebay.open`.

    Raises
    ------
    NotFoundError
        There is no such reservation.
    BusyError
        The consumer has a holder on one of the streams.
    InvalidArgumentError
        The pattern names no reservation, or has wildcards elsewhere than in the stream's name.
    """
    wanted = StreamPattern.parse(pattern)
    if members is not None and (members := options.integer("members", members)) < 1:
        raise InvalidArgumentError("members is how many streams there will be, at least 1")

    def follow(stream: Stream) -> Follower:
        return stream.follow(
            consumer, timeout=None, start=start, min_watermark=min_watermark, latest_only=latest_only, ack=ack
        )

    return EnsembleFollower(
        wanted,
        instance_of(wanted.server, instance),
        follow,
        reader_options={
            "verify": verify,
            "open_timeout_ms": 0,
            "reconnect_timeout_ms": options.milliseconds(reconnect_timeout, "reconnect_timeout"),
        },
        timeout_ms=options.milliseconds(timeout),
        members=members,
        on_notice=on_notice,
    )
