# SPDX-License-Identifier: Apache-2.0
"""Nodes of jobs that see files of a reservation of another node: who may mount what, and who has let go of it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sql

from forebay.workflows.manager.core.database.database import Database, metadata

__all__ = ["JobNodeRow", "JobNodeState", "JobNodeTable"]

_nodes = sql.Table(
    "job_nodes",
    metadata,
    sql.Column("job_id", sql.Integer, primary_key=True),
    sql.Column("reservation_id", sql.String, primary_key=True),
    sql.Column("node", sql.String, primary_key=True),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("source", sql.String, nullable=False),
    sql.Column("port", sql.Integer, nullable=False),
    sql.Column("tree", sql.String, nullable=False),
    sql.Column("reason", sql.String, nullable=False),
    sql.Column("changed_ns", sql.BigInteger, nullable=False),
)


class JobNodeState(StrEnum):
    """How far a node has come."""

    OPEN = "open"  #: it may mount
    MOUNTED = "mounted"
    CLEAN = "clean"  #: it has synced and unmounted
    FENCED = "fenced"  #: it had not, when its way in was taken away

    @property
    def has_let_go(self) -> bool:
        """Nothing of it can land any more."""
        return self in (JobNodeState.CLEAN, JobNodeState.FENCED)


@dataclass(frozen=True, slots=True)
class JobNodeRow:
    """One node of one run of a job, and one reservation."""

    job_id: int
    reservation_id: str
    node: str
    state: JobNodeState
    source: str  #: what it mounts
    port: int
    tree: str  #: the same at the home
    reason: str  #: why it has not mounted, or what may be missing; "" without anything
    changed_ns: int


class JobNodeTable:
    """The rows. Usable from several threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, job_id: int, reservation_id: str, node: str, source: str, port: int, tree: str) -> None:
        """The node may mount; what is written there already stays if it is the same mount."""
        key = _key(job_id, reservation_id, node)
        values = {"source": source, "port": port, "tree": tree}
        fresh = {"state": JobNodeState.OPEN, "reason": "", "changed_ns": time.time_ns()}
        with self._database.change() as connection:
            known = connection.execute(_nodes.select().where(key)).mappings().first()
            if known is None:
                names = {"job_id": job_id, "reservation_id": reservation_id, "node": node}
                connection.execute(_nodes.insert().values(**names, **values, **fresh))
            elif any(known[name] != value for name, value in values.items()):
                connection.execute(_nodes.update().where(key).values(**values, **fresh))

    def change(self, row: JobNodeRow, state: JobNodeState, reason: str = "") -> None:
        """Its state from now on."""
        values: dict[str, Any] = {"state": state, "reason": reason, "changed_ns": time.time_ns()}
        with self._database.change() as connection:
            key = _key(row.job_id, row.reservation_id, row.node)
            connection.execute(_nodes.update().where(key).values(**values))

    def of_job(self, job_id: int) -> list[JobNodeRow]:
        """Those of one run."""
        return self._rows(_nodes.c.job_id == job_id)

    def of_reservation(self, reservation_id: str) -> list[JobNodeRow]:
        """Those that use one reservation."""
        return self._rows(_nodes.c.reservation_id == reservation_id)

    def forget_gone(self) -> None:
        """Removes those of runs that the manager has forgotten."""
        jobs = metadata.tables["jobs"]
        with self._database.change() as connection:
            connection.execute(_nodes.delete().where(_nodes.c.job_id.not_in(sql.select(jobs.c.id))))

    def _rows(self, wanted: Any) -> list[JobNodeRow]:
        query = _nodes.select().where(wanted).order_by(_nodes.c.node)
        with self._database.look() as connection:
            return [
                JobNodeRow(**(dict(row) | {"state": JobNodeState(row["state"])}))
                for row in connection.execute(query).mappings()
            ]


def _key(job_id: int, reservation_id: str, node: str) -> Any:
    return sql.and_(_nodes.c.job_id == job_id, _nodes.c.reservation_id == reservation_id, _nodes.c.node == node)
