# SPDX-License-Identifier: Apache-2.0
"""What the manager remembers, in SQLite: reservations as they were asked for, stages, and their receipts. Jobs and
attachments have modules of their own, job_table.py and attachment_table.py.

Every change is one transaction, durable when the call returns. Where the disk is full or fails, calls raise
NoSpaceError or StorageError, and a change that was not made leaves all as it was.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy import event

from forebay.errors import CorruptError, NoSpaceError, NotFoundError, StorageError, UnsupportedError
from forebay.fail_point import fail_point
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.states import ReservationState

__all__ = ["Database", "ReservationRow", "StageRow", "metadata", "reservations_table"]

#: The columns that a version added to tables that were there before it: table, name, definition. Tables that an older
#: database lacks are made when it is opened: version 2 brought jobs, 4 attachments, 7 the queue.
_UPGRADES: dict[int, tuple[tuple[str, str, str], ...]] = {
    2: (),
    3: (("reservations", "files_bytes", "BIGINT NOT NULL DEFAULT 0"),),
    4: (),
    5: (("jobs", "quiet", "BOOLEAN NOT NULL DEFAULT 0"),),
    6: (("jobs", "node_count", "INTEGER NOT NULL DEFAULT 0"),),
    7: (
        ("reservations", "pool", "VARCHAR NOT NULL DEFAULT ''"),
        ("reservations", "account", "VARCHAR NOT NULL DEFAULT ''"),
    ),
}
_SCHEMA_VERSION = max(_UPGRADES)
_OLDEST_VERSION = 1

metadata = sql.MetaData()

_schema = sql.Table("schema", metadata, sql.Column("version", sql.Integer, nullable=False))

_reservations = sql.Table(
    "reservations",
    metadata,
    sql.Column("name", sql.String, primary_key=True),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("id", sql.String, nullable=False),
    sql.Column("capacity_bytes", sql.BigInteger, nullable=False),
    sql.Column("persistent", sql.Boolean, nullable=False),
    sql.Column("access_mode", sql.String, nullable=False),
    sql.Column("type", sql.String, nullable=False),
    sql.Column("owner_uid", sql.Integer, nullable=False),
    sql.Column("owner_gid", sql.Integer, nullable=False),
    sql.Column("force", sql.Boolean, nullable=False),
    sql.Column("created_ns", sql.BigInteger, nullable=False),
    sql.Column("files_bytes", sql.BigInteger, nullable=False),
    sql.Column("pool", sql.String, nullable=False),
    sql.Column("account", sql.String, nullable=False),
)

#: For modules whose tables refer to it.
reservations_table = _reservations

_stages = sql.Table(
    "stages",
    metadata,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=True),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("job", sql.JSON, nullable=False),
    sql.Column("owner_uid", sql.Integer, nullable=False),
    sql.Column("owner_gid", sql.Integer, nullable=False),
    sql.Column("umask", sql.Integer, nullable=False),
    sql.Column("cancel", sql.Boolean, nullable=False),
    sql.Column("attempts", sql.Integer, nullable=False),
    sql.Column("created_ns", sql.BigInteger, nullable=False),
    sql.Column("started_ns", sql.BigInteger),
    sql.Column("finished_ns", sql.BigInteger),
    sql.Column("progress", sql.JSON, nullable=False),
    sql.Column("notes", sql.JSON, nullable=False),
    sql.Column("result", sql.JSON),
    sql.Column("failure", sql.JSON),
    sqlite_autoincrement=True,
)

_receipts = sql.Table(
    "receipts",
    metadata,
    sql.Column("stage", sql.Integer, sql.ForeignKey("stages.id"), primary_key=True),
    sql.Column("path", sql.String, nullable=False),
    sql.Column("crc32c", sql.String, nullable=False),
    sql.Column("written_ns", sql.BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class ReservationRow:
    """A reservation as it was asked for."""

    name: str
    capacity_bytes: int
    persistent: bool
    access_mode: str
    type: str
    owner_uid: int
    owner_gid: int
    state: ReservationState = ReservationState.CREATING
    id: str = ""  #: the server's, once it is known
    force: bool = False  #: of a destroy
    created_ns: int = 0
    files_bytes: int = 0
    pool: str = ""  #: "" is the default pool
    account: str = ""  #: "" is none


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage: what it is to do and how far it has come."""

    id: int
    state: StageState
    job: dict[str, Any]
    owner_uid: int
    owner_gid: int
    umask: int
    cancel: bool  #: to be cancelled
    attempts: int
    created_ns: int
    started_ns: int | None
    finished_ns: int | None
    progress: dict[str, Any]
    notes: list[str]
    result: dict[str, Any] | None
    failure: dict[str, Any] | None


