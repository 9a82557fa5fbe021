# SPDX-License-Identifier: Apache-2.0
"""Jobs and persistent reservations in DataWarp's words: sessions in a pool, each with at most one instance."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from forebay.manager.records import JobRow, JobState, ReservationRow

__all__ = ["PoolState", "ServerState", "Session", "Use", "session_of_job", "session_of_persistent"]

_NS = 1_000_000_000
#: Jobs are counted from 1; persistent reservations take their number from their name, above these; and fragments
#: beside that of the files follow above these.
_PERSISTENTS_FROM = 1 << 30
_FRAGMENTS_FROM = 2 * _PERSISTENTS_FROM


@dataclass(frozen=True, slots=True)
class ServerState:
    """What one server gives to jobs that take space from a pool."""

    name: str
    online: bool
    drained: bool  #: it takes no new grants
    quantity: int  #: in units of the pool's granularity


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool, as jobs may use it: the files of each of their reservations lie on one server."""

    name: str
    granularity_bytes: int
    quantity: int  #: in units of the granularity
    free: int
    servers: tuple[ServerState, ...]  #: on which they may lie

    @property
    def largest(self) -> int:
        """Units that one reservation may have at most."""
        return min(self.quantity, max((server.quantity for server in self.servers), default=0))

    @property
    def largest_bytes(self) -> int:
        """The same in bytes."""
        return self.largest * self.granularity_bytes


@dataclass(frozen=True, slots=True)
class Session:
    """A job or a persistent reservation. Its instance and its configuration have the same number."""

    id: int
    token: str
    owner_uid: int
    created_seconds: int
    files_bytes: int  #: 0: it has no instance
    reservation: str
    pool: str  #: as Slurm calls it
    servers: tuple[tuple[str, int], ...]  #: and what it has there in bytes; the first one has its files
    state: JobState | None = None  #: None: a persistent reservation
    fails: bool = False
    private: bool = False
    node_count: int = 0  #: on how many nodes the job runs

    @property
    def fragments(self) -> list[tuple[int, str, int]]:
        """Number, server and bytes of each of its parts."""
        return [(self.id + n * _FRAGMENTS_FROM, server, size) for n, (server, size) in enumerate(self.servers)]

    def lies_on(self, server: str) -> bool:
        """Some of it is there."""
        return any(name == server for name, _ in self.servers)


@dataclass(frozen=True, slots=True)
class Use:
    """A job that is attached to an instance."""

    id: int
    session: int
    instance: int
    state: JobState


def session_of_job(job: JobRow, pool: str, servers: tuple[tuple[str, int], ...]) -> Session:
    """The job's."""
    return Session(
        id=job.id,
        token=job.token,
        owner_uid=job.owner_uid,
        created_seconds=job.created_ns // _NS,
        files_bytes=job.capacity_bytes,
        reservation=job.reservation,
        pool=pool,
        servers=servers,
        state=job.state,
        fails=bool(job.reason),
        private=bool(job.directives.get("private", False)),
        node_count=job.node_count,
    )


def session_of_persistent(row: ReservationRow, pool: str, servers: tuple[tuple[str, int], ...]) -> Session:
    """The persistent reservation's."""
    number = _PERSISTENTS_FROM + (zlib.crc32(row.name.encode()) & (_PERSISTENTS_FROM - 1))
    return Session(number, row.name, row.owner_uid, row.created_ns // _NS, row.files_bytes, row.name, pool, servers)
