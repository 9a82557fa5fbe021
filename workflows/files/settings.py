# SPDX-License-Identifier: Apache-2.0
"""The table `[files]` of the centre's configuration: how nodes without a server reach files."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from forebay.errors import InvalidArgumentError
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.manager.core.configuration import check_table

__all__ = ["FilesSettings"]

_PORTS = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_PORT_MAX = 1023
_CGROUP = re.compile(r"(?!\.)[\w.@:-]+(/(?!\.)[\w.@:-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class FilesSettings:
    """The settings with their defaults."""

    #: HOST:PORT of a server of the pool, as nodes without one reach it: they ask the manager there.
    server: str = ""
    #: The address of this node at which others mount files; "": the host of `server`.
    address: str = ""
    #: One for each reservation whose files are shown on other nodes. Below 1024, where only root's programs listen: a
    #: user of this node could else take the place of a server that is just being started again.
    ports: str = "700-999"
    operation_seconds_max: float = 30.0  #: how long an operation of a driver may take before it is killed
    lease_seconds: float = 40.0  #: how long a node that is cut off keeps its locks
    begin_seconds_max: float = 120.0  #: how long the prolog waits for the manager and for the mounts
    end_seconds_max: float = 60.0  #: how long the epilog syncs and unmounts before the node counts as unclean
    #: Where daemons run, below the top of the kernel's hierarchies; "": where who starts them does.
    cgroup: str = "forebay"
    commands: SiteCommands | None = None  #: a site's own engine

    @property
    def home_address(self) -> str:
        """Where files are mounted from."""
        return self.address or self.server.rpartition(":")[0]

    @property
    def port_range(self) -> range:
        """The ports that engines may take."""
        match = _PORTS.fullmatch(self.ports)
        assert match is not None  # from_configuration has looked
        return range(int(match[1]), int(match[2]) + 1)

    @classmethod
    def from_configuration(cls, tables: dict[str, Any], path: Path) -> FilesSettings | None:
        """Reads the table; None if there is none.

        Raises
        ------
        InvalidArgumentError
            A setting is unknown, of another type, or means nothing.
        """
        if "files" not in tables:
            return None
        table = tables["files"]
        kinds = {setting.name: type(setting.default) for setting in fields(cls) if setting.name != "commands"}
        plain = {key: value for key, value in table.items() if key != "commands"} if isinstance(table, dict) else table
        settings = cls(**check_table(plain, "files", kinds, path))
        if "commands" in table:
            commands = SiteCommands.from_table(table["commands"], settings.operation_seconds_max, path)
            settings = replace(settings, commands=replace(commands, cgroup=settings.cgroup))
        if settings.cgroup and _CGROUP.fullmatch(settings.cgroup) is None:
            raise InvalidArgumentError("[files] cgroup must be a path without a first / and without ..", str(path))
        if settings.server and not settings.server.rpartition(":")[2].isdecimal():
            raise InvalidArgumentError("[files] server must be HOST:PORT", str(path))
        match = _PORTS.fullmatch(settings.ports)
        if match is None or not 0 < int(match[1]) <= int(match[2]) <= _PORT_MAX:
            raise InvalidArgumentError(
                f'[files] ports must be "FIRST-LAST", up to {_PORT_MAX}: users may listen at higher ones', str(path)
            )
        for name in ("operation_seconds_max", "lease_seconds", "begin_seconds_max", "end_seconds_max"):
            if getattr(settings, name) <= 0:
                raise InvalidArgumentError(f"[files] {name} must be above 0", str(path))
        if settings.lease_seconds < 1:
            raise InvalidArgumentError("[files] lease_seconds must be 1 at least", str(path))
        return settings
