# SPDX-License-Identifier: Apache-2.0
"""The manager's memory."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql

from forebay.errors import InvalidArgumentError, NotFoundError, RefusedError, UnsupportedError
from forebay.instance import Instance
from forebay.manager.stage_state import StageState
from forebay.workflows.manager import schema
from forebay.workflows.manager.attachment_table import AttachmentTable
from forebay.workflows.manager.configuration import database_place
from forebay.workflows.manager.database import Database, Held, ReservationRow, StageRow
from forebay.workflows.manager.job_table import JobTable
from forebay.workflows.manager.queue_table import QueueTable
from forebay.workflows.manager.states import JobState, ReservationState


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
    database.forget_old_stages(waiting.owner_uid, kept=2)
    assert [row.id for row in database.stages()] == [rows[4].id, rows[5].id, waiting.id]
    with pytest.raises(NotFoundError, match="no stage"):
        database.stage(rows[0].id)
    database.forget_old_stages(waiting.owner_uid, kept=0)
    assert add(database).id > waiting.id


def test_a_new_database_takes_no_number_that_a_receipt_has(database: Database) -> None:
    database.use_stage_numbers_above(17)
    assert add(database).id == 18
    database.use_stage_numbers_above(5)
    assert add(database).id == 19
    database.use_stage_numbers_above(99)
    assert add(database).id == 100


def test_a_database_of_a_newer_forebay_is_refused(database: Database, path: Path) -> None:
    database.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE schema SET version = 99")
    with pytest.raises(UnsupportedError, match="version 99"):
        Database(path)


# What each version before this one added to the tables that were there.
_ADDED = {
    3: (("reservations", "files_bytes"),),
    5: (("jobs", "quiet"),),
    6: (("jobs", "node_count"),),
    7: (("reservations", "pool"), ("reservations", "account")),
}


@pytest.fixture
def of_version_7(path: Path) -> Path:
    """A database as version 7 wrote it, with rows in each table."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript((Path(__file__).parent / "manager_database_7.sql").read_text())
    return path


@pytest.mark.parametrize("version", range(1, 8))
def test_a_database_of_an_earlier_version_is_taken_over_with_its_rows(of_version_7: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(of_version_7)) as connection:
        for later in range(7, version, -1):
            for table, column in _ADDED.get(later, ()):
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        connection.execute("UPDATE schema SET version = ?", (version,))
        connection.commit()
    for _ in range(2):
        database = Database(of_version_7)
        assert check_rows(database, version) == []
        database.close()


def check_rows(database: Database, version: int) -> list[str]:
    """What is not as it was."""
    run1, job17 = database.reservation("run1"), database.reservation("job17")
    pool, account, files_bytes = ("fast" if version >= 7 else ""), ("weather" if version >= 7 else ""), 1 << 20
    job = JobTable(database).current("17")
    attachments = AttachmentTable(database)
    wrong = {
        "run1": run1
        == ReservationRow(
            *("run1", 64 << 20, False, "striped", "scratch", 1000, 1000, ReservationState.PRESENT, "id-1", False, 5),
            *(files_bytes if version >= 3 else 0, pool, account),
        ),
        "job17": job17 is not None and job17.state is ReservationState.PRESENT,
        "stages": [stage.state for stage in database.stages()] == [StageState.SUCCEEDED, StageState.QUEUED],
        "result": database.stage(1).result == {"receipt": "/pfs/r"},
        "job": job is not None and (job.state, job.stages, job.deadline_ns) == (JobState.RUNNING, {"in 1": 1}, None),
        "nodes": job is not None and job.node_count == (2 if version >= 6 else 0),
        "attachment": [row.holder for row in attachments.of("job17")] == ["job 17"],
        "unattached": [row.reservation for row in attachments.unattached()] == ["run1"],
        "queue": [row.name for row in QueueTable(database).all()] == ["later"],
    }
    return [name for name, right in wrong.items() if not right]


def test_a_migration_that_was_interrupted_is_finished(of_version_7: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    steps = schema._UPGRADES[8]

    def apply_some(step: Any, connection: sql.Connection) -> None:
        if len(done) == left:
            raise KeyboardInterrupt
        done.append(step)
        type(step).original_apply(step, connection)

    for kind in {type(step) for step in steps}:
        monkeypatch.setattr(kind, "original_apply", kind.apply, raising=False)
        monkeypatch.setattr(kind, "apply", apply_some)
    for left in range(len(steps)):
        done.clear()
        with pytest.raises(KeyboardInterrupt):
            Database(of_version_7)
        assert len(done) == left
    left = len(steps) + 1
    done.clear()
    database = Database(of_version_7)
    assert check_rows(database, 7) == []
    database.close()


def test_a_database_that_several_could_share_belongs_to_one_instance(path: Path) -> None:
    engine = sql.create_engine(f"sqlite:///{path}")
    for root, told in (("/a", ""), ("/a", ""), ("/b", "belongs to the instance below /a"), ("", "")):
        with engine.begin() as connection:
            if told:
                with pytest.raises(RefusedError, match=told):
                    schema.bring_up_to_date(connection, "here", root)
            else:
                schema.bring_up_to_date(connection, "here", root)
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
        database.put_reservation(ReservationRow(name, size, True, "striped", "scratch", uid, uid, files_bytes=1))
    assert sorted(database.held(), key=lambda held: (held.owner_uid, held.size_bytes)) == [
        Held("", "", 7, 11, 2),
        Held("", "", 7, 21, 1),
        Held("", "", 8, 11, 1),
    ]
