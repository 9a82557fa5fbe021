# SPDX-License-Identifier: Apache-2.0
"""The version of the manager's tables, and how those of an older version become those of this one.

Tables that an older database lacks are made when it is opened: version 2 brought jobs, 4 attachments, 7 the queue, 9
drains, 11 processes that do not end. What `_UPGRADES` lists is done to the tables that were there before. Each change
may come a second time, for a manager that died among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sql

from forebay.errors import RefusedError, UnsupportedError

__all__ = ["bring_up_to_date", "metadata", "try_change"]


@dataclass(frozen=True, slots=True)
class _AddColumn:
    table: str
    column: str
    definition: str

    def apply(self, connection: sql.Connection) -> None:
        """Adds it, unless the table is not there, or was made just now."""
        inspector = sql.inspect(connection)
        if not inspector.has_table(self.table):
            return
        if self.column not in {known["name"] for known in inspector.get_columns(self.table)}:
            connection.execute(sql.text(f"ALTER TABLE {self.table} ADD COLUMN {self.column} {self.definition}"))


@dataclass(frozen=True, slots=True)
class _AddIndex:
    table: str
    name: str
    columns: str

    def apply(self, connection: sql.Connection) -> None:
        """Adds it, unless it is there."""
        if sql.inspect(connection).has_table(self.table):
            connection.execute(sql.text(f"CREATE INDEX IF NOT EXISTS {self.name} ON {self.table} ({self.columns})"))


@dataclass(frozen=True, slots=True)
class _DropTable:
    table: str

    def apply(self, connection: sql.Connection) -> None:
        """Removes it, if it is there."""
        connection.execute(sql.text(f"DROP TABLE IF EXISTS {self.table}"))


_UPGRADES: dict[int, tuple[_AddColumn | _AddIndex | _DropTable, ...]] = {
    2: (),
    3: (_AddColumn("reservations", "files_bytes", "BIGINT NOT NULL DEFAULT 0"),),
    4: (),
    5: (_AddColumn("jobs", "quiet", "BOOLEAN NOT NULL DEFAULT 0"),),
    6: (_AddColumn("jobs", "node_count", "INTEGER NOT NULL DEFAULT 0"),),
    7: (
        _AddColumn("reservations", "pool", "VARCHAR NOT NULL DEFAULT ''"),
        _AddColumn("reservations", "account", "VARCHAR NOT NULL DEFAULT ''"),
    ),
    # From here on, what both SQLite and PostgreSQL understand.
    8: (
        _AddColumn("schema", "root", "VARCHAR NOT NULL DEFAULT ''"),
        _AddColumn("jobs", "deadline_ns", "BIGINT"),
        _AddIndex("jobs", "ix_jobs_state", "state"),
        _AddIndex("attachments", "ix_attachments_holder", "holder"),
        _AddIndex("reservations", "ix_reservations_held", "pool, account, owner_uid, capacity_bytes, files_bytes"),
    ),
    9: (),
    # Receipts are kept below ROOT/receipts.
    10: (_DropTable("receipts"),),
    11: (),
}
_VERSION = max(_UPGRADES)
_OLDEST_VERSION = 1

metadata = sql.MetaData()

_schema = sql.Table(
    "schema",
    metadata,
    sql.Column("version", sql.Integer, nullable=False),
    sql.Column("root", sql.String, nullable=False),  # of the instance, in a database that several could share
)


def bring_up_to_date(connection: sql.Connection, where: str, root: str) -> None:
    """Makes the tables, or changes those of an older version.

    Parameters
    ----------
    where : str
        The database, for messages.
    root : str
        The instance to which it must belong; "" if only one can have it.

    Raises
    ------
    UnsupportedError
        A newer forebay has written it.
    RefusedError
        It belongs to another instance.
    """
    metadata.create_all(connection)
    version = connection.scalar(sql.select(_schema.c.version))
    if version is None:
        connection.execute(_schema.insert().values(version=_VERSION, root=root))
        return
    if not _OLDEST_VERSION <= version <= _VERSION:
        raise UnsupportedError(
            f"the manager's database has version {version}, this forebay knows {_VERSION}; use the forebay that wrote "
            "it",
            where,
        )
    for later in range(version + 1, _VERSION + 1):
        for upgrade in _UPGRADES[later]:
            upgrade.apply(connection)
    if version != _VERSION:
        connection.execute(_schema.update().values(version=_VERSION))
    owner = connection.scalar(sql.select(_schema.c.root))
    if root and owner and owner != root:
        raise RefusedError(
            f"the manager's database belongs to the instance below {owner}, and not to the one below {root}; give each "
            "a database of its own",
            where,
        )
    if root and not owner:
        connection.execute(_schema.update().values(root=root))


def try_change(connect: Callable[[], sql.Connection]) -> None:
    """A change that changes nothing: raises as the database does where it cannot be written."""
    with connect() as connection, connection.begin():
        # A value that is replaced by itself would not be written.
        connection.execute(_schema.update().values(version=0))
        connection.execute(_schema.update().values(version=_VERSION))
