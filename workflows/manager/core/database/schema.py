# SPDX-License-Identifier: Apache-2.0
"""The version of the manager's tables."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sql
from sqlalchemy.schema import CreateColumn

from forebay.errors import RefusedError, UnsupportedError

__all__ = ["check_and_make", "metadata", "try_change"]

_FORMAT = "forebay.manager"
_VERSION = 4
#: They have the same tables without some of this one's, or without some columns, which have a default.
_EARLIER_VERSIONS = (2, 3)

metadata = sql.MetaData()

_format = sql.Table(
    "format",
    metadata,
    sql.Column("format", sql.String, nullable=False),
    sql.Column("version", sql.Integer, nullable=False),
    sql.Column("root", sql.String, nullable=False),  # of the instance, in a database that several could share
)


def check_and_make(connection: sql.Connection, where: str, root: str) -> None:
    """Makes the tables, unless they are there.

    Parameters
    ----------
    where : str
        The database, for messages.
    root : str
        The instance to which it must belong; "" if only one can have it.

    Raises
    ------
    UnsupportedError
        Another version of forebay has written it, or something else; nothing is changed.
    RefusedError
        It belongs to another instance.
    """
    # The table that databases had before the formats began again at 1.
    if sql.inspect(connection).has_table("schema"):
        raise UnsupportedError(
            "this is the database of another version of forebay; use the one that wrote it, or move the database away",
            where,
        )
    _format.create(connection, checkfirst=True)
    found = connection.execute(sql.select(_format.c.format, _format.c.version)).first()
    if found is None:
        connection.execute(_format.insert().values(format=_FORMAT, version=_VERSION, root=root))
    elif found.format == _FORMAT and found.version in _EARLIER_VERSIONS:
        _add_columns(connection)
        connection.execute(_format.update().values(version=_VERSION))
    elif tuple(found) != (_FORMAT, _VERSION):
        raise UnsupportedError(
            f"the manager's database is of format {found.format}, version {found.version}, this forebay knows "
            f"{_FORMAT}, version {_VERSION}; use the forebay that wrote it, or move it away",
            where,
        )
    metadata.create_all(connection)
    for table in metadata.sorted_tables:
        for index in table.indexes:  # that a table from before did not have
            index.create(connection, checkfirst=True)
    owner = connection.scalar(sql.select(_format.c.root))
    if root and owner and owner != root:
        raise RefusedError(
            f"the manager's database belongs to the instance below {owner}, and not to the one below {root}; give each "
            "a database of its own",
            where,
        )
    if root and not owner:
        connection.execute(_format.update().values(root=root))


def _add_columns(connection: sql.Connection) -> None:
    """Tables that are there get the columns that they do not have; idempotent."""
    there = sql.inspect(connection)
    for table in filter(lambda table: there.has_table(table.name), metadata.sorted_tables):
        known = {column["name"] for column in there.get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                definition = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(sql.text(f"ALTER TABLE {table.name} ADD COLUMN {definition}"))


def try_change(connect: Callable[[], sql.Connection]) -> None:
    """A change that changes nothing: raises as the database does where it cannot be written."""
    with connect() as connection, connection.begin():
        # A value that is replaced by itself would not be written.
        connection.execute(_format.update().values(version=0))
        connection.execute(_format.update().values(version=_VERSION))
