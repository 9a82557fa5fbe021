# SPDX-License-Identifier: Apache-2.0
"""Mounts of a site's engine on one node: what its commands are told there, and where that is kept.

.answers/ID.site     what was mounted
.answers/ID.told     what the commands were told
.answers/ID.state    what the site's commands at the home keep, for those here to read
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from forebay.errors import StorageError
from forebay.workflows.files.commands.site_command import CommandRunner
from forebay.workflows.files.commands.site_commands import SiteCommands
from forebay.workflows.files.commands.site_mount import SiteMount
from forebay.workflows.staging.publication import write_whole

__all__ = ["SiteMounts", "SiteWanted"]

_NAMES = ("told", "state", "running")


@dataclass(frozen=True, slots=True)
class SiteWanted:
    """What the manager says of a mount by a site's command."""

    incarnation: int  #: of the manager that has answered
    capacity_bytes: int
    way: str  #: which way in, NODE.NUMBER
    state: str  #: what the site's commands keep at the home


@dataclass(frozen=True, slots=True)
class SiteMounts:
    """Those of one node. The caller has the lock of the folder.

    Parameters
    ----------
    folder : Path
        `node_folder/.answers`, root's alone.
    """

    folder: Path
    node: str
    commands: SiteCommands | None
    table: Path

    def is_known(self, reservation: str) -> bool:
        """A command has mounted it here, or half of it."""
        return self._path(reservation, "site").exists()

    def what_changed(self, reservation: str, place: Path) -> str:
        """Why what programs have written may not be where the engine would have brought it; "" if nothing says so."""
        if not self.is_known(reservation) or self._mount(reservation, place).is_as_made():
            return ""
        return "it is not mounted as it was when the job began"

    def mount(self, reservation: str, place: Path, wanted: SiteWanted, deadline: float) -> None:
        """Mounts it; idempotent. Raises as `SiteMount.mount`, and StorageError if the site has no commands here."""
        if self.commands is None:
            raise StorageError("a site's command is to mount this, and the configuration has no [files.commands] here")
        self._mount(reservation, place).check_incarnation(wanted.incarnation)
        write_whole(self._path(reservation, "told"), json.dumps(asdict(wanted)), mode=0o600)
        write_whole(self._path(reservation, "state"), wanted.state, mode=0o600)
        self._mount(reservation, place).mount(wanted.incarnation, wanted.way, deadline)

    def unmount(self, reservation: str, place: Path, *, lazy: bool, deadline: float) -> str:
        """Unmounts it; what is in the way, as `SiteMount.unmount`."""
        said = self._mount(reservation, place).unmount(lazy=lazy, deadline=deadline)
        if not said:
            for name in _NAMES:
                self._path(reservation, name).unlink(missing_ok=True)
        return said

    def _mount(self, reservation: str, place: Path) -> SiteMount:
        told = SiteWanted(0, 0, "", "")
        with contextlib.suppress(OSError, ValueError, TypeError):
            told = SiteWanted(**json.loads(self._path(reservation, "told").read_text(encoding="utf-8")))
        values = {
            "FOREBAY_RESERVATION_ID": reservation,
            "FOREBAY_INCARNATION": str(told.incarnation),
            "FOREBAY_CAPACITY_BYTES": str(told.capacity_bytes),
            "FOREBAY_STATE": str(self._path(reservation, "state")),
            "FOREBAY_WAY_IN": told.way,
        }
        log = self.folder / "commands.log"
        runner = CommandRunner(self.commands or SiteCommands({}), values, self._path(reservation, "running"), log)
        record = self._path(reservation, "site")
        return SiteMount(place, record, runner, {"FOREBAY_NODE": self.node}, self.table)

    def _path(self, reservation: str, name: str) -> Path:
        return self.folder / f"{reservation}.{name}"
