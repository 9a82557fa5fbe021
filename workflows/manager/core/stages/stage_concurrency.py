# SPDX-License-Identifier: Apache-2.0
"""How many stages of one reservation a user wants to run side by side. It limits the user's own stages only, and holds
while the reservation exists.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import sqlalchemy as sql

from forebay.manager.records import StageRow
from forebay.workflows.manager.core.database.database import Database, metadata, reservations_table

__all__ = ["STAGES_MAX", "StageConcurrency"]

STAGES_MAX = 1_000_000  #: the largest limit that can be wished for

_concurrency = sql.Table(
    "stage_concurrency",
    metadata,
    sql.Column(
        "reservation", sql.String, sql.ForeignKey(reservations_table.c.name, ondelete="CASCADE"), primary_key=True
    ),
    sql.Column("reservation_id", sql.String, nullable=False),
    sql.Column("owner_uid", sql.BigInteger, primary_key=True),
    sql.Column("stages_max", sql.Integer, nullable=False),
)

_Key = tuple[str, int]  # reservation, user


class StageConcurrency:
    """The limits of one instance. Belongs to the event loop's thread, except `write`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._limits: dict[_Key, int] = {}
        self._reading = asyncio.Lock()
        self._key_of: dict[int, _Key] = {}  # of stages that wait or run
        self._running: dict[int, _Key] = {}
        self._count_of: Counter[_Key] = Counter()

    async def read(self) -> None:
        """Obeys what is written down. Limits of reservations that are gone are not."""
        async with self._reading:  # who reads last has looked last
            self._limits = await asyncio.to_thread(self._written)

    def _written(self) -> dict[_Key, int]:
        with self._database.look() as connection:
            rows = connection.execute(sql.select(_concurrency))
            return {(row.reservation, row.owner_uid): row.stages_max for row in rows}

    def write(self, reservation: str, reservation_id: str, uid: int, stages_max: int) -> None:
        """Writes a limit down; `read` has it obeyed."""
        wanted = (_concurrency.c.reservation == reservation) & (_concurrency.c.owner_uid == uid)
        values = {"reservation_id": reservation_id, "stages_max": stages_max}
        with self._database.change() as connection:
            if not connection.execute(_concurrency.update().where(wanted).values(values)).rowcount:
                connection.execute(_concurrency.insert().values(reservation=reservation, owner_uid=uid, **values))

    def note(self, row: StageRow) -> None:
        """A stage waits for its turn."""
        if "reservation" in row.job:
            self._key_of[row.id] = (str(row.job["reservation"]), row.owner_uid)

    def forget(self, stage_id: int) -> None:
        """It waits no more."""
        self._key_of.pop(stage_id, None)

    def may_begin(self, stage_id: int) -> bool:
        """Its user wants one more of them."""
        key = self._key_of.get(stage_id)
        return key is None or key not in self._limits or self._count_of[key] < self._limits[key]

    def begun(self, stage_id: int) -> None:
        """It has begun."""
        key = self._key_of.get(stage_id)
        if key is not None and stage_id not in self._running:
            self._running[stage_id] = key
            self._count_of[key] += 1

    def ended(self, stage_id: int) -> None:
        """It has ended, or waits again; idempotent."""
        key = self._running.pop(stage_id, None)
        if key is not None:
            self._count_of[key] -= 1
            if not self._count_of[key]:
                del self._count_of[key]
