# SPDX-License-Identifier: Apache-2.0
"""What the manager tells beside the servers' records: both it and its client have these."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from forebay.manager.stage_state import StageState
from forebay.records import Record

__all__ = [
    "Answer",
    "AttachmentKind",
    "AttachmentRow",
    "Destruction",
    "Drain",
    "GivenUp",
    "Health",
    "JobMount",
    "JobRow",
    "JobState",
    "MemberRow",
    "NodeAnswer",
    "NodeAnswerState",
    "NodeReported",
    "PoolServer",
    "PoolSpace",
    "QueuePlace",
    "QueueRow",
    "ReceiptRow",
    "ReservationRow",
    "ReservationState",
    "Retirement",
    "ServerStatus",
    "SiteMount",
    "StageReceipt",
    "StageRow",
    "StageStatus",
    "Undrained",
]


class ReservationState(StrEnum):
    """What is to become of a reservation, or has."""

    CREATING = "creating"  #: asked for; whether the server has it is not known yet
    PRESENT = "present"  #: the server has it
    DESTROYING = "destroying"  #: to be gone; whether it is, is not known yet
    LOST = "lost"  #: should be there, but the server does not have it


class JobState(StrEnum):
    """How far a job of a scheduler has come; the order is that of a job's life."""

    SETUP = "setup"  #: its reservation is being made
    DATA_IN = "data_in"  #: files are staged in
    PRE_RUN = "pre_run"  #: all is ready; it may run
    RUNNING = "running"
    POST_RUN = "post_run"  #: it is over; its last processes are waited for
    DATA_OUT = "data_out"  #: what it is to keep is staged out
    DRAINED = "drained"  #: all of that has its receipts
    GONE = "gone"  #: its reservation was destroyed
    WAITING = "waiting"  #: there was no room for it; the scheduler is asked to set it up again when there is
    KEPT = "kept"  #: the scheduler is through with it, but its data could not be staged out and lies here still

    @property
    def is_final(self) -> bool:
        """The scheduler hears no more of it."""
        return self in (JobState.GONE, JobState.KEPT, JobState.WAITING)

    @property
    def may_have_run(self) -> bool:
        """Its processes may have written."""
        return self in (JobState.RUNNING, JobState.POST_RUN, JobState.DATA_OUT, JobState.DRAINED)


@dataclass(frozen=True, slots=True)
class MemberRow(Record):
    """What one server gives to a reservation that lies on several."""

    server: str  #: of the pool; "" is the manager's own
    root_uuid: str
    size_bytes: int  #: for streams; of the home with what is kept for journals
    lost: bool = False  #: the server will not come back, or does not have it any more


@dataclass(frozen=True, slots=True)
class ReservationRow(Record):
    """A reservation as it was asked for."""

    name: str
    capacity_bytes: int
    persistent: bool
    owner_uid: int
    owner_gid: int
    state: ReservationState = ReservationState.CREATING
    id: str = ""  #: the server's, once it is known
    force: bool = False  #: of a destroy
    created_ns: int = 0
    files_bytes: int = 0
    pool: str = ""  #: "" is the default pool
    account: str = ""  #: "" is none
    server: str = ""  #: of the pool, that has it, or is its home; "" is the manager's own
    members: tuple[MemberRow, ...] = ()  #: of one on several servers, the home first; empty: `server` has all of it

    @property
    def servers(self) -> tuple[str, ...]:
        """All that have some of it, the home first; also those that are lost."""
        return tuple(member.server for member in self.members) or (self.server,)

    def member_on(self, server: str) -> MemberRow | None:
        """What a server gives to it, if it lies on several."""
        return next((member for member in self.members if member.server == server), None)

    def has_lost(self, server: str) -> bool:
        """Whether what a server gave to it is lost."""
        member = self.member_on(server)
        return member is not None and member.lost


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
class Health(Record):
    """A manager that answers."""

    version: str  #: of Forebay
    root: str
    started_ns: int
    shared: bool  #: users other than the instance's own may have reservations
    server_pid: int | None  #: of its own server; None: it does not answer


@dataclass(frozen=True, slots=True)
class Destruction(Record):
    """What became of a reservation that is not there any more."""

    destroyed: str  #: its name
    existed: bool
    near: tuple[str, ...]  #: where it did not, names that may have been meant


@dataclass(frozen=True, slots=True)
class JobRow(Record):
    """One run of a job."""

    id: int
    token: str  #: the scheduler's name of the job
    run: int  #: 1, and one more each time that the token comes back
    state: JobState
    owner_uid: int
    owner_gid: int
    capacity_bytes: int  #: as asked for; 0: it has no reservation
    reservation: str  #: its name; "" if it has none
    directives: dict[str, Any]
    stages: dict[str, int]  #: number of the stage that does a directive, by "in N", "out N", "stream N"
    reason: str  #: why it stands still, for people; "" if it does not
    created_ns: int
    changed_ns: int
    quiet: bool  #: its processes are known to be gone
    node_count: int  #: on how many nodes it runs; 0: it has not run
    deadline_ns: int | None = None  #: when its state ends at the latest; None: that is the scheduler's to say

    @property
    def holder(self) -> str:
        """The name of its attachments."""
        return f"job {self.token}" if self.run == 1 else f"job {self.token}, run {self.run}"


