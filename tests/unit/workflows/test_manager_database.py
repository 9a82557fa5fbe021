# SPDX-License-Identifier: Apache-2.0
"""The manager's memory."""

from __future__ import annotations

import contextlib
import importlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sql

from forebay.errors import InvalidArgumentError, NotFoundError, RefusedError, UnsupportedError
from forebay.instance import Instance
from forebay.manager.records import ReservationRow, StageRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.configuration import database_place
from forebay.workflows.manager.core.database import schema
from forebay.workflows.manager.core.database.database import Database, Held, StageUse


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "manager.sqlite"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database(path)
    yield opened
    opened.close()


def add(database: Database, state: StageState = StageState.QUEUED) -> StageRow:
    row = database.add_stage({"kind": "steps"}, 7, 8, 0o22)
    return database.change_stage(row.id, state=state)


def test_stages_keep_what_they_were_given(database: Database, path: Path) -> None:
    row = add(database)
    changed = database.change_stage(row.id, progress={"items_done": 1}, failure={"code": "busy"}, notes=["ä"])
    database.close()
    again = Database(path)
    assert again.stage(row.id) == changed
    assert (changed.job, changed.owner_uid, changed.owner_gid, changed.umask) == ({"kind": "steps"}, 7, 8, 0o22)
    assert again.change_stage(row.id, failure=None).failure is None
    again.close()


def test_running_stages_are_queued_again_after_a_start(database: Database) -> None:
    states = [StageState.RUNNING, StageState.SUCCEEDED, StageState.RUNNING, StageState.FAILED]
    rows = [add(database, state) for state in states]
    assert database.requeue_running_stages() == 2
    assert [database.stage(row.id).state for row in rows] == [
        StageState.QUEUED,
        StageState.SUCCEEDED,
        StageState.QUEUED,
        StageState.FAILED,
    ]


def test_numbers_are_not_used_again_and_old_stages_are_forgotten(database: Database) -> None:
    rows = [add(database, StageState.SUCCEEDED) for _ in range(6)]
    waiting = add(database)
    database.forget_old_stages(waiting.owner_uid + 1, kept=0)  # another user's are not touched
    database.forget_old_stages(waiting.owner_uid, kept=2, needed={row.id for row in rows})
    assert len(database.stages()) == len(rows) + 1
    database.forget_old_stages(waiting.owner_uid, kept=2)
    assert [row.id for row in database.stages()] == [rows[4].id, rows[5].id, waiting.id]
    with pytest.raises(NotFoundError, match="no stage"):
        database.stage(rows[0].id)
    database.forget_old_stages(waiting.owner_uid, kept=0)
    assert add(database).id > waiting.id


def test_what_one_user_has_is_not_looked_for_among_the_stages_of_all(database: Database, path: Path) -> None:
    """Also in a database that an earlier version made."""
    database.close()
    asked = f"EXPLAIN QUERY PLAN SELECT count(*) FROM stages WHERE owner_uid = 7 AND state = '{StageState.DEFERRED}'"
    for change in ("SELECT 1", "DROP INDEX ix_stages_owner"):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(change)
        Database(path).close()
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert "SEARCH" in str(connection.execute(asked).fetchall())


def test_descriptions_are_read_once_to_know_what_stages_use(database: Database) -> None:
    """They may have sixteen MiB of each user, and the manager looks each second."""
    steps = {"kind": "steps", "stream": "mesh/flow", "follow": True}
    files = {"kind": "files", "reservation": "kept"}
    first, ended, other = (database.add_stage(job, 7, 8, 0o22) for job in (steps, steps, files))
    said: list[str] = []
    sql.event.listen(database._engine, "before_cursor_execute", lambda *told: said.append(told[2]))
    uses = {use.id: use for use in database.stage_uses()}
    assert uses[first.id] == StageUse(first.id, 7, StageState.QUEUED, "mesh", True, "steps")
    assert uses[other.id] == StageUse(other.id, 7, StageState.QUEUED, "kept", False, "files")
    assert any("stages.job" in text for text in said)
    database.change_stage(ended.id, state=StageState.SUCCEEDED)
    database.change_stage(first.id, state=StageState.RUNNING)
    said.clear()
    states = [(use.id, use.state) for use in database.stage_uses()]
    assert states == [(first.id, StageState.RUNNING), (other.id, StageState.QUEUED)]
    assert not any("stages.job" in text for text in said)
    database.change_stage(ended.id, state=StageState.QUEUED)
    assert [use.id for use in database.stage_uses()] == [first.id, ended.id, other.id]


def test_a_new_database_takes_no_number_that_a_receipt_has(database: Database) -> None:
    database.use_stage_numbers_above(17)
    assert add(database).id == 18
    database.use_stage_numbers_above(5)
    assert add(database).id == 19
    database.use_stage_numbers_above(99)
    assert add(database).id == 100


def test_a_database_of_another_version_is_refused_and_left(database: Database, path: Path) -> None:
    database.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE format SET version = 99")
    content = path.read_bytes()
    with pytest.raises(UnsupportedError, match="version 99"):
        Database(path)
    assert path.read_bytes() == content


