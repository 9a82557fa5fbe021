# SPDX-License-Identifier: Apache-2.0
"""Who waits for space: one row for each reservation that somebody waits to create, in the order in which they came."""

from __future__ import annotations

import time

import sqlalchemy as sql

from forebay.errors import NoSpaceError, PermissionDeniedError
from forebay.manager.records import QueueRow, ReservationRow
from forebay.workflows.manager.core.access import is_administrator
from forebay.workflows.manager.core.database.database import Database, metadata

__all__ = ["QueueTable"]

#: Who waits says so again and again. After this long without a word the place is lost.
SEEN_SECONDS_MAX = 30.0
_LENGTH_MAX = 10_000
_OF_ONE_USER_MAX = 1000  # of those; the instance's own user and root are nobody's share

_queue = sql.Table(
    "queue",
    metadata,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=True),
    sql.Column("name", sql.String, nullable=False, unique=True),
    sql.Column("pool", sql.String, nullable=False),
    sql.Column("account", sql.String, nullable=False),
    sql.Column("size_bytes", sql.BigInteger, nullable=False),
    sql.Column("owner_uid", sql.BigInteger, nullable=False),
    sql.Column("created_ns", sql.BigInteger, nullable=False),
    sql.Column("seen_ns", sql.BigInteger, nullable=False),
    sqlite_autoincrement=True,
)


class QueueTable:
    """The rows. Usable from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def enter(self, request: ReservationRow) -> None:
        """Takes a place at the end, or says again that the one at that name is wanted.

        Raises
        ------
        PermissionDeniedError
            Somebody else waits for a reservation of that name.
        NoSpaceError
            The queue is full, or as many of it are this user's as may be.
        """
        now = time.time_ns()
        size_bytes = request.capacity_bytes + request.files_bytes
        asked = {
            "pool": request.pool,
            "account": request.account,
            "size_bytes": size_bytes,
            "owner_uid": request.owner_uid,
        }
        with self._database.change() as connection:
            known = connection.execute(_queue.select().where(_queue.c.name == request.name)).mappings().first()
            if known is not None and known["owner_uid"] != request.owner_uid:
                raise PermissionDeniedError(f"another user waits for a reservation {request.name}; choose another name")
            if known is not None and all(known[key] == value for key, value in asked.items()):
                connection.execute(_queue.update().where(_queue.c.id == known["id"]).values(seen_ns=now))
            else:
                # Who wants something else goes to the end.
                connection.execute(_queue.delete().where(_queue.c.name == request.name))
                if (connection.scalar(sql.select(sql.func.count()).select_from(_queue)) or 0) >= _LENGTH_MAX:
                    raise NoSpaceError(f"{_LENGTH_MAX} wait for space already, and no more may")
                own = sql.select(sql.func.count()).where(_queue.c.owner_uid == request.owner_uid)
                if not is_administrator(request.owner_uid) and (connection.scalar(own) or 0) >= _OF_ONE_USER_MAX:
                    raise NoSpaceError(
                        f"{_OF_ONE_USER_MAX} reservations of user {request.owner_uid} wait for space already, as many "
                        "as may; wait until some are there"
                    )
                connection.execute(
                    _queue.insert().values(asked | {"name": request.name, "created_ns": now, "seen_ns": now})
                )

    def leave(self, name: str, owner_uid: int | None = None) -> bool:
        """Gives a place up; False if there is none (of that user)."""
        wanted = _queue.c.name == name
        if owner_uid is not None:
            wanted = sql.and_(wanted, _queue.c.owner_uid == owner_uid)
        with self._database.change() as connection:
            return bool(connection.execute(_queue.delete().where(wanted)).rowcount)

    def forget_silent(self) -> None:
        """Removes those who have not said for a while that they still wait."""
        silent = _queue.c.seen_ns < time.time_ns() - round(SEEN_SECONDS_MAX * 1e9)
        with self._database.look() as connection:
            if not connection.scalar(sql.select(sql.func.count()).where(silent)):
                return
        with self._database.change() as connection:
            connection.execute(_queue.delete().where(silent))

    def greet_all(self) -> None:
        """After a start: nobody could be heard while the manager was away."""
        with self._database.change() as connection:
            connection.execute(_queue.update().values(seen_ns=time.time_ns()))

    def all(self) -> list[QueueRow]:
        """Those who wait, the first to come first."""
        with self._database.look() as connection:
            rows = connection.execute(_queue.select().order_by(_queue.c.id)).mappings()
            return [QueueRow(**row, ahead=number) for number, row in enumerate(rows)]
