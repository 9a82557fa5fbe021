# SPDX-License-Identifier: Apache-2.0
"""What the manager tells beside the servers' records: both it and its client have these."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forebay.records import Record

__all__ = ["Answer", "AttachmentKind", "AttachmentRow", "PoolSpace", "QueuePlace", "QueueRow"]


class AttachmentKind(StrEnum):
    """Who ends an attachment."""

    USER = "user"  #: whoever made it, the end of its process, or its time
    JOB = "job"  #: the scheduler, when it is through with the job


@dataclass(frozen=True, slots=True)
class AttachmentRow(Record):
    """One holder of a reservation."""

    reservation: str
    kind: AttachmentKind
    holder: str  #: what its user calls it, or the job
    owner_uid: int
    pid: int | None = None  #: the process that it ends with
    process: str | None = None  #: which one: see forebay.manager.process_identity
    ttl_seconds: float | None = None  #: how long it lasts after it was made or extended
    expires_ns: int | None = None
    created_ns: int = 0
    id: int = 0


@dataclass(frozen=True, slots=True)
class PoolSpace(Record):
    """What a pool has."""

    name: str
    capacity_bytes: int
    free_bytes: int  #: what may be had of it now
    granularity_bytes: int  #: the unit of what is granted
    waiting_bytes: int  #: what those who wait ask for together


@dataclass(frozen=True, slots=True)
class QueuePlace(Record):
    """A place in the queue for space."""

    name: str  #: of the reservation to be
    ahead: int  #: how many came before
    since_ns: int
    reason: str  #: why it is not made yet
    estimate_ns: int | None  #: when there will be room, by the attachments that end at a known time; None: nobody knows


@dataclass(frozen=True, slots=True)
class QueueRow(Record):
    """One who waits for space."""

    id: int
    name: str  #: of the reservation to be
    pool: str
    account: str
    size_bytes: int
    owner_uid: int
    created_ns: int
    seen_ns: int
    ahead: int  #: how many came before


@dataclass(frozen=True, slots=True)
class Answer(Record):
    """Why something stands still."""

    subject: str  #: for example "reservation run1"
    state: str
    since_ns: int | None  #: None: since nobody knows when
    waits_for: str
    held_by: tuple[str, ...] = ()
    ends: str = ""  #: what ends it
