# SPDX-License-Identifier: Apache-2.0
"""Streams as users open them: random access, following and state in every mode; steps to write in modes "w" and "a"."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex, TypeAlias, overload
from weakref import WeakValueDictionary

from forebay import _core
from forebay.admin import stream_of
from forebay.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    StepNotFoundError,
    StreamNotFoundError,
)
from forebay.follower import Acknowledge, Follower, StartText, milliseconds
from forebay.records import Address, Notice, Retention, StepSummary, StreamInfo, launcher_rank
from forebay.step import Step
from forebay.writing import AttributesBeingWritten, StepBeingWritten

__all__ = ["Steps", "Stream", "WritableStream", "open"]

Mode: TypeAlias = Literal["r", "w", "a"]
Watermark: TypeAlias = Literal["committed", "durable"]
Verify: TypeAlias = Literal["none", "first", "read"]
Distribution: TypeAlias = Literal["stream_default", "all_to_all", "round_robin", "on_demand"]
WhenFull: TypeAlias = Literal["block", "drop_oldest", "error"]


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


class Stream:
    """An open stream; made by :func:`forebay.open`. Context manager; pickles by address (mode ``"r"``).

    ``stream[17]`` is the step number 17; ``stream.steps()[-1]`` is what is known of the newest one. Handles do not
    survive ``fork()``: open the stream in the child (``multiprocessing`` with "spawn" or "forkserver" pickles it by
    address).
    """

    mode: Mode = "r"

    def __init__(self, address: Address, reader_options: dict[str, Any], native: _core.Reader | None) -> None:
        self._address = address
        self._options = reader_options
        self._reader = native
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
        return stream_of(self._random_access().info())

    def steps(self) -> Steps:
        """The kept steps in order: number, epoch, time, size, watermarks. A snapshot: ask again for newer ones."""
        return Steps(self._random_access().steps())

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
            return Step(self._random_access().step(wanted), self)
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
            Name under which the position is kept durably: a process that comes back after a crash goes on from there.
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
        """Makes a follower go on at number ``step`` (or the first kept one after it); a consumer's cursor moves with
        it.

        Parameters
        ----------
        consumer : str
            Whose position. With a running ``follow`` of that name on this handle, that one is moved; else the durable
            cursor is, for which nobody else may hold it.

        Raises
        ------
        InvalidArgumentError
            Without a consumer name, and no nameless ``follow`` runs on this handle.
        """
        followers = [follower for follower in self._followers.values() if follower.consumer == consumer]
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._address}, mode {self.mode!r}{', closed' if self._closed else ''}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._address.path, self._options)

    def _random_access(self) -> _core.Reader:
        self._check_open()
        if self._reader is None:
            self._reader = _core.Reader.open(self._address.path, **self._options)
        return self._reader

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"stream {self._address} is closed")


class WritableStream(Stream):
    """A stream open for writing, as one rank of its writer group. Writing belongs to one thread at a time.

    ``with`` closes it; leaving it by an exception does not, so that the stream says ``interrupted`` and not ``ended``.
    """

    def __init__(self, address: Address, mode: Mode, reader_options: dict[str, Any], writer: _core.Writer) -> None:
        super().__init__(address, reader_options, None)
        self.mode = mode
        self._writer = writer
        self._attributes = AttributesBeingWritten(writer)

    def step(self) -> StepBeingWritten:
        """Opens the next step; use it by ``with``. Waits for space as the options say.

        Raises
        ------
        NoSpaceError
            The reservation is full; the text names who holds the space.
        GroupBrokenError
            Another rank was lost.
        FencedError
            A newer group writes this stream.
        """
        self._check_open()
        return StepBeingWritten(self, self._writer)

    @property
    def attributes(self) -> AttributesBeingWritten:
        """Attributes of every step from the open (or next) one on."""
        return self._attributes

    @property
    def next_step(self) -> int:
        """Number of the open step, else of the next one."""
        return self._writer.current_step

    @property
    def incarnation(self) -> int:
        """Number of this writer group; it fences all older ones."""
        return self._writer.incarnation

    @property
    def epoch(self) -> int:
        """The stream's epoch that this group writes."""
        return self._writer.epoch

    def close(self) -> None:
        """Ends this rank's writing; when all ranks have closed, the stream has ended. Idempotent."""
        if not self._closed:
            self._writer.close()
        super().close()

    def abandon(self) -> None:
        """Leaves without ending the stream: an open step is aborted, the stream becomes interrupted. Idempotent."""
        self._writer.abandon()
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"a stream open for writing cannot be pickled: pickle its address, {str(self._address)!r}")


