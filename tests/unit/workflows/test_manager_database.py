# SPDX-License-Identifier: Apache-2.0
"""The manager's memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forebay.errors import NotFoundError, UnsupportedError
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.database import Database, ReservationRow, StageRow
from forebay.workflows.manager.job_table import JobTable


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
    for row in rows:
        database.put_receipt(row.id, f"/receipt{row.id}", "00000000")
    database.forget_old_stages(kept=2)
    assert [row.id for row in database.stages()] == [rows[4].id, rows[5].id, waiting.id]
    assert database.receipt(rows[0].id) is None
    assert database.receipt(rows[5].id) == {"path": f"/receipt{rows[5].id}", "crc32c": "00000000"}
    with pytest.raises(NotFoundError, match="no stage"):
        database.stage(rows[0].id)
    database.forget_old_stages(kept=0)
    assert add(database).id > waiting.id


def test_a_database_of_a_newer_forebay_is_refused(database: Database, path: Path) -> None:
    database.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE schema SET version = 99")
    with pytest.raises(UnsupportedError, match="version 99"):
        Database(path)


@pytest.mark.parametrize("version", [1, 2])
def test_a_database_of_before_files_had_a_capacity_is_taken_over(database: Database, path: Path, version: int) -> None:
    wish = ReservationRow("run1", 64 << 20, True, "striped", "scratch", 1000, 1000, files_bytes=1 << 20)
    database.put_reservation(wish)
    database.close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE reservations DROP COLUMN files_bytes")
        connection.execute(f"UPDATE schema SET version = {version}")
    for _ in range(2):
        again = Database(path)
        assert again.reservation("run1") == replace(wish, files_bytes=0)
        again.close()


def test_a_database_of_before_jobs_were_waited_for_is_taken_over(path: Path) -> None:
    opened = Database(path)
    job = JobTable(opened).add("17", 1000, 1000, 1 << 20, {})
    opened.close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE jobs DROP COLUMN quiet")
        connection.execute("UPDATE schema SET version = 4")
    for _ in range(2):
        again = Database(path)
        assert JobTable(again).current("17") == job
        again.close()
