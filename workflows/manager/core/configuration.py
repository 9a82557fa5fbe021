# SPDX-License-Identifier: Apache-2.0
"""The centre's configuration: /etc/forebay/forebay.toml, or the file that $FOREBAY_CONFIG names."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.errors import InvalidArgumentError
from forebay.instance import Instance

__all__ = [
    "check_table",
    "configuration_file",
    "database_place",
    "files_groups",
    "files_image",
    "read_configuration",
]


def configuration_file() -> Path:
    """Where it lies."""
    return Path(os.environ.get("FOREBAY_CONFIG") or "/etc/forebay/forebay.toml")


def read_configuration(path: Path) -> dict[str, Any]:
    """Its tables; none if there is no file.

    Raises
    ------
    InvalidArgumentError
        The file is no TOML, or cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, OSError) as error:
        raise InvalidArgumentError(f"the configuration cannot be read: {error}", str(path)) from None


def database_place(tables: Mapping[str, Any], instance: Instance, path: Path) -> Path | str:
    """Where the manager of this instance keeps what it remembers: `database` of the configuration, a URL, if the
    configuration is this instance's; else a file below its root.

    Raises
    ------
    InvalidArgumentError
        `database` is no text.
    """
    url = tables.get("database", "")
    if not isinstance(url, str):
        raise InvalidArgumentError("database must be a URL in quotes", str(path))
    return url if url and _is_of(tables, instance) else instance.manager_database


def files_image(tables: Mapping[str, Any], instance: Instance, path: Path) -> str:
    """What files/ of this instance's reservations lie in: `files_image` of the configuration, if the configuration is
    this instance's; "": in folders. A configuration that names no instance is meant for those of root.

    Raises
    ------
    InvalidArgumentError
        It is neither "xfs" nor "".
    """
    kind = tables.get("files_image", "")
    if kind not in ("", "xfs"):
        raise InvalidArgumentError('files_image must be "xfs", or not be set', str(path))
    return str(kind) if _is_of(tables, instance) and ("root" in tables or os.geteuid() == 0) else ""


def files_groups(tables: Mapping[str, Any], instance: Instance, path: Path) -> str:
    """`files_groups` of the configuration, if the configuration is this instance's, as the server takes it; "": its
    default.

    Raises
    ------
    InvalidArgumentError
        It is no text. What it says, the server checks.
    """
    groups = tables.get("files_groups", "")
    if not isinstance(groups, str):
        raise InvalidArgumentError('files_groups must be a range in quotes: "2000000000-2000999999"', str(path))
    return groups if _is_of(tables, instance) else ""


def _is_of(tables: Mapping[str, Any], instance: Instance) -> bool:
    """Other instances on the machine read the same configuration."""
    return "root" not in tables or Instance.below(str(tables["root"])).root == instance.root


def check_table(table: Any, name: str, kinds: Mapping[str, type], path: Path) -> dict[str, Any]:
    """The table's settings.

    Raises
    ------
    InvalidArgumentError
        It is no table, or a setting is unknown or of another type.
    """
    if not isinstance(table, dict):
        raise InvalidArgumentError(f"{name} is no table; write [{name}]", str(path))
    for key, value in table.items():
        if key not in kinds:
            raise InvalidArgumentError(f"[{name}] has no setting {key}; there are {', '.join(kinds)}", str(path))
        kind = kinds[key]
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise InvalidArgumentError(f"[{name}] {key} must be of type {kind.__name__}", str(path))
    return table
