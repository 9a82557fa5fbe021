# SPDX-License-Identifier: Apache-2.0
"""Databases for managers under test: files of SQLite's, or databases of a PostgreSQL that the suite has started."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

__all__ = ["SERVER_VARIABLE", "configuration_line", "new_database"]

#: The URL of the server's own database, while the suite `postgresql` runs.
SERVER_VARIABLE = "FOREBAY_TEST_POSTGRESQL"


def new_database(file: Path) -> Path | str:
    """A place for a manager's database that nobody has used yet: `file`, or a URL."""
    server = os.environ.get(SERVER_VARIABLE)
    if server is None:
        return file
    import sqlalchemy as sql

    name = f"forebay_{uuid.uuid4().hex}"
    engine = sql.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sql.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return sql.make_url(server).set(database=name).render_as_string(hide_password=False)


def configuration_line() -> str:
    """What gives a manager a database in the suite's PostgreSQL; "" where it has a file, as by default."""
    place = new_database(Path())
    return f'database = "{place}"\n' if isinstance(place, str) else ""
