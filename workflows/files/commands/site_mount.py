# SPDX-License-Identifier: Apache-2.0
"""One place where a site's command mounts its tree: on a node, or at the home. What was mounted is recorded, and
compared with the kernel's table before anything is done.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from forebay.errors import ForebayError, RefusedError, StorageError
from forebay.fail_point import fail_point
from forebay.mounts import MOUNTS
from forebay.workflows.files.commands.site_command import CommandRunner
from forebay.workflows.files.mounts import Mount, mount_at
from forebay.workflows.files.unmounting import unmount
from forebay.workflows.staging.publication import write_whole

__all__ = ["SiteMount"]

_KERNEL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Made:
    """What was mounted there."""

    incarnation: int
    way: str  #: by which way in: one that was closed never comes again
    mount: tuple[str, str, str] | None = None  #: id, device and source; None: the command has not said that it is done


@dataclass(frozen=True, slots=True)
class SiteMount:
    """The caller has the lock that guards `record`."""

    place: Path
    record: Path
    runner: CommandRunner
    values: Mapping[str, str]  #: which node it is, and where its state lies
    table: Path = MOUNTS

    def is_known(self) -> bool:
        """Something was mounted, or half of it."""
        return self.record.exists()

    def is_there(self) -> bool:
        """As `is_known`; or something is mounted there, whatever it is."""
        return self.is_known() or self._now() is not None

    def is_as_made(self, way: str = "") -> bool:
        """What was mounted is there still, by this way in, "" for any."""
        made, now = self._made(), self._now()
        return made is not None and now is not None and made.mount == _facts(now) and way in ("", made.way)

    def check_incarnation(self, incarnation: int) -> None:
        """RefusedError if a newer manager's word was mounted here."""
        made = self._made()
        if made is not None and made.incarnation > incarnation:
            raise RefusedError("a newer manager has taken over; this operation does nothing", str(self.place))

    def mount(self, incarnation: int, way: str, deadline: float = float("inf")) -> None:
        """Mounts it; idempotent. What another way in showed there goes first.

        Raises
        ------
        RefusedError
            Who asks has been replaced.
        StorageError
            The command has failed, or nothing is mounted after it.
        """
        self.check_incarnation(incarnation)
        made = self._made()
        if self.is_as_made(way):
            self._write(_Made(incarnation, way, made.mount if made is not None else None))
            return
        said = self.unmount(lazy=True, deadline=deadline) if self.is_there() else ""
        if said:
            raise StorageError(f"what is mounted there cannot be taken away: {said}", str(self.place))
        self._write(_Made(incarnation, way))
        fail_point("files.commands.mounting")
        self.runner.run("mount", self._values(lazy=False), deadline)
        now = self._now()
        if now is None:
            raise StorageError("the command mount has succeeded, and nothing is mounted", str(self.place))
        self._write(_Made(incarnation, way, _facts(now)))

    def unmount(self, *, lazy: bool, deadline: float = float("inf")) -> str:
        """Unmounts it, with one run of the command. What is in the way, "" if nothing is: then it is known no more.

        Parameters
        ----------
        lazy : bool
            Whatever has files open there; what the command leaves the kernel takes away.
        """
        said = ""
        try:
            self.runner.run("unmount", self._values(lazy=lazy), deadline)
        except ForebayError as error:
            said = error.what
        if lazy:
            while self._now() is not None:
                if words := unmount(self.place, True, time.monotonic() + _KERNEL_SECONDS):
                    return said or words
        if self._now() is not None:
            return said or "the command unmount has succeeded, and it is mounted still"
        if not said:
            self.forget()
            self.runner.forget()
        return said

    def forget(self) -> None:
        """Nothing of it is left."""
        self.record.unlink(missing_ok=True)

    def _now(self) -> Mount | None:
        return mount_at(self.place, self.table)

    def _values(self, *, lazy: bool) -> dict[str, str]:
        return {**self.values, "FOREBAY_MOUNT_POINT": str(self.place), "FOREBAY_LAZY": "1" if lazy else "0"}

    def _made(self) -> _Made | None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(self.record.read_text(encoding="utf-8"))
            mount = document["mount"]
            return _Made(int(document["incarnation"]), str(document["way"]), tuple(mount) if mount else None)
        return None

    def _write(self, made: _Made) -> None:
        write_whole(self.record, json.dumps(asdict(made)) + "\n", mode=0o600)


def _facts(mount: Mount) -> tuple[str, str, str]:
    return mount.id, mount.device, mount.source
