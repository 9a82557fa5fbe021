# SPDX-License-Identifier: Apache-2.0
"""Who uses a reservation: one row for each holder, and one for each reservation whose last holder has left.

That a reservation is destroyed and that somebody attaches to it exclude each other: both change its row first, in the
same transaction, so one of them sees what the other did.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sql

from forebay.errors import BusyError, NoSpaceError, NotFoundError, RefusedError
from forebay.manager.records import AttachmentKind, AttachmentRow, ReservationState
from forebay.workflows.manager.core.access import is_administrator
from forebay.workflows.manager.core.database.database import Database, metadata, reservations_table

__all__ = ["AttachmentTable", "UnattachedRow"]

_ATTACHMENTS_MAX = 10_000  # of a reservation
_RESERVE = _ATTACHMENTS_MAX // 8  # of these, for users who have few there, and for jobs
_FEW = 8
_OF_ONE_USER_MAX = 20_000  # in all reservations; jobs do not count
_HOLDERS_NAMED = 3

_reservation_name = "reservations.name"

_attachments = sql.Table(
    "attachments",
    metadata,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=True),
    sql.Column(
        "reservation", sql.String, sql.ForeignKey(_reservation_name, ondelete="CASCADE"), nullable=False, index=True
    ),
    sql.Column("kind", sql.String, nullable=False),
    sql.Column("holder", sql.String, nullable=False, index=True),
    sql.Column("owner_uid", sql.BigInteger, nullable=False, index=True),
    sql.Column("pid", sql.Integer),
    sql.Column("process", sql.String),
    sql.Column("ttl_seconds", sql.Float),
    sql.Column("expires_ns", sql.BigInteger),
    sql.Column("created_ns", sql.BigInteger, nullable=False),
    sql.UniqueConstraint("reservation", "kind", "owner_uid", "holder"),
    sqlite_autoincrement=True,
)

_unattached = sql.Table(
    "unattached",
    metadata,
    sql.Column("reservation", sql.String, sql.ForeignKey(_reservation_name, ondelete="CASCADE"), primary_key=True),
    sql.Column("since_ns", sql.BigInteger, nullable=False),
    sql.Column("last_holder", sql.String, nullable=False),
    sql.Column("reason", sql.String, nullable=False),
)


@dataclass(frozen=True, slots=True)
class UnattachedRow:
    """A reservation of lifetime `job` that nobody uses any more: it is to be destroyed."""

    reservation: str
    since_ns: int
    last_holder: str
    reason: str  #: why it is there still; "" if nothing is known to be in the way


class AttachmentTable:
    """The rows. Usable from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, request: AttachmentRow) -> AttachmentRow:
        """Enters a holder, or renews it where it is there already.

        Raises
        ------
        NotFoundError, BusyError
            The reservation is not there, or is being destroyed.
        NoSpaceError
            It has as many holders as are counted, or as many of this user as may be.
        """
        with self._database.change() as connection:
            state = _lock(connection, request.reservation)
            if state is None or state is ReservationState.LOST:
                raise NotFoundError(f"there is no reservation {request.reservation}", request.reservation)
            if state is not ReservationState.PRESENT:
                raise BusyError(
                    f"reservation {request.reservation} is {state.value}; try again later", request.reservation
                )
            known = connection.execute(_attachments.select().where(_same(request))).mappings().first()
            values = {
                "pid": request.pid,
                "process": request.process,
                "ttl_seconds": request.ttl_seconds,
                "expires_ns": request.expires_ns,
            }
            if known is None:
                _check_place(connection, request)
                values |= {
                    "reservation": request.reservation,
                    "kind": request.kind,
                    "holder": request.holder,
                    "owner_uid": request.owner_uid,
                    "created_ns": time.time_ns(),
                }
                connection.execute(_attachments.insert().values(values))
            else:
                connection.execute(_attachments.update().where(_attachments.c.id == known["id"]).values(values))
            connection.execute(_unattached.delete().where(_unattached.c.reservation == request.reservation))
            row = _row(connection.execute(_attachments.select().where(_same(request))).mappings().one())
        self._database.note("attachments", request.reservation)
        return row

    def extend(self, request: AttachmentRow) -> AttachmentRow:
        """Gives a holder another end; NotFoundError if it is not attached."""
        with self._database.change() as connection:
            values = {"ttl_seconds": request.ttl_seconds, "expires_ns": request.expires_ns}
            changed = connection.execute(_attachments.update().where(_same(request)).values(values))
            if not changed.rowcount:
                raise NotFoundError(
                    f"{request.holder} is not attached to {request.reservation}; it was detached, or its time was up. "
                    f"`forebay attach {request.reservation}` attaches it again, if the reservation is still there",
                    request.reservation,
                )
            return _row(connection.execute(_attachments.select().where(_same(request))).mappings().one())

    def end(self, row: AttachmentRow, reason: str) -> bool:
        """Removes a holder; False if it is not there. With the last one goes a reservation that is not persistent."""
        return self._end(_same(row), row, reason)

    def end_some(self, rows: Sequence[AttachmentRow], reason: str) -> bool:
        """Removes holders of one reservation, up to `IDS_AT_ONCE` that were read, in one transaction; False if none is
        there. `reason`: the last one's.
        """
        return self._end(_attachments.c.id.in_([row.id for row in rows]), rows[-1], reason)

    def _end(self, which: sql.ColumnElement[bool], last: AttachmentRow, reason: str) -> bool:
        with self._database.change() as connection:
            _lock(connection, last.reservation)
            if not connection.execute(_attachments.delete().where(which)).rowcount:
                return False
            left = connection.scalar(sql.select(sql.func.count()).where(_attachments.c.reservation == last.reservation))
            persistent = connection.scalar(
                sql.select(reservations_table.c.persistent).where(reservations_table.c.name == last.reservation)
            )
            if not left and persistent is False:
                connection.execute(
                    _unattached.insert().values(
                        reservation=last.reservation,
                        since_ns=time.time_ns(),
                        last_holder=f"{last.holder} ({reason})",
                        reason="",
                    )
                )
        self._database.note("attachments", last.reservation)
        return True

    def doom(self, name: str) -> None:
        """The reservation is to be destroyed: from now on nobody attaches to it.

        Raises
        ------
        RefusedError
            Somebody is attached.
        """
        with self._database.change() as connection:
            _lock(connection, name)
            holders = connection.execute(_attachments.select().where(_attachments.c.reservation == name)).mappings()
            _refuse_if_held(name, [_row(row) for row in holders])
            connection.execute(
                reservations_table.update()
                .where(reservations_table.c.name == name)
                .values(state=ReservationState.DESTROYING, force=False)
            )
        self._database.note("reservations", name)

    def must_be_free(self, name: str) -> None:
        """RefusedError if somebody is attached."""
        _refuse_if_held(name, self.of(name))

    def of(self, reservation: str) -> list[AttachmentRow]:
        """The holders of one reservation, oldest first."""
        return self._where(_attachments.c.reservation == reservation)

    def all(self) -> list[AttachmentRow]:
        """All holders, oldest first."""
        return self._where()

    def visible_to(self, uid: int) -> list[AttachmentRow]:
        """Those of a user, and those to the user's reservations, oldest first; others' are not read."""
        own = sql.select(reservations_table.c.name).where(reservations_table.c.owner_uid == uid)
        return self._where(sql.or_(_attachments.c.owner_uid == uid, _attachments.c.reservation.in_(own)))

    def of_job(self, holder: str) -> list[AttachmentRow]:
        """Those of a scheduler's job."""
        return self._where(_attachments.c.kind == AttachmentKind.JOB, _attachments.c.holder == holder)

    def whose_time_is_up(self) -> list[AttachmentRow]:
        """Those that were to be extended before now."""
        return self._where(_attachments.c.expires_ns <= time.time_ns())

    def processes(self) -> list[tuple[int, str]]:
        """Number and identity of each process with which attachments end, once, however many do."""
        pid, process = _attachments.c.pid, _attachments.c.process
        query = sql.select(pid, process).where(pid.is_not(None), process.is_not(None)).distinct()
        with self._database.look() as connection:
            return [(number, identity) for number, identity in connection.execute(query)]

    def of_process(self, pid: int, process: str) -> list[AttachmentRow]:
        """Those that end with it."""
        return self._where(_attachments.c.pid == pid, _attachments.c.process == process)

    def _where(self, *wanted: sql.ColumnElement[bool]) -> list[AttachmentRow]:
        """The oldest first."""
        query = _attachments.select().where(*wanted).order_by(_attachments.c.id)
        with self._database.look() as connection:
            return [_row(row) for row in connection.execute(query).mappings()]

    def known_ends(self, pool: str) -> list[tuple[int, int]]:
        """When reservations of this pool go by themselves, at the latest, and what they hold: of those that live until
        their last attachment, where each attachment has a time.
        """
        last = sql.func.max(_attachments.c.expires_ns)
        size = reservations_table.c.capacity_bytes + reservations_table.c.files_bytes
        query = (
            sql.select(last, size)
            .select_from(reservations_table.join(_attachments))
            .where(reservations_table.c.pool == pool, reservations_table.c.persistent.is_(False))
            .group_by(reservations_table.c.name, reservations_table.c.capacity_bytes, reservations_table.c.files_bytes)
            .having(sql.func.count() == sql.func.count(_attachments.c.expires_ns))
        )
        with self._database.look() as connection:
            return [(end_ns, size_bytes) for end_ns, size_bytes in connection.execute(query)]

    def unattached(self) -> list[UnattachedRow]:
        """The reservations whose last holder has left, the longest first."""
        with self._database.look() as connection:
            # One that was made persistent since is not to go.
            persistent = sql.select(reservations_table.c.persistent).where(
                reservations_table.c.name == _unattached.c.reservation
            )
            wanted = persistent.scalar_subquery().is_(False)
            rows = connection.execute(_unattached.select().where(wanted).order_by(_unattached.c.since_ns)).mappings()
            return [UnattachedRow(**row) for row in rows]

    def forget_unattached(self, reservation: str) -> None:
        """It stays although its last holder has left; what is said of it later begins anew."""
        with self._database.change() as connection:
            connection.execute(_unattached.delete().where(_unattached.c.reservation == reservation))

    def note(self, row: UnattachedRow, reason: str) -> None:
        """Remembers why a reservation is not destroyed yet."""
        if reason == row.reason:
            return
        with self._database.change() as connection:
            connection.execute(
                _unattached.update().where(_unattached.c.reservation == row.reservation).values(reason=reason)
            )

    def give_time(self, seconds: float) -> None:
        """After a start: holders could not be extended while the manager was away, so none expires at once."""
        ttl = _attachments.c.ttl_seconds
        given_seconds = sql.case((ttl < seconds, ttl), else_=seconds)
        earliest_ns = time.time_ns() + sql.cast(given_seconds * 1_000_000_000, sql.BigInteger)
        # All at once: one by one, thousands of a user would keep everybody waiting for the start.
        with self._database.change() as connection:
            connection.execute(
                _attachments.update()
                .where(ttl.is_not(None), _attachments.c.expires_ns < earliest_ns)
                .values(expires_ns=earliest_ns)
            )