class Database:
    """The manager's memory. Usable from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._engine = sql.create_engine(f"sqlite:///{path}")
        event.listen(self._engine, "connect", _configure)
        with self._readable_errors(), self._engine.begin() as connection:
            metadata.create_all(connection)
            version = connection.scalar(sql.select(_schema.c.version))
            if version is None:
                connection.execute(_schema.insert().values(version=_SCHEMA_VERSION))
            elif _OLDEST_VERSION <= version < _SCHEMA_VERSION:
                for later in range(version + 1, _SCHEMA_VERSION + 1):
                    for table, column, definition in _UPGRADES[later]:
                        _add_column(connection, table, column, definition)
                connection.execute(_schema.update().values(version=_SCHEMA_VERSION))
            elif version != _SCHEMA_VERSION:
                raise UnsupportedError(
                    f"the manager's database has version {version}, this forebay knows {_SCHEMA_VERSION}; use the "
                    "forebay "
                    "that wrote it",
                    str(path),
                )

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    # Reservations

    def reservations(self) -> list[ReservationRow]:
        """All of them, by name."""
        with self.look() as connection:
            rows = connection.execute(_reservations.select().order_by(_reservations.c.name)).mappings()
            return [_reservation_row(row) for row in rows]

    def reservation(self, name: str) -> ReservationRow | None:
        """One of them."""
        with self.look() as connection:
            row = connection.execute(_reservations.select().where(_reservations.c.name == name)).mappings().first()
            return None if row is None else _reservation_row(row)

    def put_reservation(self, row: ReservationRow) -> None:
        """Enters or replaces one."""
        values = {name: getattr(row, name) for name in _reservations.c.keys()}  # noqa: SIM118 - a column collection
        with self.change() as connection:
            # Not by removing it: what refers to it would go as well.
            known = _reservations.update().where(_reservations.c.name == row.name)
            if not connection.execute(known.values(values)).rowcount:
                connection.execute(_reservations.insert().values(values))

    def set_reservation_state(self, name: str, state: ReservationState, *, force: bool = False) -> None:
        """Changes what is to become of one."""
        with self.change() as connection:
            connection.execute(
                _reservations.update().where(_reservations.c.name == name).values(state=state, force=force)
            )

    def forget_reservation(self, name: str) -> None:
        """Removes one."""
        with self.change() as connection:
            connection.execute(_reservations.delete().where(_reservations.c.name == name))

    # Stages

    def add_stage(self, job: dict[str, Any], owner_uid: int, owner_gid: int, umask: int) -> StageRow:
        """Enters a queued stage."""
        with self.change() as connection:
            inserted = connection.execute(
                _stages.insert().values(
                    state=StageState.QUEUED,
                    job=job,
                    owner_uid=owner_uid,
                    owner_gid=owner_gid,
                    umask=umask,
                    cancel=False,
                    attempts=0,
                    created_ns=time.time_ns(),
                    progress={},
                    notes=[],
                    result=sql.null(),
                    failure=sql.null(),
                )
            )
            key = inserted.inserted_primary_key
            assert key is not None
            stage_id: int = key[0]
        return self.stage(stage_id)

    def stage(self, stage_id: int) -> StageRow:
        """One stage; NotFoundError without it."""
        with self.look() as connection:
            row = connection.execute(_stages.select().where(_stages.c.id == stage_id)).mappings().first()
        if row is None:
            raise NotFoundError(f"there is no stage {stage_id}; `forebay stages` lists them")
        return _stage_row(row)

    def stages(self, states: Iterable[StageState] | None = None) -> list[StageRow]:
        """Stages in the order in which they were asked for."""
        query = _stages.select().order_by(_stages.c.id)
        if states is not None:
            query = query.where(_stages.c.state.in_(list(states)))
        with self.look() as connection:
            return [_stage_row(row) for row in connection.execute(query).mappings()]

    def change_stage(self, stage_id: int, **values: Any) -> StageRow:
        """Changes columns of a stage."""
        for name in ("result", "failure"):
            if name in values and values[name] is None:
                values[name] = sql.null()
        with self.change() as connection:
            connection.execute(_stages.update().where(_stages.c.id == stage_id).values(**values))
        return self.stage(stage_id)

    def forget_old_stages(self, kept: int) -> None:
        """Removes the stages that have ended, except the newest ones."""
        final = [state for state in StageState if state.is_final]
        old = sql.select(_stages.c.id).where(_stages.c.state.in_(final)).order_by(_stages.c.id.desc()).offset(kept)
        with self.change() as connection:
            connection.execute(_receipts.delete().where(_receipts.c.stage.in_(old)))
            connection.execute(_stages.delete().where(_stages.c.id.in_(old)))

    def requeue_running_stages(self) -> int:
        """After a start: stages that ran when the manager before this one ended begin again."""
        with self.change() as connection:
            changed = connection.execute(
                _stages.update().where(_stages.c.state == StageState.RUNNING).values(state=StageState.QUEUED)
            )
            return changed.rowcount

    # Receipts

    def put_receipt(self, stage_id: int, path: str, crc32c: str) -> None:
        """Remembers where a finished stage left its receipt."""
        with self.change() as connection:
            connection.execute(_receipts.delete().where(_receipts.c.stage == stage_id))
            connection.execute(
                _receipts.insert().values(stage=stage_id, path=path, crc32c=crc32c, written_ns=time.time_ns())
            )

    def receipt(self, stage_id: int) -> dict[str, Any] | None:
        """Path and checksum of a stage's receipt; None if it has left none."""
        with self.look() as connection:
            row = connection.execute(_receipts.select().where(_receipts.c.stage == stage_id)).mappings().first()
        return None if row is None else {"path": row["path"], "crc32c": row["crc32c"]}

    def check_writable(self) -> None:
        """Tries a change that changes nothing.

        Raises
        ------
        NoSpaceError, StorageError
            It could not be written.
        """
        with self._readable_errors(), self._engine.begin() as connection:
            # A value that is replaced by itself would not be written.
            connection.execute(_schema.update().values(version=0))
            connection.execute(_schema.update().values(version=_SCHEMA_VERSION))

    @contextlib.contextmanager
    def change(self) -> Iterator[sql.Connection]:
        """One transaction, also for other modules' tables: a manager that dies within leaves the rows as they were."""
        fail_point("manager.change.before")
        with self._readable_errors(), self._engine.begin() as connection:
            yield connection
            fail_point("manager.change.before_commit")
        fail_point("manager.change.after")

    @contextlib.contextmanager
    def look(self) -> Iterator[sql.Connection]:
        """A connection to read from."""
        with self._readable_errors(), self._engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def _readable_errors(self) -> Iterator[None]:
        """SQLite's errors, as errors that say what to do."""
        try:
            yield
        except sql.exc.DBAPIError as error:
            raise _readable_error(error.orig, self._path) from error


