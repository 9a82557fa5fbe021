# SPDX-License-Identifier: Apache-2.0
"""What the manager remembers: reservations as they were asked for, and stages. Jobs, attachments and
the queue have modules of their own, job_table.py, attachment_table.py and queue_table.py.

It lies in SQLite, in a file below the root, or in PostgreSQL. Every change is one transaction, durable when the call
returns. Where the disk is full or fails, or the server of the database is away, calls raise NoSpaceError or
StorageError, and a change that was not made leaves all as it was.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from forebay.errors import InvalidArgumentError, NotFoundError
from forebay.fail_point import fail_point
from forebay.manager.records import MemberRow, ReservationRow, ReservationState, StageRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.database.database_engine import DatabasePlace, connect_to, readable_error
from forebay.workflows.manager.core.database.schema import check_and_make, metadata, try_change
from forebay.workflows.manager.core.database.touched_rows import TouchedRows

__all__ = [
    "IDS_AT_ONCE",
    "Database",
    "Held",
    "StageUse",
    "metadata",
    "no_stage",
    "reservations_table",
    "stages_table",
]

_reservations = sql.Table(
    "reservations",
    metadata,
    sql.Column("name", sql.String, primary_key=True),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("id", sql.String, nullable=False),
    sql.Column("capacity_bytes", sql.BigInteger, nullable=False),
    sql.Column("persistent", sql.Boolean, nullable=False),
    sql.Column("owner_uid", sql.BigInteger, nullable=False),
    sql.Column("owner_gid", sql.BigInteger, nullable=False),
    sql.Column("force", sql.Boolean, nullable=False),
    sql.Column("created_ns", sql.BigInteger, nullable=False),
    sql.Column("files_bytes", sql.BigInteger, nullable=False),
    sql.Column("pool", sql.String, nullable=False),
    sql.Column("account", sql.String, nullable=False),
    sql.Column("server", sql.String, nullable=False),
    # What admission adds up.
    sql.Index("ix_reservations_held", "pool", "account", "owner_uid", "capacity_bytes", "files_bytes"),
)

#: What each server gives to those that lie on several.
_members = sql.Table(
    "reservation_members",
    metadata,
    sql.Column("reservation", sql.String, sql.ForeignKey(_reservations.c.name, ondelete="CASCADE"), primary_key=True),
    sql.Column("number", sql.Integer, primary_key=True, autoincrement=False),
    sql.Column("server", sql.String, nullable=False),
    sql.Column("root_uuid", sql.String, nullable=False),
    sql.Column("size_bytes", sql.BigInteger, nullable=False),
    sql.Column("lost", sql.Boolean, nullable=False),
)

#: For modules whose tables refer to it.
reservations_table = _reservations

#: As few as any database takes in one statement.
IDS_AT_ONCE = 500

stages_table = _stages = sql.Table(
    "stages",
    metadata,
    sql.Column("id", sql.Integer, primary_key=True, autoincrement=True),
    sql.Column("state", sql.String, nullable=False),
    sql.Column("job", sql.JSON, nullable=False),
    sql.Column("owner_uid", sql.BigInteger, nullable=False),
    sql.Column("owner_gid", sql.BigInteger, nullable=False),
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
    # What one user's take must not be looked for among those of all.
    sql.Index("ix_stages_owner", "owner_uid", "state"),
    sqlite_autoincrement=True,
)


#: Of a stage's row.
_DESCRIPTION_LENGTH = sql.func.length(sql.cast(_stages.c.job, sql.Text))


@dataclass(frozen=True, slots=True)
class Held:
    """Reservations that count alike."""

    pool: str
    account: str
    owner_uid: int
    size_bytes: int  #: of each
    count: int = 1


@dataclass(frozen=True, slots=True)
class StageUse:
    """What a stage that is not over uses, without its description."""

    id: int
    owner_uid: int
    state: StageState
    reservation: str  #: which it reads or fills
    follows: bool
    kind: str  #: of its job


class Database:
    """The manager's memory. Usable from several threads."""

    def __init__(self, place: DatabasePlace, root: str = "") -> None:
        """Opens it, and makes its tables those of this version.

        Parameters
        ----------
        place : Path or str
            A file of SQLite's, or the URL of another database.
        root : str
            The instance that it must belong to, if several could share it: a file belongs to whoever has it.
        """
        self._engine, self._where = connect_to(place)
        self._followers: list[TouchedRows] = []
        self._uses_guard = threading.Lock()  # Guards what follows.
        self._uses: dict[int, tuple[str, bool, str]] = {}  # of stages that are not over
        is_sqlite = self._engine.dialect.name == "sqlite"
        self._writing: AbstractContextManager[Any] = threading.Lock() if is_sqlite else contextlib.nullcontext()
        with self._readable_errors(), self._engine.begin() as connection:
            check_and_make(connection, self._where, "" if isinstance(place, Path) else root)

    def follow(self) -> TouchedRows:
        """From now on notes there which reservations, jobs and reservations' attachments have changed."""
        touched = TouchedRows()
        self._followers.append(touched)
        return touched

    def note(self, table: str, key: int | str) -> None:
        """A change of this row has been made."""
        for touched in self._followers:
            touched.note(table, key)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    # Reservations

    def reservations(self) -> list[ReservationRow]:
        """All of them, by name."""
        return self._reservations_that(sql.true())

    def reservation(self, name: str) -> ReservationRow | None:
        """One of them."""
        return next(iter(self._reservations_that(_reservations.c.name == name)), None)

    def reservations_of_ids(self, ids: Iterable[str]) -> list[ReservationRow]:
        """Those that the server knows by these."""
        return self._reservations_that(_reservations.c.id.in_(list(ids)))

    def _reservations_that(self, wanted: sql.ColumnElement[bool]) -> list[ReservationRow]:
        """By name. One query, so that no row is seen without its members."""
        theirs = [_members.c.server, _members.c.root_uuid, _members.c.size_bytes, _members.c.lost]
        query = (
            sql.select(_reservations, *(column.label(f"member_{column.name}") for column in theirs))
            .select_from(_reservations.outerjoin(_members))
            .where(wanted)
            .order_by(_reservations.c.name, _members.c.number)
        )
        with self.look() as connection:
            found = connection.execute(query).mappings().all()
        return [_reservation_row(list(rows)) for _, rows in itertools.groupby(found, key=lambda row: row["name"])]

    def held(self, server: str | None = None) -> list[Held]:
        """What all of them hold, added up for admission; on one server, "" the manager's own, if it is named."""
        c = _reservations.c
        who = (c.pool, c.account, c.owner_uid)
        if server is None:
            whole = (*who, c.capacity_bytes, c.files_bytes)
            queries = [sql.select(*whole, sql.func.count()).group_by(*whole)]
        else:
            is_alone = ~sql.exists().where(_members.c.reservation == c.name)
            alone = (*who, c.capacity_bytes, c.files_bytes)
            # Of those on several servers, the home has the files.
            files_bytes = sql.case((c.server == server, c.files_bytes), else_=0)
            shared = (*who, _members.c.size_bytes, files_bytes)
            queries = [
                sql.select(*alone, sql.func.count()).where(is_alone, c.server == server).group_by(*alone),
                sql.select(*shared, sql.literal(1))
                .select_from(_reservations.join(_members))
                .where(_members.c.server == server, ~_members.c.lost),
            ]
        with self.look() as connection:
            return [
                Held(pool, account, uid, streams_bytes + files_bytes, count)
                for query in queries
                for pool, account, uid, streams_bytes, files_bytes, count in connection.execute(query)
            ]

    def put_reservation(self, row: ReservationRow) -> None:
        """Enters or replaces one."""
        values = {name: getattr(row, name) for name in _reservations.c.keys()}  # noqa: SIM118 - a column collection
        with self.change() as connection:
            # Not by removing it: what refers to it would go as well.
            known = _reservations.update().where(_reservations.c.name == row.name)
            if not connection.execute(known.values(values)).rowcount:
                connection.execute(_reservations.insert().values(values))
            connection.execute(_members.delete().where(_members.c.reservation == row.name))
            members = [
                {"reservation": row.name, "number": number, **asdict(member)}
                for number, member in enumerate(row.members)
            ]
            if members:
                connection.execute(_members.insert(), members)
        self.note("reservations", row.name)

    def count_reservations(self, owner_uid: int) -> int:
        """How many this user has, in whatever state."""
        with self.look() as connection:
            own = sql.select(sql.func.count()).select_from(_reservations).where(_reservations.c.owner_uid == owner_uid)
            return connection.scalar(own) or 0

    def set_reservation_state(self, name: str, state: ReservationState, *, force: bool = False) -> None:
        """Changes what is to become of one."""
        with self.change() as connection:
            connection.execute(
                _reservations.update().where(_reservations.c.name == name).values(state=state, force=force)
            )
        self.note("reservations", name)

    def forget_reservation(self, name: str) -> None:
        """Removes one."""
        with self.change() as connection:
            connection.execute(_reservations.delete().where(_reservations.c.name == name))
        self.note("reservations", name)

    # Stages

    def add_stage(
        self,
        job: dict[str, Any],
        owner_uid: int,
        owner_gid: int,
        umask: int,
        *,
        state: StageState = StageState.QUEUED,
        also: Callable[[sql.Connection, int], object] = lambda connection, stage_id: None,
    ) -> StageRow:
        """Enters a stage. `also`: what else is written in the same transaction."""
        with self.change() as connection:
            inserted = connection.execute(
                _stages.insert().values(
                    state=state,
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
            also(connection, stage_id)
        return self.stage(stage_id)

    def stage(self, stage_id: int) -> StageRow:
        """One stage; NotFoundError without it."""
        with self.look() as connection:
            row = connection.execute(_stages.select().where(_stages.c.id == stage_id)).mappings().first()
        if row is None:
            raise no_stage(stage_id)
        return _stage_row(row)

    def stages(self, states: Iterable[StageState] | None = None, owner_uid: int | None = None) -> list[StageRow]:
        """Stages in the order in which they were asked for, of one user or of all."""
        query = _stages.select().order_by(_stages.c.id)
        if owner_uid is not None:
            query = query.where(_stages.c.owner_uid == owner_uid)
        if states is not None:
            query = query.where(_stages.c.state.in_(list(states)))
        with self.look() as connection:
            return [_stage_row(row) for row in connection.execute(query).mappings()]

    def stage_uses(self) -> list[StageUse]:
        """What the stages of all users use that are not over. Descriptions, which may be long, are read once each."""
        c = _stages.c
        final = [state for state in StageState if state.is_final]
        unfinished = sql.select(c.id, c.owner_uid, c.state).where(c.state.not_in(final)).order_by(c.id)
        with self._uses_guard, self.look() as connection:
            found = connection.execute(unfinished).all()
            fresh = [row.id for row in found if row.id not in self._uses]
            for first in range(0, len(fresh), IDS_AT_ONCE):
                described = sql.select(c.id, c.job).where(c.id.in_(fresh[first : first + IDS_AT_ONCE]))
                self._uses |= {row.id: _used_by(row.job) for row in connection.execute(described)}
            self._uses = {row.id: self._uses[row.id] for row in found if row.id in self._uses}
            return [
                StageUse(row.id, row.owner_uid, StageState(row.state), *self._uses[row.id])
                for row in found
                if row.id in self._uses
            ]

    def unfinished_stage(self, owner_uid: int, job: dict[str, Any]) -> StageRow | None:
        """The oldest of this user's that is to do the same, and is not over. The database compares: a user may have
        many, with long descriptions.
        """
        final = [state for state in StageState if state.is_final]
        theirs = (_stages.c.owner_uid == owner_uid) & (_stages.c.state.not_in(final))
        same = sql.cast(_stages.c.job, sql.Text) == json.dumps(job)
        query = _stages.select().where(theirs, same).order_by(_stages.c.id).limit(1)
        with self.look() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else _stage_row(row)

    def change_stage(self, stage_id: int, **values: Any) -> StageRow:
        """Changes columns of a stage."""
        for name in ("result", "failure"):
            if name in values and values[name] is None:
                values[name] = sql.null()
        with self.change() as connection:
            connection.execute(_stages.update().where(_stages.c.id == stage_id).values(**values))
        return self.stage(stage_id)

    def move_stage(
        self, stage_id: int, before: StageState, after: StageState, job: dict[str, Any] | None = None
    ) -> bool:
        """Changes the state of a stage that is in another one, and what it is to do if `job` is given; False, and no
        change, if it is not.
        """
        values: dict[str, Any] = {"finished_ns": time.time_ns()} if after.is_final else {}
        if job is not None:
            values["job"] = job
        wanted = (_stages.c.id == stage_id) & (_stages.c.state == before)
        with self.change() as connection:
            return bool(connection.execute(_stages.update().where(wanted).values(state=after, **values)).rowcount)

    def count_stages(self, owner_uid: int, state: StageState) -> int:
        """How many of this user's are in this state."""
        wanted = (_stages.c.owner_uid == owner_uid) & (_stages.c.state == state)
        with self.look() as connection:
            return connection.scalar(sql.select(sql.func.count()).select_from(_stages).where(wanted)) or 0

    def described_characters(self, owner_uid: int) -> int:
        """How long the descriptions of this user's stages that are not over are, together."""
        final = [state for state in StageState if state.is_final]
        wanted = (_stages.c.owner_uid == owner_uid) & (_stages.c.state.not_in(final))
        with self.look() as connection:
            return connection.scalar(sql.select(sql.func.sum(_DESCRIPTION_LENGTH)).where(wanted)) or 0

    def forget_old_stages(
        self, owner_uid: int, kept: int, characters_kept: int | None = None, needed: Collection[int] = ()
    ) -> None:
        """Removes the stages of a user that have ended, except the newest ones, and those that somebody needs.
        `characters_kept`: of descriptions.
        """
        final = [state for state in StageState if state.is_final]
        ended = (_stages.c.state.in_(final)) & (_stages.c.owner_uid == owner_uid)
        query = sql.select(_stages.c.id, _DESCRIPTION_LENGTH).where(ended).order_by(_stages.c.id.desc())
        with self.look() as connection:
            stages = connection.execute(query).all()
        totals = itertools.accumulate(length for _, length in stages)
        to_forget = [
            stage
            for number, ((stage, _), total) in enumerate(zip(stages, totals, strict=True))
            if number >= kept or (characters_kept is not None and total > characters_kept)
        ]
        to_forget = sorted(set(to_forget).difference(needed))
        if not to_forget:
            return
        with self.change() as connection:
            for first in range(0, len(to_forget), IDS_AT_ONCE):
                some = to_forget[first : first + IDS_AT_ONCE]
                connection.execute(_stages.delete().where(_stages.c.id.in_(some)))

    def use_stage_numbers_above(self, number: int) -> None:
        """Stages get higher numbers from now on: what is kept elsewhere of those below belongs to other stages."""
        with self.look() as connection:
            if number <= (connection.scalar(sql.select(sql.func.max(_stages.c.id))) or 0):
                return
        with self.change() as connection:
            if connection.dialect.name == "postgresql":
                sequence = "pg_get_serial_sequence('stages', 'id')"
                connection.execute(
                    sql.text(f"SELECT setval({sequence}, greatest(nextval({sequence}), :number))"),
                    {"number": number},
                )
                return
            # SQLite goes on above the highest number that was ever there.
            known = connection.scalar(sql.text("SELECT seq FROM sqlite_sequence WHERE name = 'stages'"))
            if known is None:
                connection.execute(
                    sql.text("INSERT INTO sqlite_sequence VALUES ('stages', :number)"), {"number": number}
                )
            elif known < number:
                connection.execute(
                    sql.text("UPDATE sqlite_sequence SET seq = :number WHERE name = 'stages'"), {"number": number}
                )

    def requeue_running_stages(self) -> int:
        """After a start: stages that ran when the manager before this one ended begin again."""
        with self.change() as connection:
            changed = connection.execute(
                _stages.update().where(_stages.c.state == StageState.RUNNING).values(state=StageState.QUEUED)
            )
            return changed.rowcount

    def check_writable(self) -> None:
        """Tries a change that changes nothing.

        Raises
        ------
        NoSpaceError, StorageError
            It could not be written.
        """
        with self._readable_errors(), self._writing:
            try_change(self._engine.connect)

    @contextlib.contextmanager
    def change(self) -> Iterator[sql.Connection]:
        """One transaction, also for other modules' tables: a manager that dies within leaves the rows as they were."""
        fail_point("manager.change.before")
        # SQLite lets one write at a time; whoever finds it locked would sleep, and wake up late.
        with self._readable_errors(), self._writing, self._engine.begin() as connection:
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
        """The database's errors, as errors that say what to do."""
        try:
            yield
        except (sql.exc.DBAPIError, sql.exc.TimeoutError) as error:
            raise readable_error(error, self._where) from error
        except OverflowError as error:
            raise InvalidArgumentError("a number is larger than any that the manager knows") from error


def _used_by(job: dict[str, Any]) -> tuple[str, bool, str]:
    """Of a description: the reservation, whether it follows, and its kind."""
    kind = str(job["kind"])
    reservation = str(job["stream"]).partition("/")[0] if kind == "steps" else str(job["reservation"])
    return reservation, bool(job.get("follow")), kind


def no_stage(stage_id: int) -> NotFoundError:
    """Also what somebody else's stage looks like."""
    return NotFoundError(f"there is no stage {stage_id}; `forebay stages` lists them")


def _reservation_row(found: list[Any]) -> ReservationRow:
    """From what the query has of one: a row for each member, or one without."""
    members = tuple(
        MemberRow(row["member_server"], row["member_root_uuid"], row["member_size_bytes"], row["member_lost"])
        for row in found
        if row["member_server"] is not None
    )
    values = {name: value for name, value in found[0].items() if not name.startswith("member_")}
    return ReservationRow(**(values | {"state": ReservationState(values["state"]), "members": members}))


def _stage_row(row: Any) -> StageRow:
    return StageRow(**(dict(row) | {"state": StageState(row["state"]), "notes": tuple(row["notes"])}))