def test_a_database_from_before_the_formats_began_again_is_refused_and_left(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "PRAGMA journal_mode = WAL;"
            "CREATE TABLE schema (version INTEGER NOT NULL, root VARCHAR NOT NULL);"
            "INSERT INTO schema VALUES (11, '');"
            "CREATE TABLE reservations (name VARCHAR PRIMARY KEY); INSERT INTO reservations VALUES ('run1');"
        )
    content = path.read_bytes()
    with pytest.raises(UnsupportedError, match="another version of forebay"):
        Database(path)
    assert path.read_bytes() == content


def test_a_database_that_is_half_made_is_completed(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE format (format VARCHAR, version INTEGER, root VARCHAR)")
    with contextlib.closing(Database(path)) as database:
        assert add(database).id == 1


def test_a_database_that_several_could_share_belongs_to_one_instance(path: Path) -> None:
    engine = sql.create_engine(f"sqlite:///{path}")
    for root, told in (("/a", ""), ("/a", ""), ("/b", "belongs to the instance below /a"), ("", "")):
        with engine.begin() as connection:
            if told:
                with pytest.raises(RefusedError, match=told):
                    schema.check_and_make(connection, "here", root)
            else:
                schema.check_and_make(connection, "here", root)
    engine.dispose()


@pytest.mark.parametrize("url", ["mysql://forebay@/forebay", "forebay", "sqlite:///x"])
def test_a_database_that_is_not_known_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="must be PostgreSQL's"):
        Database(url)


def test_a_configured_database_is_that_of_the_configured_instance(tmp_path: Path) -> None:
    instance, file = Instance(tmp_path / "root"), tmp_path / "forebay.toml"
    url = "postgresql+psycopg://forebay@/forebay"
    assert database_place({}, instance, file) == instance.manager_database
    assert database_place({"database": url}, instance, file) == url
    assert database_place({"database": url, "root": str(instance.root)}, instance, file) == url
    assert database_place({"database": url, "root": "/other"}, instance, file) == instance.manager_database
    with pytest.raises(InvalidArgumentError, match="URL in quotes"):
        database_place({"database": 7}, instance, file)


def test_what_is_held_is_added_up_by_what_counts_alike(database: Database) -> None:
    for name, uid, size in (("a", 7, 10), ("b", 7, 10), ("c", 8, 10), ("d", 7, 20)):
        database.put_reservation(ReservationRow(name, size, True, uid, uid, files_bytes=1))
    assert sorted(database.held(), key=lambda held: (held.owner_uid, held.size_bytes)) == [
        Held("", "", 7, 11, 2),
        Held("", "", 7, 21, 1),
        Held("", "", 8, 11, 1),
    ]


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        (2, ["DROP TABLE asked_stages", "DROP TABLE stage_concurrency"]),
        (3, ["ALTER TABLE asked_stages DROP COLUMN told"]),
        (3, []),  # a manager that died amid the change, where the database makes it in parts
    ],
)
def test_a_database_of_a_format_before_becomes_one_of_this(path: Path, version: int, changes: list[str]) -> None:
    for module in ("asked_stages", "stage_concurrency"):  # A table exists once its module has been imported.
        importlib.import_module(f"forebay.workflows.manager.core.stages.{module}")
    with contextlib.closing(Database(path)) as database:
        row = add(database)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        asked = (row.id, 7, "id-1", "a", 0, 17)
        connection.execute("INSERT INTO asked_stages VALUES (?, ?, ?, ?, ?, ?, 0)", asked)
        connection.execute("DROP TABLE reservation_members")
        for change in changes:
            connection.execute(change)
        connection.execute(f"UPDATE format SET version = {version}")
        connection.commit()
    with contextlib.closing(Database(path)) as database:
        assert database.stage(row.id) == row
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version FROM format").fetchall() == [(4,)]
        # What may have failed without its program's knowing keeps its job's data.
        found = connection.execute("SELECT * FROM asked_stages").fetchall()
        assert found == ([] if version == 2 else [(*asked, 0)])


def test_a_stage_moves_only_from_the_state_that_is_named(database: Database) -> None:
    row = add(database, StageState.DEFERRED)
    assert database.count_stages(7, StageState.DEFERRED) == 1
    assert database.move_stage(row.id, StageState.DEFERRED, StageState.REVOKED)
    assert not database.move_stage(row.id, StageState.DEFERRED, StageState.QUEUED)
    assert database.stage(row.id).state is StageState.REVOKED
    assert database.stage(row.id).finished_ns is not None
    assert database.count_stages(7, StageState.DEFERRED) == 0


def test_a_stage_that_moves_may_get_something_else_to_do(database: Database) -> None:
    row = add(database, StageState.DEFERRED)
    changed = {**row.job, "unclean_nodes": ["n2"]}
    assert database.move_stage(row.id, StageState.DEFERRED, StageState.QUEUED, changed)
    assert database.stage(row.id).job == changed
    assert not database.move_stage(row.id, StageState.DEFERRED, StageState.QUEUED, row.job)
    assert database.stage(row.id).job == changed