@overload
def open(  # noqa: A001
    address: str | Address,
    mode: Literal["r"] = "r",
    *,
    verify: Verify = "none",
    timeout: float | None = 60.0,
    reconnect_timeout: float | None = 60.0,
) -> Stream: ...
@overload
def open(  # noqa: A001
    address: str | Address,
    mode: Literal["w", "a"],
    *,
    rank: int | None = None,
    ranks: int | None = None,
    group: str | None = None,
    append_after: int | None = None,
    retention: Retention | str | None = None,
    when_full: WhenFull = "block",
    block_timeout: float | None = 60.0,
    durability: Watermark = "committed",
    statistics: bool = True,
    checksums: bool = True,
    force: bool = False,
    rendezvous_readers: int = 0,
    distribution: Distribution = "stream_default",
    grace: float = 10.0,
    verify: Verify = "none",
    timeout: float | None = 60.0,
    reconnect_timeout: float | None = 60.0,
) -> WritableStream: ...
def open(  # noqa: A001 - forebay.open is meant to read like the builtin
    address: str | Address,
    mode: Mode = "r",
    *,
    verify: Verify = "none",
    timeout: float | None = 60.0,
    reconnect_timeout: float | None = 60.0,
    **options: Any,
) -> Stream:
    """Opens a stream.

    Parameters
    ----------
    address : str or Address
        ``"RESERVATION/STREAM"`` or ``"forebay://RESERVATION/STREAM"``.
    mode : {"r", "w", "a"}
        Read; replace the stream by a new epoch from step 0; go on after its last committed step, or create it.
    verify : {"none", "first", "read"}
        When block checksums are checked by reads: never, the first time a block is touched, always. Views are checked
        by ``variable.verify()``.
    timeout : float, optional
        Seconds to wait for the stream to exist (mode ``"r"``), or for the whole writer group and the readers it waits
        for; None: for ever.
    reconnect_timeout : float, optional
        Seconds that a restarting server is waited for.

    Other Parameters
    ----------------
    rank, ranks : int
        This process in the writer group; both or none. Not given: from the launcher (:func:`launcher_rank`).
    group : str
        What the ranks of one group share; not given: the launcher's job, step and restart.
    append_after : int
        Mode ``"a"``: withdraw the steps after this one.
    retention : Retention or str
        Which steps the stream keeps, for example ``"last:10,precious:100"``; not given: as it is, or all.
    when_full : {"block", "drop_oldest", "error"}
        What a step does when the reservation is full; ``block`` waits at most ``block_timeout`` seconds.
    durability : {"committed", "durable"}
        What the end of a step waits for.
    statistics, checksums : bool
        Take minimum and maximum, and CRC-32C, of every block.
    force : bool
        Replace or rewind although unstaged precious steps go.
    rendezvous_readers : int
        Wait for that many readers.
    distribution : str
        How steps are shared among readers that do not choose.
    grace : float
        Seconds that followers wait for a restart once this group is lost.

    Returns
    -------
    Stream or WritableStream

    Raises
    ------
    StreamNotFoundError
        No such reservation; or, for reading, no such stream within ``timeout``.
    BusyError
        Another writer group writes.
    RefusedError
        Unstaged precious steps would go.
    DeadlineExceededError
        The writer group did not form in time; the text names the missing ranks.
    PermissionDeniedError, DisconnectedError, InvalidArgumentError
    """
    place = address if isinstance(address, Address) else Address.parse(address)
    if place.step is not None:
        raise InvalidArgumentError(f"{place} names a step: open {place.path!r} and take stream[{place.step}]")
    reader_options: dict[str, Any] = {
        "verify": verify,
        "open_timeout_ms": milliseconds(timeout),
        "reconnect_timeout_ms": milliseconds(reconnect_timeout),
    }
    try:
        if mode == "r":
            if options:
                raise InvalidArgumentError(f"option {next(iter(options))!r} is for writing; mode 'r' does not take it")
            return Stream(place, reader_options, _core.Reader.open(place.path, **reader_options))
        if mode in ("w", "a"):
            writer = _core.Writer.open(place.path, **_writer_options(mode, timeout, reconnect_timeout, **options))
            return WritableStream(place, mode, reader_options, writer)
    except NotFoundError as error:
        raise StreamNotFoundError(error.what, error.where) from None
    except DeadlineExceededError as error:
        if mode == "r":
            raise StreamNotFoundError(error.what, error.where) from None
        raise
    raise InvalidArgumentError(f"mode is 'r', 'w' or 'a', not {mode!r}")


def _writer_options(
    mode: Mode,
    timeout: float | None,
    reconnect_timeout: float | None,
    *,
    rank: int | None = None,
    ranks: int | None = None,
    group: str | None = None,
    append_after: int | None = None,
    retention: Retention | str | None = None,
    when_full: WhenFull = "block",
    block_timeout: float | None = 60.0,
    durability: Watermark = "committed",
    statistics: bool = True,
    checksums: bool = True,
    force: bool = False,
    rendezvous_readers: int = 0,
    distribution: Distribution = "stream_default",
    grace: float = 10.0,
) -> dict[str, Any]:
    if (rank is None) != (ranks is None) and ranks != 1:
        raise InvalidArgumentError("give both rank and ranks, or neither (then the launcher says)")
    found = launcher_rank()
    source = found.source if ranks is None else "the options rank and ranks"
    kept = Retention.parse(retention) if isinstance(retention, str) else retention
    return {
        "append": mode == "a",
        "rank": found.rank if ranks is None else rank or 0,
        "ranks": found.ranks if ranks is None else ranks,
        "ranks_source": source,
        "group": found.group if group is None else group,
        "append_after": append_after,
        "retention": None if kept is None else (kept.last, list(kept.consumers), kept.precious_every),
        "when_full": when_full,
        "block_timeout_ms": milliseconds(block_timeout),
        "durability": durability,
        "statistics": statistics,
        "checksums": checksums,
        "force": force,
        "rendezvous_readers": rendezvous_readers,
        "open_timeout_ms": milliseconds(timeout),
        "reconnect_timeout_ms": milliseconds(reconnect_timeout),
        "grace_ms": milliseconds(grace),
        "distribution": distribution,
    }


# Streams that pickles of steps brought here: the steps of one stream share one connection.
_reopened: WeakValueDictionary[tuple[Any, ...], Stream] = WeakValueDictionary()


def _reopen(path: str, reader_options: dict[str, Any]) -> Stream:
    key = (path, *sorted(reader_options.items()))
    stream = _reopened.get(key)
    if stream is None or stream._closed:
        stream = Stream(Address.parse(path), reader_options, _core.Reader.open(path, **reader_options))
        _reopened[key] = stream
    return stream
