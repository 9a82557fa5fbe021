# SPDX-License-Identifier: Apache-2.0
"""Servers that take no new grants, because somebody is to work on them: what is there stays, and can be used."""

from __future__ import annotations

import time

import sqlalchemy as sql

from forebay.manager.records import Drain
from forebay.workflows.manager.core.database.database import Database, metadata

__all__ = ["DrainTable"]

_drains = sql.Table(
    "drains",
    metadata,
    sql.Column("server", sql.String, primary_key=True),
    sql.Column("reason", sql.String, nullable=False),
    sql.Column("by_uid", sql.BigInteger, nullable=False),
    sql.Column("since_ns", sql.BigInteger, nullable=False),
)


class DrainTable:
    """The rows. Usable from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def drain(self, server: str, reason: str, by_uid: int) -> Drain:
        """From now on it takes no new grants; a drained one keeps its time, and gets this reason."""
        with self._database.change() as connection:
            known = _drains.update().where(_drains.c.server == server)
            if not connection.execute(known.values(reason=reason, by_uid=by_uid)).rowcount:
                row = {"server": server, "reason": reason, "by_uid": by_uid, "since_ns": time.time_ns()}
                connection.execute(_drains.insert().values(row))
            return Drain(**connection.execute(_drains.select().where(_drains.c.server == server)).mappings().one())

    def undrain(self, server: str) -> bool:
        """It takes grants again; False if it did."""
        with self._database.change() as connection:
            return bool(connection.execute(_drains.delete().where(_drains.c.server == server)).rowcount)

    def of(self, server: str) -> Drain | None:
        """None if it takes grants."""
        with self._database.look() as connection:
            row = connection.execute(_drains.select().where(_drains.c.server == server)).mappings().first()
        return None if row is None else Drain(**row)
