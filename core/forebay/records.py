# SPDX-License-Identifier: Apache-2.0
"""Facts about servers, reservations, streams and steps: frozen records, each with ``as_dict()`` for JSON."""

from __future__ import annotations

import dataclasses
import functools
import os
from dataclasses import dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from forebay import _core
from forebay.errors import ArgumentTypeError

__all__ = [
    "TICKET_SUFFIX",
    "Address",
    "AwaitedStream",
    "ConsumerInfo",
    "EpochStart",
    "Finding",
    "LauncherRank",
    "Lifetime",
    "Notice",
    "PingInfo",
    "ReservationInfo",
    "Retention",
    "Rights",
    "ServerInfo",
    "Severity",
    "Share",
    "ShareKind",
    "StepRange",
    "StepSummary",
    "StreamInfo",
    "StreamStatus",
    "StreamWait",
    "WaitKind",
    "launcher_rank",
]


#: How the name of a ticket's file ends.
TICKET_SUFFIX = ".forebay"


class StreamStatus(StrEnum):
    """State of a stream."""

    WAITING = "waiting"  #: exists, but no group has written yet
    LIVE = "live"  #: a writer group is at work
    ENDED = "ended"  #: closed by all ranks
    INTERRUPTED = "interrupted"  #: a rank was lost; a restart may continue
    FAILED = "failed"  #: a sync failed: what was durable stays


class WaitKind(StrEnum):
    """What somebody waits for in a stream."""

    SPACE = "space"  #: a rank, for space in the reservation
    READERS = "readers"  #: a rank, for a reader that is too far behind (``LagLimit``)
    DURABLE = "durable"  #: a rank, for its step to be durable
    GROUP = "group"  #: a rank, for other ranks, an older group, or the readers of a rendezvous
    WRITER = "writer"  #: a reader that opens, for a writer group
    STEP = "step"  #: a reader, for the next step
    STREAM = "stream"  #: a reader that opens, for somebody to make the stream
    SERVER = "server"  #: a reader, for a server that is away and has a part of its next step


class Lifetime(StrEnum):
    """How long a reservation lives: until its job or the instance ends, or until it is destroyed."""

    JOB = "job"
    PERSISTENT = "persistent"


class Rights(StrEnum):
    """What a user or a group may do in a reservation of somebody else's."""

    NONE = "none"
    READ = "read"  #: list, read and follow streams; read files/
    WRITE = "write"  #: also write, change and remove streams and files


class ShareKind(StrEnum):
    """Whom a reservation is shared with."""

    USER = "user"
    GROUP = "group"


class Severity(StrEnum):
    """Weight of an audit's finding: only problems make an instance unclean."""

    NOTE = "note"
    PROBLEM = "problem"


class Record:
    """Base of the records."""

    __slots__ = ()

    @classmethod
    def from_native(cls, fields: dict[str, Any]) -> Self:
        """The record of what ``_core`` or the manager tells by name.

        Fields that only a newer manager tells are left out. Choices that only a newer one knows are none of their
        class's members.
        """
        kinds = _kinds(cls)  # type: ignore[arg-type]  # mypy takes no class as hashable
        return cls(**{name: _typed(kinds[name], value) for name, value in fields.items() if name in kinds})

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain JSON types (texts, numbers, lists, dicts, None)."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}  # type: ignore[arg-type]


@functools.cache
def _kinds(record: type[Record]) -> dict[str, Any]:
    """The types of the fields by name, of one that may be None without that."""
    return {name: _of_present(kind) for name, kind in get_type_hints(record).items()}


def _of_present(kind: Any) -> Any:
    present = [option for option in get_args(kind) if option is not NoneType]
    return present[0] if isinstance(kind, UnionType) and len(present) == 1 else kind


