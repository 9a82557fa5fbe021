# SPDX-License-Identifier: Apache-2.0
"""SQLite or PostgreSQL: how the manager connects to either, and what their errors mean."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any, TypeAlias

import sqlalchemy as sql
from sqlalchemy import event

from forebay.errors import (
    CorruptError,
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    StorageError,
    UnsupportedError,
)

__all__ = ["DatabasePlace", "connect_to", "readable_error"]

#: A file of SQLite's, or the URL of a database of PostgreSQL's.
DatabasePlace: TypeAlias = Path | str

_MEMORY = ":memory:"
# Fewer than a server of PostgreSQL's takes by default. A thread holds one only for a transaction.
_CONNECTIONS_KEPT = 8
_CONNECTIONS_MORE = 40
_WAIT_SECONDS = 30
#: SQLSTATE: disk_full.
_NO_ROOM = ("53100",)


def connect_to(place: DatabasePlace) -> tuple[sql.Engine, str]:
    """The engine, and the place as messages may name it: without a password.

    Raises
    ------
    InvalidArgumentError
        It is no URL of PostgreSQL's.
    UnsupportedError
        The driver is not installed.
    """
    if isinstance(place, Path):
        # SQLAlchemy has a connection of its own kind for databases in memory.
        options: dict[str, Any] = {} if str(place) == _MEMORY else _pool_options()
        engine = sql.create_engine(f"sqlite:///{place}", **options)
        event.listen(engine, "connect", _configure_sqlite)
        return engine, str(place)
    try:
        url = sql.make_url(place)
    except sql.exc.ArgumentError:
        url = None
    if url is None or url.get_backend_name() != "postgresql":
        raise InvalidArgumentError(
            "the database must be PostgreSQL's, as in postgresql+psycopg://forebay@/forebay?host=/run/postgresql"
        )
    where = url.render_as_string(hide_password=True)
    try:
        # A server that was restarted is found again.
        return sql.create_engine(url, pool_pre_ping=True, **_pool_options()), where
    except (ModuleNotFoundError, sql.exc.NoSuchModuleError):
        raise UnsupportedError(
            f"the driver {url.drivername} is not installed; `pip install 'forebay[postgresql]'` installs psycopg, for "
            "postgresql+psycopg://",
            where,
        ) from None


def readable_error(error: sql.exc.SQLAlchemyError, where: str) -> ForebayError:
    """What to do about it."""
    cause = getattr(error, "orig", None) or error
    if isinstance(error, sql.exc.DataError):
        # PostgreSQL has no text with a NUL, and smaller numbers than SQLite.
        return InvalidArgumentError(f"the request has a value that the manager's database cannot have: {cause}")
    code = getattr(cause, "sqlite_errorcode", 0)
    # The index of the log of changes is a file of its own, whose want of space SQLite tells as an I/O error.
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE) or getattr(cause, "sqlstate", "") in _NO_ROOM:
        return NoSpaceError(
            "the disk that holds the manager's database is full; make room there, then run the same command again",
            where,
        )
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptError(
            f"the manager's database is damaged ({cause}); end the manager if it runs (its pid is in manager.pid), "
            "move the database away with its -wal and -shm, then `forebay up`: reservations are found again, stages "
            "are forgotten",
            where,
        )
    text = " ".join(str(cause).split())
    if not isinstance(cause, sqlite3.Error):
        return StorageError(
            f"the manager's database cannot be read or written ({text}); see to its server, then run the same command "
            "again",
            where,
        )
    return StorageError(
        f"the manager's database cannot be read or written ({text}); see to its disk, then run the same command again",
        where,
    )


def _pool_options() -> dict[str, int]:
    return {"pool_size": _CONNECTIONS_KEPT, "max_overflow": _CONNECTIONS_MORE, "pool_timeout": _WAIT_SECONDS}


def _configure_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "busy_timeout = 10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
