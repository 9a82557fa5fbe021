# SPDX-License-Identifier: Apache-2.0
"""What a database server of its own brings with it: it is away, it is full of others' tables, it is older."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from pathlib import Path

import pytest
import sqlalchemy as sql

from forebay.errors import InvalidArgumentError, RefusedError, StorageError, UnsupportedError
from forebay.manager.records import ReservationRow
from forebay.workflows.manager.core.database.database import Database
from tests.support.instance import CommandLineInstance
from tests.support.load import until
from tests.support.manager_database import new_database
from tests.support.postgresql import PostgreSQL


def place() -> str:
    url = new_database(Path())
    assert isinstance(url, str)
    return url


# crash-matrix: the manager's work, with its database in PostgreSQL | PostgreSQL, ended at once and started again | requests are refused with the reason, and done when asked again; doctor finds nothing
def test_while_postgresql_is_away_requests_are_refused_and_later_done(postgresql: PostgreSQL, tmp_path: Path) -> None:
    instance = CommandLineInstance(tmp_path / "root")
    with instance:
        instance.ask("create", "before", "--capacity", "16MiB", "--persistent")
        postgresql.stop()
        try:
            refused = instance.run("create", "later", "--capacity", "16MiB", "--persistent")
            assert refused.returncode != 0
            assert "database cannot be read or written" in refused.stderr
            assert instance.run("doctor").returncode != 0
        finally:
            postgresql.start()
        instance.ask("create", "later", "--capacity", "16MiB", "--persistent")
        assert {row["name"] for row in instance.ask("ls")["reservations"]} == {"before", "later"}
        assert instance.run("doctor").returncode == 0
        instance.kill_manager()
        instance.up()
        assert instance.run("doctor").returncode == 0


def test_two_instances_do_not_share_a_database(tmp_path: Path) -> None:
    first, second = CommandLineInstance(tmp_path / "first"), CommandLineInstance(tmp_path / "second")
    second.environment["FOREBAY_CONFIG"] = first.environment["FOREBAY_CONFIG"]
    with first:
        refused = second.run("up", "--capacity", "1GiB")
        assert refused.returncode != 0
        assert f"belongs to the instance below {first.root}" in refused.stderr
    second.run("down", "--force")


def test_down_without_a_server_dooms_what_is_not_persistent(tmp_path: Path) -> None:
    instance = CommandLineInstance(tmp_path / "root")
    with instance:
        instance.ask("create", "kept", "--capacity", "16MiB", "--persistent")
        instance.ask("create", "scratch", "--capacity", "16MiB")
        instance.kill_manager()
        instance.kill_server()
        assert instance.ask("down")["to_destroy"] == ["scratch"]
        instance.up()
        assert [row["name"] for row in instance.ask("ls")["reservations"]] == ["kept"]


def test_a_database_of_another_version_or_instance_is_refused() -> None:
    url = place()
    Database(url, "/root").close()
    with pytest.raises(RefusedError, match="belongs to the instance below /root"):
        Database(url, "/other")
    engine = sql.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sql.text("UPDATE format SET version = 7"))
    with pytest.raises(UnsupportedError, match="version 7"):
        Database(url, "/root")
    with engine.begin() as connection:
        connection.execute(sql.text("ALTER TABLE format RENAME TO schema"))
    with pytest.raises(UnsupportedError, match="another version of forebay"):
        Database(url, "/root")
    engine.dispose()


def test_a_large_uid_is_kept_as_it_is() -> None:
    with contextlib.closing(Database(place())) as database:
        database.put_reservation(ReservationRow("run1", 1, True, 2**32 - 2, 2**32 - 2))
        known = database.reservation("run1")
        assert known is not None
        assert (known.owner_uid, known.owner_gid) == (2**32 - 2, 2**32 - 2)


def test_a_password_is_in_no_message() -> None:
    with pytest.raises(StorageError) as caught:
        Database("postgresql+psycopg://forebay:hunter2@/forebay?host=/nowhere")
    assert "hunter2" not in str(caught.value)
    assert "see to its server" in caught.value.what


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about a manager that runs as root")
def test_the_guides_lines_let_roots_manager_in_where_users_have_their_own_name_only(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operations" / "database.md").read_text(encoding="utf-8")
    (ident,) = re.findall(r"^ +(forebay +root +forebay)$", page, re.MULTILINE)
    (hba,) = re.findall(r"^ +(local +forebay .*)$", page, re.MULTILINE)
    stock = "local all postgres peer\nlocal all all peer\n"
    with PostgreSQL() as server:
        engine = sql.create_engine(server.url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sql.text("CREATE USER forebay"))
            connection.execute(sql.text("CREATE DATABASE forebay OWNER forebay"))
        engine.dispose()
        url = server.url.replace("postgres@/postgres", "forebay@/forebay")
        server.admit(stock, "")
        until(lambda: is_refused(url), "PostgreSQL to take its new rules")
        server.admit(f"{hba}\n{stock}", f"{ident}\n")
        until(lambda: not is_refused(url), "PostgreSQL to let the manager in")
        database = Database(url, str(tmp_path))
        assert database.reservations() == []
        database.close()


def is_refused(url: str) -> bool:
    """PostgreSQL does not know this process as that user."""
    engine = sql.create_engine(url)
    try:
        with engine.connect():
            return False
    except sql.exc.OperationalError as error:
        if "authentication failed" not in str(error):
            raise
        return True
    finally:
        engine.dispose()


def test_a_database_of_a_format_before_becomes_one_of_this() -> None:
    # A table exists once its module is imported.
    importlib.import_module("forebay.workflows.manager.core.stages.asked_stages")
    url = place()
    with contextlib.closing(Database(url, "/root")) as database:
        stage = database.add_stage({"kind": "files"}, 7, 7, 0o22).id
    engine = sql.create_engine(url)
    row = "INSERT INTO asked_stages VALUES (:stage, 7, 'id-1', 'a', false, 17)"
    with engine.begin() as connection:
        connection.execute(sql.text("ALTER TABLE asked_stages DROP COLUMN told"))
        connection.execute(sql.text("UPDATE format SET version = 3"))
        connection.execute(sql.text(row), {"stage": stage})
    Database(url, "/root").close()
    with engine.begin() as connection:
        assert connection.execute(sql.text("SELECT version FROM format")).all() == [(4,)]
        assert connection.execute(sql.text("SELECT stage, told FROM asked_stages")).all() == [(stage, False)]
    engine.dispose()


def test_values_that_postgresql_does_not_have_are_the_requests_fault(tmp_path: Path) -> None:
    database = Database(place(), str(tmp_path))
    try:
        with pytest.raises(InvalidArgumentError, match="NUL"):
            database.reservation("a\0b")
        with pytest.raises(InvalidArgumentError, match="out of range"):
            database.stage(2**31)
    finally:
        database.close()