class NodeAnswerState(StrEnum):
    """What a node that asks for a Slurm job's files is to do."""

    NONE = "none"  #: nothing: the job has none, or has them no more
    WAIT = "wait"  #: ask again
    MOUNT = "mount"  #: these


@dataclass(frozen=True, slots=True)
class SiteMount(Record):
    """What a site's own command is told beside the mount."""

    incarnation: int
    capacity_bytes: int
    state: str


@dataclass(frozen=True, slots=True)
class JobMount(Record):
    """A reservation's files, as a node mounts them."""

    id: str  #: the reservation's uuid
    source: str
    port: int
    tree: str  #: where they lie on their home
    home: str = ""  #: their server's name in the pool; "": that of the manager's node
    site: SiteMount | None = None  #: where the engine is a site's own


@dataclass(frozen=True, slots=True)
class NodeAnswer(Record):
    """What a node mounts for a Slurm job."""

    state: NodeAnswerState
    run: int = 0  #: of the job's number
    uid: int = 0
    gid: int = 0
    striped: str = ""  #: uuid of the reservation with the job's own folders; "": it has none
    private: bool = False  #: a folder for each node, too
    mounts: tuple[JobMount, ...] = ()
    ending: bool = False  #: as the node keeps it: its epilog has begun


@dataclass(frozen=True, slots=True)
class NodeReported(Record):
    """The manager has heard what a node says of a job's files."""

    fenced: bool  #: the node was not clean in time, whatever it says now


@dataclass(frozen=True, slots=True)
class Drain(Record):
    """A server that takes no new grants."""

    server: str
    reason: str
    by_uid: int
    since_ns: int

    @property
    def text(self) -> str:
        """For people."""
        return f"server {self.server} is drained{f' ({self.reason})' if self.reason else ''} and makes no reservations"


@dataclass(frozen=True, slots=True)
class ServerStatus(Record):
    """A server of the pool, as the manager sees it."""

    server: str  #: its name
    uuid: str  #: of its root
    address: str  #: HOST:PORT; "": there is no pool of servers
    drained: Drain | None
    retired: bool
    away_since_ns: int | None  #: None: it answers
    capacity_bytes: int
    free_bytes: int
    reservations: int  #: how many have something there


@dataclass(frozen=True, slots=True)
class PoolServer(Record):
    """A server that has joined."""

    name: str
    address: str  #: HOST:PORT
    root_uuid: str
    joined_ns: int
    retired: bool = False  #: takes nothing new, and leaves with its last reservation


@dataclass(frozen=True, slots=True)
class Undrained(Record):
    """A server that makes reservations again."""

    server: str
    was_drained: bool  #: False: it did before


@dataclass(frozen=True, slots=True)
class Retirement(Record):
    """A server that takes nothing new."""

    server: str
    reservations: tuple[str, ...]  #: with the last of which it leaves
    left: bool  #: it is not in the pool any more


@dataclass(frozen=True, slots=True)
class GivenUp(Record):
    """A server that will not come back, and what became of its reservations."""

    server: str
    lost: tuple[str, ...]  #: whose home it was: gone with it
    damaged: tuple[str, ...]  #: that had only a share there


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
class StageRow(Record):
    """A stage: what it is to do and how far it has come."""

    id: int
    state: StageState
    job: dict[str, Any]  #: as `job_to_json` makes it
    owner_uid: int
    owner_gid: int
    umask: int
    cancel: bool  #: to be cancelled
    attempts: int
    created_ns: int
    started_ns: int | None
    finished_ns: int | None
    progress: dict[str, Any]  #: items_done, items_total (None: not known), bytes_done, item; empty: nothing told yet
    notes: tuple[str, ...]
    result: dict[str, Any] | None  #: by the kind of the job; None: it has not succeeded
    failure: dict[str, Any] | None  #: code, what, where, stream_broken of the last attempt that failed


@dataclass(frozen=True, slots=True)
class StageReceipt(Record):
    """Where the receipt of a stage lies."""

    path: str
    crc32c: str


@dataclass(frozen=True, slots=True)
class StageStatus(StageRow):
    """A stage that somebody looks at or follows."""

    version: int  #: higher each time that something has changed, while the manager lives
    receipt: StageReceipt | None  #: None: it has none yet


@dataclass(frozen=True, slots=True)
class ReceiptRow(Record):
    """A stage's receipt without the rows of its files: the first and the last line of docs/formats/receipt.md."""

    format: str
    version: int
    forebay: str  #: version that wrote it
    stage: int
    uid: int
    begun_ns: int
    job: dict[str, Any]  #: as `job_to_json` makes it
    ended_ns: int
    result: dict[str, Any]  #: what the stage said
    files: int
    size_bytes: int
    crc32c: str
    path: str  #: where it lies


@dataclass(frozen=True, slots=True)
class Answer(Record):
    """Why something stands still."""

    subject: str  #: for example "reservation run1"
    state: str
    since_ns: int | None  #: None: since nobody knows when
    waits_for: str
    held_by: tuple[str, ...] = ()
    ends: str = ""  #: what ends it