def _add_column(connection: sql.Connection, table: str, column: str, definition: str) -> None:
    """Adds it, unless the table is not there, or was made just now."""
    inspector = sql.inspect(connection)
    if inspector.has_table(table) and column not in {known["name"] for known in inspector.get_columns(table)}:
        connection.execute(sql.text(f"ALTER TABLE {table} ADD COLUMN {column} {definition}"))


def _readable_error(error: BaseException | None, path: Path) -> Exception:
    code = getattr(error, "sqlite_errorcode", 0)
    # The index of the log of changes is a file of its own, whose want of space SQLite tells as an I/O error.
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE):
        return NoSpaceError(
            "the disk that holds the manager's database is full; make room there, then run the same command again",
            str(path),
        )
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptError(
            f"the manager's database is damaged ({error}); end the manager if it runs (its pid is in manager.pid), "
            "move the database away with its -wal and -shm, then `forebay up`: reservations are found again, stages "
            "are forgotten",
            str(path),
        )
    return StorageError(
        f"the manager's database cannot be read or written ({error}); see to its disk, then run the same command again",
        str(path),
    )


def _configure(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "busy_timeout = 10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _reservation_row(row: Any) -> ReservationRow:
    return ReservationRow(**(dict(row) | {"state": ReservationState(row["state"])}))


def _stage_row(row: Any) -> StageRow:
    return StageRow(**(dict(row) | {"state": StageState(row["state"])}))
