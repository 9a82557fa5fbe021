# SPDX-License-Identifier: Apache-2.0
"""Attaching to reservations, and what becomes of one of lifetime `job` when its last holder has left.

It is destroyed as soon as nothing is in the way: no stage of its owner runs or waits, no writer is active, and no
precious step is unstaged. Running stages of others are waited for some minutes. Until then it stays, and `forebay why`
names the reason. An attach in between keeps it.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from forebay.errors import (
    DisconnectedError,
    ForebayError,
    InvalidArgumentError,
    NotFoundError,
    RefusedError,
)
from forebay.fail_point import fail_point
from forebay.manager.process_identity import process_identity
from forebay.manager.records import AttachmentKind, AttachmentRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.access import Peer, is_administrator
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable, UnattachedRow
from forebay.workflows.manager.core.database.database import IDS_AT_ONCE, Database
from forebay.workflows.manager.core.reservations.in_use import why_over
from forebay.workflows.manager.core.reservations.reservations import Reservations, no_reservation

__all__ = ["Attachments", "Hold"]

_log = logging.getLogger(__name__)

_TTL_SECONDS_MIN = 1.0
_TTL_SECONDS_MAX = 366 * 86400.0
_HOLDER_CHARACTERS_MAX = 80
_GRACE_SECONDS = 60.0
_AGAIN_SECONDS = 5.0
#: So long the end of a reservation waits for what others copy out of it.
_OTHERS_STAGES_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Hold:
    """What somebody who attaches asks for."""

    reservation: str
    holder: str
    pid: int | None = None
    process: str | None = None  #: which one, as its user sees it
    ttl_seconds: float | None = None


class Attachments:
    """Usable from several threads."""

    def __init__(self, database: Database, reservations: Reservations) -> None:
        self.table = AttachmentTable(database)
        self._database = database
        self._reservations = reservations
        self._guard = threading.Lock()  # Guards what follows.
        self._not_before: dict[str, float] = {}

    def start(self) -> None:
        """When the manager has come up: nobody could be extended before."""
        self.table.give_time(_GRACE_SECONDS)

    def attach(self, hold: Hold, peer: Peer) -> AttachmentRow:
        """Keeps a reservation in use; idempotent, and renews.

        Raises
        ------
        NotFoundError, BusyError
            There is no such reservation, or it belongs to another user, who does not share it, or it is being
            destroyed; or the process has ended.
        DisconnectedError
            It belongs to another user, and the server, which knows the shares, is away.
        """
        _check(hold)
        if hold.pid is not None and process_identity(hold.pid) != hold.process:
            raise NotFoundError(
                f"process {hold.pid} has ended, or the manager sees other processes than you (in a container?); "
                "use --ttl there"
            )
        known = self._reservations.find(hold.reservation)
        if not peer.may_see(known.owner_uid) and not self._reservations.is_shared_with(known.name, peer):
            raise no_reservation(hold.reservation)
        return self.table.put(_row(hold, peer.uid))

    def extend(self, hold: Hold, peer: Peer) -> AttachmentRow:
        """Lets an attachment last `ttl_seconds` from now; None: until it is detached."""
        _check(hold)
        return self.table.extend(_row(hold, peer.uid))

    def detach(self, reservation: str, holder: str, peer: Peer) -> bool:
        """Ends an attachment of the caller's; False if there is none.

        A reservation that goes with it is gone when this returns, unless something is in the way.
        """
        ended = self.table.end(AttachmentRow(reservation, AttachmentKind.USER, holder, peer.uid), "detached")
        if ended:
            fail_point("manager.attachment.ended")
            self._let_go(only=reservation)
        return ended

    def attach_job(self, reservation: str, job: str, uid: int) -> None:
        """The scheduler's job uses it until `detach_job`."""
        self.table.put(AttachmentRow(reservation, AttachmentKind.JOB, job, uid))

    def detach_job(self, job: str) -> None:
        """The scheduler is through with the job."""
        for row in self.table.of_job(job):
            self.table.end(row, "the job is over")
            self._let_go(only=row.reservation)

    def settle(self) -> None:
        """Ends what is over, and destroys what nobody uses any more; to be called again and again.

        Raises
        ------
        NoSpaceError, StorageError
            The manager's disk is full or fails; the next call does it.
        """
        over: dict[str, list[tuple[AttachmentRow, str]]] = {}
        may_be_over = self.table.whose_time_is_up()
        # Each process is looked at once: all attachments of one user may end with it.
        for pid, process in self.table.processes():
            if process_identity(pid) != process:
                may_be_over += self.table.of_process(pid, process)
        for row in may_be_over:
            if reason := why_over(row):
                over.setdefault(row.reservation, []).append((row, reason))
        # One by one, those of a user who has thousands would take minutes, and the reservations of others wait.
        for ended in over.values():
            for first in range(0, len(ended), IDS_AT_ONCE):
                rows = [row for row, _ in ended[first : first + IDS_AT_ONCE]]
                reason = ended[first + len(rows) - 1][1]
                more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
                _log.info("detached from %s: %s%s: %s", rows[-1].reservation, rows[-1].holder, more, reason)
                self.table.end_some(rows, reason)
        self._let_go()

    def left(self) -> set[str]:
        """Reservations of lifetime `job` whose last holder has left, and that still are there."""
        return {row.reservation for row in self.table.unattached()}

    def _let_go(self, *, only: str = "") -> None:
        """Destroys the reservations that nobody uses, as far as nothing is in the way."""
        waiting = self.table.unattached()
        names = {row.reservation for row in waiting}
        with self._guard:
            self._not_before = {name: when for name, when in self._not_before.items() if name in names}
            not_before = dict(self._not_before)
        now = time.monotonic()
        due = [row for row in waiting if now >= not_before.get(row.reservation, 0.0) and only in ("", row.reservation)]
        if not due:
            return
        busy = self._stages_in_the_way(due)
        for row in due:
            reason = self._let_one_go(row, busy)
            if reason:
                with self._guard:
                    self._not_before[row.reservation] = time.monotonic() + _AGAIN_SECONDS

    def _stages_in_the_way(self, waiting: list[UnattachedRow]) -> dict[str, int]:
        """A stage of each reservation that has one which the reservation's end waits for.

        Whoever may read can have a stage that never ends, and whoever has no right there one that waits. So those of
        others count only while they run, follow nothing, and for a bounded time.
        """
        owners = {row.name: row.owner_uid for row in self._database.reservations()}
        earliest_ns = time.time_ns() - round(_OTHERS_STAGES_SECONDS * 1e9)
        just_left = {row.reservation for row in waiting if row.since_ns > earliest_ns}
        found: dict[str, int] = {}
        for stage in self._database.stage_uses():
            is_own = stage.owner_uid == owners.get(stage.reservation) or is_administrator(stage.owner_uid)
            will_end = stage.state is StageState.RUNNING and not stage.follows
            if is_own or (will_end and stage.reservation in just_left):
                found[stage.reservation] = stage.id
        return found

    def _let_one_go(self, row: UnattachedRow, busy: dict[str, int]) -> str:
        """Returns what is in the way."""
        if row.reservation in busy:
            reason = f"stage {busy[row.reservation]} is not over"
        else:
            try:
                self._reservations.end_unattached(row.reservation)
                _log.info("reservation %s is destroyed: its last holder was %s", row.reservation, row.last_holder)
                return ""
            except RefusedError as error:
                reason = error.what
            except DisconnectedError:
                return "the server is away"
            except ForebayError as error:
                _log.warning("reservation %s cannot be destroyed yet: %s", row.reservation, error)
                reason = error.what
        self.table.note(row, reason)
        return reason


def _row(hold: Hold, uid: int) -> AttachmentRow:
    expires_ns = None if hold.ttl_seconds is None else time.time_ns() + round(hold.ttl_seconds * 1e9)
    return AttachmentRow(
        hold.reservation,
        AttachmentKind.USER,
        hold.holder,
        uid,
        pid=hold.pid,
        process=hold.process,
        ttl_seconds=hold.ttl_seconds,
        expires_ns=expires_ns,
    )


def _check(hold: Hold) -> None:
    if not 0 < len(hold.holder) <= _HOLDER_CHARACTERS_MAX or not hold.holder.isprintable():
        raise InvalidArgumentError(
            f"the holder's name must have 1 to {_HOLDER_CHARACTERS_MAX} printable characters; give another with --as"
        )
    if hold.ttl_seconds is not None and not _TTL_SECONDS_MIN <= hold.ttl_seconds <= _TTL_SECONDS_MAX:
        raise InvalidArgumentError("--ttl must be 1s to 366d")
    if hold.process is not None and hold.pid is None:
        raise InvalidArgumentError("which process is meant goes with its number")
    if hold.pid is not None and hold.ttl_seconds is not None:
        raise InvalidArgumentError("an attachment ends with a process or after a time; give --for or --ttl, not both")
