# SPDX-License-Identifier: Apache-2.0
"""What the centre has decided about Slurm: the table `[slurm]` of its configuration."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from forebay.errors import InvalidArgumentError
from forebay.manager.records import JobState
from forebay.sizes import parse_size
from forebay.workflows.manager.core.configuration import check_table
from forebay.workflows.slurm.node_names import parse_node_names

__all__ = ["SlurmSettings"]

_TOKEN_DAYS_MAX = 366  # the server makes none that live longer
_STREAMS_BYTES_MIN = 8 << 20  # what a server gives at least


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """The settings with their defaults."""

    scheduler_user: str = "slurm"  #: SlurmUser of slurm.conf: its uid may act for others, by the calls of the contract
    uid_min: int = 1000  #: users below it get no reservations through the scheduler, and uid 0 never
    pool: str = "forebay"  #: the default pool's name in Slurm
    granularity: str = "16MiB"
    streams_share: float = 0.5  #: space for streams on top of what a job asks for its files, as a part of that
    scontrol: str = "scontrol"
    setup_seconds_max: float = 280.0  #: how long a job's reservation may take to be made; below OtherTimeout
    quiet_seconds_max: float = 240.0  #: how long post_run waits for the job's processes; below OtherTimeout
    stage_in_seconds_max: float = (
        86000.0  #: how long data_in may take; below StageInTimeout, so that the reason is told
    )
    stage_out_seconds_max: float = 86000.0  #: likewise data_out, and StageOutTimeout
    quarantine_days: float = 14.0  #: how long data is kept that a job could not stage out
    sweep_seconds: float = 30.0  #: how often jobs are looked for that Slurm has lost, and quarantines that are over
    lost_seconds: float = 600.0  #: how long a job's state must have stood still for that
    nodes: str = ""  #: Slurm's names of the nodes that see the root, as "n[1-4],login1"; "": all
    #: A folder on each node, such as /run/forebay, where the prolog's `forebay job-begin` links the node's own private
    #: scratch; "": there is no prolog, so private scratch is for jobs of one node.
    node_folder: str = ""
    #: Where the nodes of jobs reach the server, HOST:PORT, as `forebay up --listen` opened it; "": jobs get no tokens.
    server: str = ""
    token_days: float = 30.0  #: how long a job's token is valid; it is renewed when half of that is over

    @property
    def token_seconds(self) -> float:
        """How long a job's token is valid."""
        return self.token_days * 86400.0

    @property
    def squeue(self) -> str:
        """The program beside `scontrol`."""
        return str(Path(self.scontrol).with_name("squeue"))

    @property
    def sinfo(self) -> str:
        """Likewise."""
        return str(Path(self.scontrol).with_name("sinfo"))

    @property
    def granularity_bytes(self) -> int:
        """The pool's unit."""
        return parse_size(self.granularity)

    def seconds_max(self, state: JobState) -> float | None:
        """How long a job may be in a state; None: that is the scheduler's to say."""
        return {
            JobState.SETUP: self.setup_seconds_max,
            JobState.DATA_IN: self.stage_in_seconds_max,
            JobState.POST_RUN: self.quiet_seconds_max,
            JobState.DATA_OUT: self.stage_out_seconds_max,
            JobState.KEPT: self.quarantine_days * 86400.0,
        }.get(state)

    def streams_bytes(self, files_bytes: int) -> int:
        """Space for streams that comes with so much for files."""
        wanted = round(files_bytes * self.streams_share)
        return max(wanted, _STREAMS_BYTES_MIN) if wanted else 0

    @property
    def node_mounts(self) -> str:
        """The folder in which each node has what is mounted for jobs, by the reservations' ids; "": no node has any."""
        return f"{os.path.realpath(self.node_folder)}/.mounts" if self.node_folder else ""

    @property
    def scheduler_uid(self) -> int | None:
        """The trusted scheduler's uid; None if there is no such user."""
        try:
            return pwd.getpwnam(self.scheduler_user).pw_uid
        except KeyError:
            return None

    @classmethod
    def from_configuration(cls, tables: dict[str, Any], path: Path) -> SlurmSettings | None:
        """Reads the table; None if there is none: then nobody acts for others.

        Raises
        ------
        InvalidArgumentError
            A setting is unknown or of another type.
        """
        if "slurm" not in tables:
            return None
        kinds = {setting.name: type(setting.default) for setting in fields(cls)}
        settings = cls(**check_table(tables["slurm"], "slurm", kinds, path))
        parse_node_names(settings.nodes)
        if settings.node_folder and not Path(settings.node_folder).is_absolute():
            raise InvalidArgumentError("[slurm] node_folder must be an absolute path", str(path))
        if settings.server and not settings.server.rpartition(":")[2].isdecimal():
            raise InvalidArgumentError("[slurm] server must be HOST:PORT", str(path))
        if not 0 < settings.token_days <= _TOKEN_DAYS_MAX:
            raise InvalidArgumentError(f"[slurm] token_days must be above 0, and at most {_TOKEN_DAYS_MAX}", str(path))
        if settings.granularity_bytes <= 0 or settings.streams_share < 0 or settings.quarantine_days < 0:
            raise InvalidArgumentError(
                "[slurm] granularity must be above 0, streams_share and quarantine_days not below", str(path)
            )
        return settings
