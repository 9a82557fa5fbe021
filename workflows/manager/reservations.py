# SPDX-License-Identifier: Apache-2.0
"""Reservations as they were asked for against those that the server has: create, destroy, and repair after crashes.

The wish is written down before the server is asked, and its outcome after. A crash between leaves a row in state
CREATING or DESTROYING, which `reconcile` carries through; both calls to the server are idempotent. Changes of one
reservation take turns; those of different ones do not wait for one another.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace

from forebay.errors import (
    AlreadyExistsError,
    BusyError,
    DisconnectedError,
    ForebayError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    RefusedError,
    StorageError,
)
from forebay.near_names import near_text
from forebay.records import Finding, Lifetime, ReservationInfo, Severity, StreamStatus
from forebay.workflows.manager.admission import FullError
from forebay.workflows.manager.attachment_table import AttachmentTable
from forebay.workflows.manager.database import Database, ReservationRow
from forebay.workflows.manager.differences import another_exists
from forebay.workflows.manager.job_table import JobTable
from forebay.workflows.manager.name_turns import NameTurns
from forebay.workflows.manager.pool_settings import PoolSettings
from forebay.workflows.manager.pools import Place, Pools
from forebay.workflows.manager.server_link import ServerLink
from forebay.workflows.manager.states import ReservationState

__all__ = ["Reservations"]

_log = logging.getLogger(__name__)

_REASONS_SHOWN = 3
_ROOM_SECONDS_MAX = 5.0
_ROOM_POLL_SECONDS = 0.05


class Reservations:
    """Creates and destroys. Usable from several threads."""

    def __init__(self, database: Database, link: ServerLink, pools: PoolSettings | None = None) -> None:
        self._database = database
        self._attachments = AttachmentTable(database)
        self._jobs = JobTable(database)
        self._link = link
        self.pools = Pools(database, link, pools or PoolSettings())
        self._turns = NameTurns()  # One change of each at a time: wish, call, outcome.
        self._admission = threading.Lock()  # Who is admitted is counted before the next one asks.

    def create(self, wish: ReservationRow, *, queues: bool = True) -> ReservationInfo:
        """Creates the reservation; idempotent.

        Parameters
        ----------
        queues : bool
            Whoever came before and waits for space is first. Not for a scheduler, which has a queue of its own.

        Raises
        ------
        AlreadyExistsError, NoSpaceError, InvalidArgumentError, PermissionDeniedError
            The server refuses, or the rules of pool and account do; nothing is remembered.
        DisconnectedError
            The server was lost; whether it exists is settled when the server is back.
        NoSpaceError, StorageError
            The manager's disk is full or fails; asked again when it does not, it is created if it was not.
        """
        with self._turns.of(wish.name):
            known = self._database.reservation(wish.name)
            if known is not None and known.state is ReservationState.PRESENT:
                self._refuse_other(wish, known)
            else:
                with self._admission:
                    self.pools.check(wish, queues=queues)
                    self._database.put_reservation(replace(wish, state=ReservationState.CREATING))
            try:
                info = self._ask_for(wish)
            except DisconnectedError:
                raise
            except ForebayError as error:
                if known is None:
                    self._database.forget_reservation(wish.name)
                elif known.state is not ReservationState.PRESENT:
                    self._database.put_reservation(known)
                if isinstance(error, AlreadyExistsError) and (existing := self._adopt_from_server(wish.name)):
                    self._refuse_other(wish, existing)
                raise
            self._adopt(info)
            return info

    def change(
        self, name: str, *, persistent: bool | None, files_bytes: int | None, by_uid: int | None
    ) -> ReservationInfo:
        """Changes lifetime and capacity for files of a reservation; None: as it is. Idempotent.

        Parameters
        ----------
        by_uid : int, optional
            Who asks, if it must be the owner.

        Raises
        ------
        NotFoundError
            There is none.
        PermissionDeniedError
            It belongs to another user.
        NoSpaceError
            Pool or quota have too little left, or the manager's disk is full.
        RefusedError
            More lies in its files/ than it would have, or it is that of a job.
        BusyError
            It is being created or destroyed.
        DisconnectedError
            The server was lost; whether it is changed is seen when the server is back.
        """
        with self._turns.of(name):
            known = self._database.reservation(name) or self._adopt_from_server(name)
            if known is None:
                near = near_text(name, self.names_of(by_uid))
                raise NotFoundError(f"there is no reservation of this name{near}", name)
            if by_uid is not None and known.owner_uid != by_uid:
                raise PermissionDeniedError(
                    f"reservation {name} belongs to user {known.owner_uid}; ask them, or the administrator", name
                )
            if known.state in (ReservationState.CREATING, ReservationState.DESTROYING):
                doing = "made" if known.state is ReservationState.CREATING else "destroyed"
                raise BusyError(f"reservation {name} is being {doing}; ask again when that is over", name)
            if self._jobs.uses_as_own(name):
                raise RefusedError(
                    f"reservation {name} is that of a job and ends with it; its script says how large it is", name
                )
            grown = None
            if files_bytes is not None and files_bytes > known.files_bytes:
                grown = replace(known, files_bytes=files_bytes)
                with self._admission:
                    self.pools.check_growth(known, files_bytes)
                    self._database.put_reservation(grown)  # counts from now on
            try:
                with self._link.admin() as admin:
                    info = admin.change(name, persistent=persistent, files=files_bytes)
            except DisconnectedError:
                raise
            except ForebayError:
                if grown is not None:
                    self._database.put_reservation(known)
                raise
            self._adopt(info)
            if info.lifetime is Lifetime.PERSISTENT:
                self._attachments.forget_unattached(name)
            return info

    def create_or_wait(self, wish: ReservationRow) -> ReservationInfo | Place:
        """As `create`; where there is no room now, takes a place in the queue, or keeps the one it has.

        To be called again and again: a place at which nobody asks any more is lost (`QueueTable`).
        """
        self.pools.enter(wish)
        try:
            info = self.create(wish)
        except FullError as error:
            return self.pools.place(wish, error)
        except DisconnectedError:
            raise
        except ForebayError:
            self.pools.leave(wish.name)
            raise
        self.pools.leave(wish.name)
        return info

    def destroy(self, name: str, *, force: bool, by_uid: int | None) -> bool:
        """Destroys the reservation; idempotent. False if there was none.

        Parameters
        ----------
        by_uid : int, optional
            Who asks, if it must be the owner.

        Raises
        ------
        PermissionDeniedError
            It belongs to another user.
        RefusedError
            Somebody is attached, or the server refuses, without `force`; the reservation stays.
        DisconnectedError
            The server was lost; the reservation is destroyed when the server is back.
        NoSpaceError, StorageError
            The manager's disk is full or fails; asked again when it does not, it is destroyed if it was not.
        """
        with self._turns.of(name):
            known = self._database.reservation(name) or self._adopt_from_server(name)
            if known is None:
                return False
            if by_uid is not None and known.owner_uid != by_uid:
                raise PermissionDeniedError(
                    f"reservation {name} belongs to user {known.owner_uid}; ask them, or the administrator", name
                )
            self._carry_out_destroy(known, force=force)
            return True

    def find(self, name: str) -> ReservationRow:
        """The reservation as it was asked for; NotFoundError if there is none."""
        known = self._database.reservation(name)
        if known is None:
            with self._turns.of(name):
                known = self._database.reservation(name) or self._adopt_from_server(name)
        if known is None:
            raise NotFoundError(f"there is no reservation {name}; `forebay create {name} …` makes it", name)
        return known

    def info(self, name: str) -> ReservationInfo:
        """As the server knows it; NotFoundError if it has none, DisconnectedError if it is away."""
        with self._link.admin() as admin:
            return admin.reservation(name)

    def end_unattached(self, name: str) -> None:
        """Destroys a reservation whose last holder has left, unless somebody has attached to it since.

        Raises
        ------
        RefusedError
            Somebody is attached, or the server refuses; it stays.
        """
        with self._turns.of(name):
            known = self._database.reservation(name)
            if known is not None and not known.persistent:  # it may have been made so since
                self._carry_out_destroy(known, force=False)

    def destroy_non_persistent(self, *, force: bool) -> list[str]:
        """Destroys all that live only until the instance goes down; returns their names.

        Raises
        ------
        RefusedError
            One of them has writers or unstaged precious steps. All of them stay, unless the writers came while others
            were already being destroyed; the text then names these.
        """
        self.reconcile()
        doomed = [row for row in self._database.reservations() if not row.persistent]
        if not force:
            self._refuse_if_in_use(doomed)
        destroyed: list[str] = []
        for row in doomed:
            try:
                with self._turns.of(row.name):
                    known = self._database.reservation(row.name)
                    if known is None or known.persistent:
                        continue
                    self._carry_out_destroy(known, force=force)
            except RefusedError as error:
                gone = f"; already destroyed: {', '.join(destroyed)}" if destroyed else ""
                raise RefusedError(error.what + gone, error.where) from None
            destroyed.append(row.name)
        return destroyed

    def names_of(self, owner_uid: int | None) -> list[str]:
        """The reservations that this user has; None: all of them."""
        rows = self._database.reservations()
        return [row.name for row in rows if owner_uid is None or row.owner_uid == owner_uid]

    def reconcile(self, *, patient: bool = True) -> None:
        """Brings what was asked for and what the server has together: at each start, when the server is back, and
        before findings are reported.

        Parameters
        ----------
        patient : bool
            Waits also for those that somebody changes just now; else these are left to whoever changes them.

        Raises
        ------
        DisconnectedError
            The server cannot be reached.
        """
        with self._link.admin() as admin:
            existing = {info.name: info for info in admin.reservations()}
        rows = {row.name: row for row in self._database.reservations()}
        for name in sorted(existing.keys() | rows.keys()):
            row, info = rows.get(name), existing.get(name)
            if row is not None and info is not None and row.state is ReservationState.PRESENT and _is_same(row, info):
                continue
            if patient or not self._turns.is_taken(name):
                with self._turns.of(name):
                    self._reconcile_one(name)

    def findings(self) -> list[Finding]:
        """What `forebay doctor` should say about reservations, compared again with what the server has.

        Raises
        ------
        DisconnectedError
            The server cannot be reached.
        """
        try:
            self._database.check_writable()
            self.reconcile(patient=False)
        except (NoSpaceError, StorageError) as error:
            return [Finding(Severity.PROBLEM, "manager", str(error))]
        drain = self.pools.drain_now()
        drained = [] if drain is None else [Finding(Severity.NOTE, "server", f"{drain.text}; see `forebay undrain`")]
        return drained + [
            Finding(
                Severity.PROBLEM,
                f"reservation {row.name}",
                "it should exist, but the server does not have it: somebody removed its data without the manager. "
                f"`forebay destroy {row.name}` forgets it, `forebay create {row.name} …` creates it again, empty",
            )
            for row in self._database.reservations()
            if row.state is ReservationState.LOST
        ]

    def _reconcile_one(self, name: str) -> None:
        """Looks at both sides again, for both may have changed before it was this one's turn."""
        existing: ReservationInfo | None = None
        with self._link.admin() as admin, contextlib.suppress(NotFoundError):
            existing = admin.reservation(name)
        row = self._database.reservation(name)
        if row is not None:
            self._reconcile_row(row, existing)
        elif existing is not None:
            _log.info("reservation %s was not made by this manager; taking it over", name)
            self._adopt(existing)

    def _reconcile_row(self, row: ReservationRow, existing: ReservationInfo | None) -> None:
        if row.state is ReservationState.DESTROYING:
            try:
                self._carry_out_destroy(row, force=row.force)
            except RefusedError as error:
                _log.warning("reservation %s stays: %s", row.name, error)
        elif row.state is ReservationState.CREATING:
            try:
                info = self._ask_for(row)
            except DisconnectedError:
                raise
            except ForebayError as error:
                # Whoever asked for it was told nothing, or that the manager was lost; it is not there and that is
                # consistent.
                _log.warning("reservation %s is not created: %s", row.name, error)
                self._database.forget_reservation(row.name)
            else:
                self._adopt(info)
        elif existing is None and row.state is ReservationState.PRESENT:
            _log.error("reservation %s should exist, but the server does not have it", row.name)
            self._database.set_reservation_state(row.name, ReservationState.LOST)
        elif existing is not None and (row.state is ReservationState.LOST or not _is_same(row, existing)):
            # It was created again without the manager, or changed just before the manager was lost.
            self._adopt(existing)

    def _refuse_if_in_use(self, rows: list[ReservationRow]) -> None:
        """Looks at all before anything is destroyed."""
        reasons: list[str] = []
        with self._link.admin() as admin:
            for row in rows:
                try:
                    streams = admin.streams(row.name)
                except NotFoundError:  # lost: there is nothing to lose any more
                    continue
                for stream in streams:
                    path = f"{row.name}/{stream.name}"
                    if stream.status is StreamStatus.LIVE:
                        reasons.append(f"{path} is being written")
                    elif precious := sum(step.precious for step in admin.steps(path)):
                        reasons.append(f"{path} has {precious} precious steps that are not staged out")
        if not reasons:
            return
        shown = "; ".join(reasons[:_REASONS_SHOWN])
        more = len(reasons) - _REASONS_SHOWN
        raise RefusedError(
            f"nothing was destroyed: {shown}{f'; and {more} more streams' if more > 0 else ''}. End the writers, stage "
            "the steps out, or use --force"
        )

    def _refuse_other(self, wish: ReservationRow, have: ReservationRow) -> None:
        """AlreadyExistsError if the reservation of that name is another one than is asked for."""
        with self._link.admin() as admin:
            granularity_bytes = admin.server().granularity_bytes
        if error := another_exists(wish, have, granularity_bytes):
            raise error

    def _ask_for(self, wish: ReservationRow) -> ReservationInfo:
        """Has the server create it."""
        with self._link.admin() as admin:
            try:
                return admin.create(
                    wish.name,
                    wish.capacity_bytes,
                    files=wish.files_bytes,
                    persistent=wish.persistent,
                    access_mode=wish.access_mode,
                    type=wish.type,
                    owner_uid=wish.owner_uid,
                    owner_gid=wish.owner_gid,
                )
            except NoSpaceError as error:
                raise FullError(error.what, error.where) from None

    def _carry_out_destroy(self, row: ReservationRow, *, force: bool) -> None:
        doomed = replace(row, state=ReservationState.DESTROYING, force=force)
        try:
            if force or row.state is ReservationState.DESTROYING:
                self._database.put_reservation(doomed)
            else:
                self._attachments.doom(row.name)
        except NoSpaceError as error:
            if not force:
                self._attachments.must_be_free(row.name)
            # Destroying may be what makes the room. A death in between leaves a row that `forebay doctor` tells of.
            _log.warning("reservation %s is destroyed without a note of it: %s", row.name, error)
            doomed = row
        try:
            with self._link.admin() as admin:
                admin.destroy(row.name, force=force)
        except RefusedError:
            before = ReservationState.PRESENT if row.state is ReservationState.DESTROYING else row.state
            if doomed is not row:
                self._database.put_reservation(replace(row, state=before, force=False))
            raise
        if doomed is row:
            self._forget_when_there_is_room(row.name)
        else:
            self._database.forget_reservation(row.name)

    def _forget_when_there_is_room(self, name: str) -> None:
        """The server may answer before the disk has the space back."""
        deadline = time.monotonic() + _ROOM_SECONDS_MAX
        while True:
            try:
                self._database.forget_reservation(name)
                return
            except NoSpaceError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_ROOM_POLL_SECONDS)

    def _adopt_from_server(self, name: str) -> ReservationRow | None:
        with self._link.admin() as admin:
            try:
                return self._adopt(admin.reservation(name))
            except NotFoundError:
                return None

    def _adopt(self, info: ReservationInfo) -> ReservationRow:
        known = self._database.reservation(info.name)
        row = ReservationRow(
            name=info.name,
            capacity_bytes=info.capacity_bytes,
            files_bytes=info.files_bytes,
            persistent=info.lifetime is Lifetime.PERSISTENT,
            access_mode=info.access_mode.value,
            type=info.type.value,
            owner_uid=info.owner_uid,
            owner_gid=info.owner_gid,
            state=ReservationState.PRESENT,
            id=info.id,
            created_ns=info.created_ns,
            # The server knows nothing of these.
            pool="" if known is None else known.pool,
            account="" if known is None else known.account,
        )
        self._database.put_reservation(row)
        return row


def _is_same(row: ReservationRow, info: ReservationInfo) -> bool:
    persistent = info.lifetime is Lifetime.PERSISTENT
    return (row.id, row.persistent, row.files_bytes) == (info.id, persistent, info.files_bytes)
