# SPDX-License-Identifier: Apache-2.0
"""Follows a stream: iterates over its steps as they commit, and keeps a consumer's cursor."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from forebay import _core, options
from forebay.async_wait import next_step
from forebay.closing import Closing
from forebay.ended_run import NEXT_WRITER_ADVICE
from forebay.errors import (
    CancelledError,
    InvalidArgumentError,
    StepTimeoutError,
    StreamFailedError,
    StreamInterruptedError,
)
from forebay.records import Notice, StreamInfo, StreamStatus
from forebay.step import Step

if TYPE_CHECKING:
    from forebay.stream import Stream

__all__ = ["Acknowledge", "Follower", "StartText"]

Acknowledge: TypeAlias = Literal["auto", "manual"]
StartText: TypeAlias = Literal["cursor", "oldest", "latest", "next"]

# What a wait brought: forebay::NextStep::Kind. 5 says that another thread closed the follower.
_STEP, _NOT_READY, _END_OF_STREAM, _NOTICE = 1, 2, 3, 4


class Follower(Closing, Iterator[Step]):
    """Iterator over the steps of a stream as they commit; made by :meth:`Stream.follow`. Also a context manager.

    ``async for step in follower`` waits without keeping the event loop busy.

    It ends (StopIteration) when the stream has ended. ``next()`` belongs to one thread at a time; ``ack`` of its steps,
    ``seek`` and ``close`` may be called from others meanwhile, and are served within about a tenth of a second.

    Raises
    ------
    StepTimeoutError
        No step came within ``timeout``; where the next one waits for a server that is away, the text names it. The
        follower stays usable: ask again.
    UnavailableError
        With ``on_unavailable="error"``: the next step has a part on a server that is away. Asking again looks again.
    StreamInterruptedError
        The writer group was lost and not restarted within the stream's grace time. Following again continues there.
    StreamFailedError
        A sync failed on the server; nothing after this is promised.
    """

    def __init__(
        self,
        stream: Stream,
        native: _core.Reader,
        *,
        consumer: str,
        timeout_ms: int,
        acknowledge: Acknowledge,
        on_notice: Callable[[Notice], object] | None,
    ) -> None:
        self._stream = stream
        self._core = native
        self._uuid = native.stream_uuid
        self._consumer = consumer
        self._timeout_ms = timeout_ms  # -1: for ever
        self._acknowledges = bool(consumer) and acknowledge == "auto"
        self._on_notice = on_notice
        self._previous: _core.Step | None = None
        self._untaken: Step | None = None  # Came when the task that waited for it had been cancelled.
        self._is_awaited = False
        self._reference = weakref.ref(self)
        self._closed = False

    @property
    def stream(self) -> Stream:
        """The stream that is followed."""
        return self._stream

    @property
    def consumer(self) -> str:
        """Name of the consumer; empty without one."""
        return self._consumer

    @property
    def timeout(self) -> float | None:
        """Seconds that the next wait may take; None: for ever. May be set between two waits."""
        return None if self._timeout_ms < 0 else self._timeout_ms / 1000

    @timeout.setter
    def timeout(self, seconds: float | None) -> None:
        self._timeout_ms = options.milliseconds(seconds)

    @property
    def position(self) -> int:
        """The number that the next step is looked for from: one after the step that came last.

        A step that came but could not be read, as its metadata is damaged, counts: iterating continues after it.
        """
        return self._core.position()

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return self._closed

    @property
    def info(self) -> StreamInfo:
        """State of the stream now."""
        return self._stream.info

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Step:
        return self._next(self._on_notice)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Step:
        """The next step, without keeping the event loop from other work; ``on_notice`` is called by the loop.

        A task that is cancelled while it waits loses no step: the next wait gives it.
        """
        if self._is_awaited:
            raise RuntimeError(f"two tasks wait for steps of {self!r} at once: one follower serves one at a time")
        self._is_awaited = True
        try:
            return await next_step(self)
        finally:
            self._is_awaited = False

    def _next(self, on_notice: Callable[[Notice], object] | None) -> Step:
        if self._untaken is not None:
            step, self._untaken = self._untaken, None
            return step
        self._acknowledge_previous()
        timeout_ms = self._timeout_ms
        deadline: float | None = None
        while True:
            kind, native, rewound, skipped, status, text = self._core.next(timeout_ms)
            if kind == _STEP:
                assert native is not None
                if self._acknowledges:
                    self._previous = native
                return Step(native, self._stream, self._uuid, self, rewound, skipped)
            if kind != _NOTICE:
                raise self._reason(kind, status, text)
            if on_notice is not None:
                on_notice(Notice.from_native({"status": status, "text": text}))
            # Notices do not prolong the wait by more than one timeout.
            if timeout_ms > 0:
                deadline = monotonic() + timeout_ms / 1000 if deadline is None else deadline
                timeout_ms = max(0, round((deadline - monotonic()) * 1000))

    def _reason(self, kind: int, status: str, text: str) -> Exception:
        """Why there is no next step."""
        where = f"stream {self._stream.address}"
        if kind == _NOT_READY:
            state = f"{status}; {text}" if text else status
            return StepTimeoutError(
                f"no step came within {self._timeout_ms / 1000:g} s (the stream is {state}); ask again, or give "
                "follow() a longer timeout",
                where,
            )
        if kind == _END_OF_STREAM and status == StreamStatus.INTERRUPTED:
            return StreamInterruptedError(
                f"the writer group was lost and has not come back: {text}; {NEXT_WRITER_ADVICE}", where
            )
        if kind == _END_OF_STREAM and status == StreamStatus.FAILED:
            return StreamFailedError(text, where)
        return StopIteration()

    def _acknowledge_previous(self) -> None:
        if self._previous is not None:
            previous, self._previous = self._previous, None
            try:
                self._core.acknowledge(previous)
            except CancelledError:
                self._previous = previous
                raise

    def ack(self, step: Step) -> None:
        """Moves the consumer's cursor behind ``step``.

        Raises
        ------
        InvalidArgumentError
            The follower has no consumer name.
        """
        if not self._consumer:
            raise InvalidArgumentError(
                "without a consumer name there is no cursor to move: follow(consumer=NAME)",
                f"stream {self._stream.address}",
            )
        native = step._native()
        self._core.acknowledge(native)
        if self._previous is native:
            self._previous = None

    def seek(self, step: int) -> None:
        """The next step given is number ``step``, or the first kept one after it; a consumer's cursor moves there too.

        The step in hand is not acknowledged by it.

        Raises
        ------
        InvalidArgumentError
            ``step`` lies beyond the one that comes next.
        """
        self._core.seek(options.integer("a step's number", step))
        self._previous = self._untaken = None

    def close(self) -> None:
        """Lets the consumer's cursor go, so that another process may take it.

        The step in hand is not acknowledged. Idempotent.
        """
        self._previous = self._untaken = None
        self._closed = True
        self._core.close()

    def __repr__(self) -> str:
        consumer = f" as {self._consumer!r}" if self._consumer else ""
        return f"<Follower of {self._stream.address}{consumer}>"