def _lock(connection: sql.Connection, name: str) -> ReservationState | None:
    """The reservation's state, which no other transaction changes until this one ends; None if there is none."""
    reservations = reservations_table
    connection.execute(reservations.update().where(reservations.c.name == name).values(state=reservations.c.state))
    state = connection.scalar(sql.select(reservations.c.state).where(reservations.c.name == name))
    return None if state is None else ReservationState(state)


def _same(row: AttachmentRow) -> sql.ColumnElement[bool]:
    return sql.and_(
        _attachments.c.reservation == row.reservation,
        _attachments.c.kind == row.kind,
        _attachments.c.owner_uid == row.owner_uid,
        _attachments.c.holder == row.holder,
    )


def _refuse_if_held(name: str, holders: list[AttachmentRow]) -> None:
    if not holders:
        return
    named = ", ".join(f"{row.holder} (user {row.owner_uid})" for row in holders[:_HOLDERS_NAMED])
    more = f" and {len(holders) - _HOLDERS_NAMED} more" if len(holders) > _HOLDERS_NAMED else ""
    raise RefusedError(
        f"reservation {name} is in use by {named}{more}; wait until they detach, or destroy it by force", name
    )


def _check_place(connection: sql.Connection, request: AttachmentRow) -> None:
    """NoSpaceError if there is no place for one more of this user."""

    def count(*of: sql.ColumnElement[bool]) -> int:
        return connection.scalar(sql.select(sql.func.count()).select_from(_attachments).where(*of)) or 0

    there, own = _attachments.c.reservation == request.reservation, _attachments.c.owner_uid == request.owner_uid
    taken = count(there)
    if taken >= _ATTACHMENTS_MAX:
        raise NoSpaceError(
            f"reservation {request.reservation} has {_ATTACHMENTS_MAX} attachments, and takes no more",
            request.reservation,
        )
    if request.kind is not AttachmentKind.USER or is_administrator(request.owner_uid):
        return
    if taken >= _ATTACHMENTS_MAX - _RESERVE and count(there, own) >= _FEW:
        raise NoSpaceError(
            f"reservation {request.reservation} has {taken} attachments; the last {_RESERVE} places are for users who "
            f"have fewer than {_FEW}; detach some",
            request.reservation,
        )
    if count(own, _attachments.c.kind == AttachmentKind.USER) >= _OF_ONE_USER_MAX:
        raise NoSpaceError(
            f"user {request.owner_uid} has {_OF_ONE_USER_MAX} attachments, as many as may be; detach some",
            request.reservation,
        )


def _row(row: Any) -> AttachmentRow:
    return AttachmentRow(**(dict(row) | {"kind": AttachmentKind(row["kind"])}))
