# SPDX-License-Identifier: Apache-2.0
"""The jobs that a scheduler reported to the manager: one row for each run of a job's token."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sql

from forebay.manager.records import JobRow, JobState
from forebay.workflows.manager.core.database.database import Database, metadata

__all__ = ["JobTable", "is_name_of_a_job"]

_NAME = re.compile(r"job[0-9]+(\.[0-9]+)?")

_jobs = sql.Table(
    "jobs",
    metadata,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=True),
    sql.Column("token", sql.String, nullable=False, index=True),
    sql.Column("run", sql.Integer, nullable=False),
    sql.Column("state", sql.String, nullable=False, index=True),
    sql.Column("owner_uid", sql.BigInteger, nullable=False),
    sql.Column("owner_gid", sql.BigInteger, nullable=False),
    sql.Column("capacity_bytes", sql.BigInteger, nullable=False),
    sql.Column("reservation", sql.String, nullable=False),
    sql.Column("directives", sql.JSON, nullable=False),
    sql.Column("stages", sql.JSON, nullable=False),
    sql.Column("reason", sql.String, nullable=False),
    sql.Column("quiet", sql.Boolean, nullable=False),
    sql.Column("node_count", sql.Integer, nullable=False),
    sql.Column("deadline_ns", sql.BigInteger),
    sql.Column("created_ns", sql.BigInteger, nullable=False),
    sql.Column("changed_ns", sql.BigInteger, nullable=False),
    sql.UniqueConstraint("token", "run"),
    sqlite_autoincrement=True,
)


def is_name_of_a_job(reservation: str) -> bool:
    """A run of a job may want it for its own reservation."""
    return _NAME.fullmatch(reservation) is not None


class JobTable:
    """The rows. Usable from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        token: str,
        owner_uid: int,
        owner_gid: int,
        capacity_bytes: int,
        directives: dict[str, Any],
        deadline_ns: int | None = None,
    ) -> JobRow:
        """Enters the next run of a token, in state SETUP."""
        now = time.time_ns()
        with self._database.change() as connection:
            runs = connection.scalar(sql.select(sql.func.max(_jobs.c.run)).where(_jobs.c.token == token))
            run = (runs or 0) + 1
            inserted = connection.execute(
                _jobs.insert().values(
                    token=token,
                    run=run,
                    state=JobState.SETUP,
                    owner_uid=owner_uid,
                    owner_gid=owner_gid,
                    capacity_bytes=capacity_bytes,
                    reservation="" if not capacity_bytes else f"job{token}" if run == 1 else f"job{token}.{run}",
                    directives=directives,
                    stages={},
                    reason="",
                    quiet=False,
                    node_count=0,
                    deadline_ns=deadline_ns,
                    created_ns=now,
                    changed_ns=now,
                )
            )
            assert inserted.inserted_primary_key is not None
            row_id = inserted.inserted_primary_key[0]
            row = _row(connection.execute(_jobs.select().where(_jobs.c.id == row_id)).mappings().one())
        self._database.note("jobs", row.id)
        return row

    def change(self, row_id: int, **values: Any) -> JobRow:
        """Changes one; returns it as it is now."""
        with self._database.change() as connection:
            connection.execute(_jobs.update().where(_jobs.c.id == row_id).values(**values, changed_ns=time.time_ns()))
            row = _row(connection.execute(_jobs.select().where(_jobs.c.id == row_id)).mappings().one())
        self._database.note("jobs", row_id)
        return row

    def numbered(self, row_id: int) -> JobRow | None:
        """The run of that number."""
        with self._database.look() as connection:
            row = connection.execute(_jobs.select().where(_jobs.c.id == row_id)).mappings().first()
            return None if row is None else _row(row)

    def current(self, token: str) -> JobRow | None:
        """The newest run of a token."""
        with self._database.look() as connection:
            query = _jobs.select().where(_jobs.c.token == token).order_by(_jobs.c.run.desc()).limit(1)
            row = connection.execute(query).mappings().first()
            return None if row is None else _row(row)

    def all(self, states: Iterable[JobState] | None = None) -> list[JobRow]:
        """All runs, oldest first, or those in one of these states."""
        query = _jobs.select().order_by(_jobs.c.id)
        if states is not None:
            query = query.where(_jobs.c.state.in_(list(states)))
        with self._database.look() as connection:
            return [_row(row) for row in connection.execute(query).mappings()]

    def uses_as_own(self, reservation: str) -> bool:
        """A run made it for itself, and it is not gone."""
        wanted = sql.and_(_jobs.c.reservation == reservation, _jobs.c.state != JobState.GONE)
        with self._database.look() as connection:
            return connection.execute(sql.select(_jobs.c.id).where(wanted).limit(1)).first() is not None

    def forget_old(self, kept: int) -> None:
        """Removes the runs of which nothing is left, except the newest ones."""
        old = sql.select(_jobs.c.id).where(_jobs.c.state == JobState.GONE).order_by(_jobs.c.id.desc()).offset(kept)
        with self._database.change() as connection:
            connection.execute(_jobs.delete().where(_jobs.c.id.in_(old)))


def _row(row: Any) -> JobRow:
    return JobRow(**(dict(row) | {"state": JobState(row["state"])}))
