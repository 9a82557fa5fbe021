# SPDX-License-Identifier: Apache-2.0
"""An open stream: its steps by number, following it, its state; what every mode has."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, overload
from weakref import WeakValueDictionary

from forebay import _core
from forebay.closing import Closing
from forebay.errors import (
    InvalidArgumentError,
    NotFoundError,
    StepGoneError,
    StepNotFoundError,
    StreamNotFoundError,
)
from forebay.follower import Acknowledge, Follower, StartText
from forebay.instance import server_place
from forebay.records import Address, Notice, StepSummary, StreamInfo
from forebay.step import Step
from forebay.step_metadata import GatheredSteps, StepsMetadata

__all__ = ["Distribution", "Mode", "Steps", "Stream", "Verify", "Watermark"]

Mode: TypeAlias = Literal["r", "w", "a"]
Watermark: TypeAlias = Literal["committed", "durable"]
Verify: TypeAlias = Literal["none", "first", "read"]
Distribution: TypeAlias = Literal["stream_default", "all_to_all", "round_robin", "on_demand"]


class Steps(Sequence[StepSummary]):
    """The kept steps of a stream in order, as they were when asked for."""

    __slots__ = ("_native",)

    def __init__(self, native: Sequence[tuple[Any, ...]]) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def __getitem__(self, index: SupportsIndex) -> StepSummary: ...
    @overload
    def __getitem__(self, index: slice) -> Steps: ...
    def __getitem__(self, index: SupportsIndex | slice) -> StepSummary | Steps:
        if isinstance(index, slice):
            return Steps(self._native[index])
        return StepSummary(*self._native[operator.index(index)])

    def __iter__(self) -> Iterator[StepSummary]:
        return (StepSummary(*fields) for fields in self._native)

    def __repr__(self) -> str:
        return (
            f"<Steps: {[summary.number for summary in self]}>" if len(self) <= 20 else f"<Steps: {len(self)} of them>"
        )


class Stream(Closing):
    """An open stream; made by :func:`forebay.open`. Context manager; pickles by address (mode ``"r"``).

    ``stream[17]`` is the step number 17; ``stream.steps()[-1]`` is what is known of the newest one. Handles do not
    survive ``fork()``: open the stream in the child (``multiprocessing`` with "spawn" or "forkserver" pickles it by
    address). A pickle names the stream's uuid too: if the stream was removed and made anew since, loading it fails.
    """

    mode: Mode = "r"

    def __init__(
        self,
        address: Address,
        reader_options: dict[str, Any],
        server: _core.ServerPlace,
        instance: str | None,
        native: _core.Reader | None,
    ) -> None:
        self._address = address
        self._options = reader_options
        self._server = server  # Also of what is opened through this handle later.
        self._instance = instance  # For pickles; None: the one that the environment names.
        self._reader = native
        self._uuid = "" if native is None else native.stream_uuid  # Of the stream that self._reader reads.
        self._followers: WeakValueDictionary[int, Follower] = WeakValueDictionary()
        self._closed = False

    @property
    def address(self) -> Address:
        """``RESERVATION/STREAM``."""
        return self._address

    @property
    def info(self) -> StreamInfo:
        """State now.

        Status, watermarks (``committed``, ``durable``, ``staged``), retention, consumers with their lag.
        """
        return StreamInfo.from_native(self._random_access().info())

    def steps(self) -> Steps:
        """The kept steps in order: number, epoch, time, size, watermarks. A snapshot: ask again for newer ones."""
        return Steps(self._random_access().steps())

    def steps_at(self, numbers: Iterable[SupportsIndex] | None = None) -> StepsMetadata:
        """What many steps say of themselves, in one go: variables, shapes, blocks, attributes and single values.

        Much cheaper than opening step after step, and nothing stays pinned.

        Parameters
        ----------
        numbers : iterable of int, optional
            The steps, by number; not given: all kept ones. Those that are not kept (any more) are left out.

        Raises
        ------
        CorruptError
            A step's metadata does not match its checksum.
        """
        reader = self._random_access()
        if numbers is None:
            wanted = [summary[0] for summary in reader.steps()]
        else:
            wanted = [operator.index(number) for number in numbers]
            if any(number < 0 for number in wanted):
                raise InvalidArgumentError("steps are numbered from 0", f"stream {self._address}")
        return StepsMetadata(GatheredSteps(*reader.metadata(wanted)))

    def __getitem__(self, number: SupportsIndex) -> Step:
        """The step of this number.

        Raises
        ------
        StepNotFoundError
            There is none yet.
        StepGoneError
            It was dropped or withdrawn.
        """
        wanted = operator.index(number)
        if wanted < 0:
            raise StepNotFoundError(
                f"steps are numbered from 0; for the newest write stream[stream.steps()[{wanted}].number]",
                f"stream {self._address}",
            )
        try:
            return Step(self._random_access().step(wanted), self, self._uuid)
        except NotFoundError as error:
            raise StepNotFoundError(error.what, error.where) from None

    def lag(self, consumer: str) -> int:
        """How many committed steps this consumer has not passed; NotFoundError if the stream does not know it."""
        info = self.info
        for known in info.consumers:
            if known.name == consumer:
                return known.lag_steps
        names = ", ".join(known.name for known in info.consumers) or "none"
        raise NotFoundError(f"there is no consumer {consumer!r}; known are: {names}", f"stream {self._address}")

    def follow(
        self,
        consumer: str = "",
        *,
        timeout: float | None = None,
        start: StartText | int = "cursor",
        min_watermark: Watermark = "committed",
        latest_only: bool = False,
        ack: Acknowledge = "auto",
        on_notice: Callable[[Notice], object] | None = None,
        distribution: Distribution = "stream_default",
    ) -> Follower:
        """Iterates over the steps as they commit, from the past into the future; ends when the stream has ended.

        Parameters
        ----------
        consumer : str
            Name under which the position is kept durably: a process that comes back after a crash continues there.
            One holder at a time. Without a name nothing is kept and nobody waits for this reader.
        timeout : float, optional
            Seconds that one wait for the next step may take (then StepTimeoutError); None: for ever.
        start : {"cursor", "oldest", "latest", "next"} or int
            Where to begin: at the consumer's cursor (else the oldest kept step), the oldest kept step (a cursor goes
            before it), the newest committed step, with steps to come only, or at a step number.
        min_watermark : {"committed", "durable"}
            Give steps when they are visible, or when they survive power loss.
        latest_only : bool
            Each wait gives the newest step and skips what lies between (``step.skipped``).
        ack : {"auto", "manual"}
            With a consumer name. Auto: a step is acknowledged when the loop asks for the next one, so a step whose body
            failed or was left by ``break`` is given again later. Manual: by ``step.ack()``.
        on_notice : callable, optional
            Called with a :class:`Notice` when the stream is interrupted or live again.
        distribution : {"stream_default", "all_to_all", "round_robin", "on_demand"}
            How steps are shared among several readers.

        Raises
        ------
        BusyError
            The consumer has a holder; the text names its process.
        """
        if ack not in ("auto", "manual"):
            raise InvalidArgumentError(f'ack is "auto" or "manual", not {ack!r}')
        self._check_open()
        native = _core.Reader.open(
            self._address.path,
            server=self._server,
            **self._options
            | {
                "consumer": consumer,
                "start": str(start),
                "min_watermark": min_watermark,
                "latest_only": latest_only,
                "distribution": distribution,
                "follow": True,
            },
        )
        follower = Follower(self, native, consumer=consumer, timeout=timeout, acknowledge=ack, on_notice=on_notice)
        self._followers[id(follower)] = follower
        return follower

    def seek(self, step: int, *, consumer: str = "") -> None:
        """Makes a follower continue at number ``step`` (or the first kept one after it); a consumer's cursor moves with
        it.

        Parameters
        ----------
        consumer : str
            Whose position. With a running ``follow`` of that name on this handle, that one is moved; else the durable
            cursor is, for which nobody else may hold it.

        Raises
        ------
        InvalidArgumentError
            Without a consumer name, and no nameless ``follow`` runs on this handle; or ``step`` lies beyond the one
            that comes next.
        """
        followers = [known for known in self._followers.values() if known.consumer == consumer and not known.closed]
        for follower in followers:
            follower.seek(step)
        if followers:
            return
        if not consumer:
            raise InvalidArgumentError("nothing follows through this handle: name the consumer whose cursor is to move")
        with self.follow(consumer, ack="manual") as follower:
            follower.seek(step)

    def close(self) -> None:
        """Closes the handle and what follows through it. Steps and views stay usable. Idempotent."""
        self._closed = True
        for follower in list(self._followers.values()):
            follower.close()
        if self._reader is not None:
            self._reader.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address}, mode {self.mode!r}{', closed' if self._closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _stream_of, self._origin(self._uuid)

    def _origin(self, uuid: str) -> tuple[Any, ...]:
        """What a pickle names this stream by; ``uuid``: of the reader that gave what is pickled."""
        return self._address.path, self._options, self._instance, uuid

    def _random_access(self) -> _core.Reader:
        self._check_open()
        if self._reader is None:
            self._reader = _core.Reader.open(self._address.path, server=self._server, **self._options)
            self._uuid = self._reader.stream_uuid
        return self._reader

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"stream {self._address} is closed")


# Streams that pickles of steps brought here: the steps of one stream share one connection.
_reopened: WeakValueDictionary[tuple[Any, ...], Stream] = WeakValueDictionary()


def _stream_of(path: str, reader_options: dict[str, Any], instance: str | None, uuid: str) -> Stream:
    """The stream that a pickle names.

    Raises
    ------
    StreamNotFoundError
        It was removed, also if there is another one at its address now.
    """
    server = server_place(instance)
    key = (server.socket_path, path, uuid, *sorted(reader_options.items()))
    stream = _reopened.get(key)
    if stream is None or stream._closed:
        try:
            # The stream existed: one that is made later is another, and not to be waited for.
            native = _core.Reader.open(path, server=server, **reader_options | {"open_timeout_ms": 0})
        except NotFoundError as error:
            raise StreamNotFoundError(error.what, error.where) from None
        if native.stream_uuid != uuid:
            native.close()
            raise StreamNotFoundError(
                "the stream was removed and made anew since it was pickled: open it again for the new one",
                f"stream {path}",
            )
        stream = Stream(Address.parse(path), reader_options, server, instance, native)
        _reopened[key] = stream
    return stream


def step_of_pickle(
    path: str, reader_options: dict[str, Any], instance: str | None, uuid: str, number: int, epoch: int
) -> Step:
    """The step that a pickle names; StepGoneError if the stream has no such step any more."""
    try:
        step = _stream_of(path, reader_options, instance, uuid)[number]
    except (StreamNotFoundError, StepNotFoundError) as error:
        raise StepGoneError(error.what, f"{error.where}, step {number}") from None
    if step.epoch != epoch:
        raise StepGoneError(
            f"the step of epoch {epoch} was withdrawn or replaced; the stream now has one of epoch {step.epoch}",
            str(step.address),
        )
    return step