def _typed(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(kind) is tuple:
        return tuple(_typed(get_args(kind)[0], item) for item in value)
    if isinstance(kind, type) and issubclass(kind, Record):
        return kind.from_native(value)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _member(kind, value)
    return value


def _member(kind: type[StrEnum], value: str) -> StrEnum:
    """The member of this value; for what only a newer server or manager tells, one that is none of the named ones."""
    try:
        return kind(value)
    except ValueError:
        other = str.__new__(kind, value)
        other._name_ = other._value_ = value
        return other


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.as_dict()
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


@dataclass(frozen=True, slots=True)
class Address(Record):
    """Address of a stream, or of one of its steps."""

    reservation: str
    stream: str
    step: int | None = None
    server: str = ""  #: ``"HOST:PORT"`` of a server on another node; empty: that of the instance

    @classmethod
    def parse(cls, text: str) -> Self:
        """Takes ``RES/STREAM``, ``RES/STREAM@STEP``, ``forebay://RES/STREAM`` and ``forebay://HOST:PORT/RES/STREAM``.

        The path of a :class:`forebay.Ticket` stands for the address in it.

        Raises
        ------
        InvalidArgumentError
            It is none of these.
        """
        if not isinstance(text, str):
            raise ArgumentTypeError(f"an address is a text such as 'run1/flow' or an Address, not {text!r}")
        if text.endswith(TICKET_SUFFIX) and os.path.isfile(text):
            from forebay.ticket import Ticket

            address = Ticket.read(text).address
            return cls(address.reservation, address.stream, address.step, address.server)
        return cls(*_core.parse_address(text))

    @property
    def path(self) -> str:
        """``"RESERVATION/STREAM"``."""
        return f"{self.reservation}/{self.stream}"

    def __str__(self) -> str:
        return self.path if self.step is None else f"{self.path}@{self.step}"


@dataclass(frozen=True, slots=True)
class Retention(Record):
    """Which steps a stream keeps.

    Both of the first two conditions must allow a step to go where both are set; neither set: every step is kept.
    """

    last: int | None = None  #: a step may go when this many newer ones are committed
    consumers: tuple[str, ...] = ()  #: a step may go when all of these have passed it
    first: int = 0  #: steps below this number stay until the stream has ended; 0: none
    precious_every: int = 0  #: steps whose number this divides stay until staged out; 0: none

    @classmethod
    def parse(cls, text: str) -> Self:
        """Takes ``"all"`` or comma-separated terms ``last:N``, ``first:N``, ``consumers:NAME+NAME``, ``precious:N``."""
        return cls.from_native(_core.parse_retention(text))

    def __str__(self) -> str:
        return _core.format_retention(self.as_dict())


@dataclass(frozen=True, slots=True)
class LauncherRank(Record):
    """Rank and size of this process, and where they were found."""

    rank: int
    ranks: int
    source: str
    group: str


def launcher_rank() -> LauncherRank:
    """Rank and size from ``FOREBAY_RANK``/``FOREBAY_RANKS``, else from the launcher, else 0 of 1."""
    return LauncherRank(*_core.launcher_rank())


@dataclass(frozen=True, slots=True)
class StepSummary(Record):
    """What is known of a step without reading it."""

    number: int
    epoch: int
    incarnation: int
    time_ns: int  #: of the commit, nanoseconds since the Unix epoch
    size_bytes: int  #: data and metadata on SSD
    durable: bool
    staged: bool
    precious: bool  #: precious and not yet staged
    pins: int

    @property
    def time(self) -> float:
        """Time of the commit, seconds since the Unix epoch."""
        return self.time_ns / 1e9


@dataclass(frozen=True, slots=True)
class ConsumerInfo(Record):
    """A named consumer of a stream."""

    name: str
    position: int  #: the next step that it will get
    lag_steps: int  #: committed steps that it has not passed
    connected: bool
    holder_pid: int


@dataclass(frozen=True, slots=True)
class StreamWait(Record):
    """Somebody who waits: a rank of a stream's writers, or a reader."""

    kind: WaitKind
    who: str  #: for people: rank, consumer, process or address
    pid: int  #: 0: on another node
    waits_for: str  #: for people: what, and who or what holds it up
    since_ns: int  #: nanoseconds since the Unix epoch


@dataclass(frozen=True, slots=True)
class EpochStart(Record):
    """Where an epoch of a stream begins; its steps end where the next one begins."""

    epoch: int
    first_step: int


@dataclass(frozen=True, slots=True)
class StepRange(Record):
    """Steps from ``first`` to ``last``, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class StreamInfo(Record):
    """State of a stream: status, watermarks (step numbers, None while there is none), retention, consumers, waits."""

    name: str
    uuid: str
    epoch: int
    incarnation: int
    ranks: int
    run: str  #: that the last group said it belongs to; empty: none
    original_name: str  #: by which a program opened it under ``forebay run``; empty: not known
    status: StreamStatus
    status_text: str  #: why interrupted or failed
    oldest: int | None  #: oldest kept step
    committed: int | None  #: newest committed step
    durable: int | None  #: newest durable step
    staged: int | None  #: newest staged step
    steps: int  #: how many are kept
    size_bytes: int
    committed_bytes: int  #: of all steps committed since the server was started
    step_open: bool
    retention: Retention
    consumers: tuple[ConsumerInfo, ...]
    waits: tuple[StreamWait, ...]  #: who waits now, 64 at most: ranks of writers first, then readers
    epochs: tuple[EpochStart, ...]  #: by first step; steps before the first of them are of epoch 1
    #: In order: steps of which bytes went with a server of the reservation, until retention would have dropped them. Of
    #: more than 256 ranges the oldest are one; a kept step in it is not lost.
    lost: tuple[StepRange, ...] = ()

    def epoch_of(self, number: int) -> int:
        """The epoch that step ``number`` is of, whether it is kept or not. One of another epoch was withdrawn."""
        return max((start.epoch for start in self.epochs if start.first_step <= number), default=1)


@dataclass(frozen=True, slots=True)
class AwaitedStream(Record):
    """A stream that does not exist, which readers wait for."""

    name: str
    waits: tuple[StreamWait, ...]  #: 64 at most


@dataclass(frozen=True, slots=True)
class Notice(Record):
    """What a follower is told besides steps.

    The stream's status changed: interrupted, or live again. Or ``text`` says which server that is away the next step
    waits for, or which steps were passed over for that (``on_unavailable``).
    """

    status: StreamStatus
    text: str


@dataclass(frozen=True, slots=True)
class Share(Record):
    """What a user or a group may do in a reservation."""

    kind: ShareKind
    id: int  #: uid or gid
    rights: Rights


@dataclass(frozen=True, slots=True)
class ReservationMember(Record):
    """What one server of a pool gives to a reservation."""

    server: str  #: uuid of its root
    capacity_bytes: int  #: for streams; of the home with what is kept for journals
    segments: int = 0


@dataclass(frozen=True, slots=True)
class ReservationInfo(Record):
    """A reservation as its server knows it."""

    name: str
    id: str  #: uuid
    capacity_bytes: int  #: granted for streams
    used_bytes: int  #: space that steps and journals hold
    files_bytes: int  #: granted for files/
    files_used_bytes: int | None  #: what lies in files/; None: not counted
    segment_bytes: int
    lifetime: Lifetime
    owner_uid: int
    owner_gid: int
    created_ns: int
    streams: int
    files_path: str  #: absolute path of files/
    shares: tuple[Share, ...]  #: beside the owner, and the owner's group, which may write if it is not here
    access_generation: int  #: raised whenever somebody's rights may have become less
    files_group: int = 0  #: a group that nobody is in: marks what was made in files/ in its access list
    files_left: tuple[str, ...] = ()  #: what of files/ the shares do not reach as yet, a line each
    pool: str = ""  #: of the manager that made it; empty: the default pool
    account: str = ""  #: that the manager counts it for; empty: none
    members: tuple[ReservationMember, ...] = ()  #: the home first
    home: bool = True  #: the server that was asked is the home; else it has only a share
    trouble: str = ""  #: why it serves nothing; empty: it does


@dataclass(frozen=True, slots=True)
class ServerInfo(Record):
    """A staging server."""

    version: str
    root: str
    pid: int
    started_ns: int
    pool_bytes: int  #: capacity handed out in reservations at most
    reserved_bytes: int
    granularity_bytes: int
    clients: int
    reservations: int
    uuid: str  #: of the root
    storage_incarnation: int  #: another one after a boot, when unsynced bytes may have been lost


@dataclass(frozen=True, slots=True)
class PingInfo(Record):
    """How a client reaches its server, and how fast."""

    transport: str  #: of bytes of steps: ``local``, ``tcp`` or ``fabric``
    provider: str  #: libfabric's; empty: not by libfabric
    latency_ns: int  #: of a request and its answer: the median of several
    latency_least_ns: int  #: of the fastest of them
    bytes_per_second: int | None  #: from the server by the data path; None on the server's own node


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """Something that an audit found."""

    severity: Severity
    where: str
    what: str  #: what is wrong and what to do
