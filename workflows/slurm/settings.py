# SPDX-License-Identifier: Apache-2.0
"""What the centre has decided about Slurm: the table `[slurm]` of /etc/forebay/forebay.toml (or $FOREBAY_CONFIG)."""

from __future__ import annotations

import os
import pwd
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from forebay.errors import InvalidArgumentError
from forebay.sizes import parse_size

__all__ = ["SlurmSettings", "configuration_file"]

_STREAMS_BYTES_MIN = 8 << 20  # what a server gives at least


def configuration_file() -> Path:
    """Where the centre's configuration lies."""
    return Path(os.environ.get("FOREBAY_CONFIG") or "/etc/forebay/forebay.toml")


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """The settings with their defaults."""

    scheduler_user: str = "slurm"  #: SlurmUser of slurm.conf: its uid may act for others, by the calls of the contract
    uid_min: int = 1000  #: users below it get no reservations through the scheduler, and uid 0 never
    pool: str = "forebay"  #: the pool's name in Slurm
    granularity: str = "16MiB"
    streams_share: float = 0.5  #: space for streams on top of what a job asks for its files, as a part of that
    scontrol: str = "scontrol"
    quiet_seconds_max: float = 240.0  #: how long post_run waits for the job's processes; below OtherTimeout
    quarantine_days: float = 14.0  #: how long data is kept that a job could not stage out

    @property
    def granularity_bytes(self) -> int:
        """The pool's unit."""
        return parse_size(self.granularity)

    def streams_bytes(self, files_bytes: int) -> int:
        """Space for streams that comes with so much for files."""
        wanted = round(files_bytes * self.streams_share)
        return max(wanted, _STREAMS_BYTES_MIN) if wanted else 0

    @property
    def scheduler_uid(self) -> int | None:
        """The trusted scheduler's uid; None if there is no such user."""
        try:
            return pwd.getpwnam(self.scheduler_user).pw_uid
        except KeyError:
            return None

    @classmethod
    def load(cls, path: Path) -> SlurmSettings | None:
        """Reads the table; None if there is no file, or no such table: then nobody acts for others.

        Raises
        ------
        InvalidArgumentError
            The file is no TOML, or a setting is unknown or of another type.
        """
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise InvalidArgumentError(f"the configuration cannot be read: {error}", str(path)) from None
        table = document.get("slurm")
        return None if table is None else cls._from_table(table, path)

    @classmethod
    def _from_table(cls, table: Any, path: Path) -> SlurmSettings:
        if not isinstance(table, dict):
            raise InvalidArgumentError("slurm is no table; write [slurm]", str(path))
        known = {field.name: field.default for field in fields(cls)}
        for name, value in table.items():
            if name not in known:
                raise InvalidArgumentError(f"[slurm] has no setting {name}; there are {', '.join(known)}", str(path))
            kind = type(known[name])
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise InvalidArgumentError(f"[slurm] {name} must be of type {kind.__name__}", str(path))
        settings = cls(**table)
        if settings.granularity_bytes <= 0 or settings.streams_share < 0 or settings.quarantine_days < 0:
            raise InvalidArgumentError(
                "[slurm] granularity must be above 0, streams_share and quarantine_days not below", str(path)
            )
        return settings
