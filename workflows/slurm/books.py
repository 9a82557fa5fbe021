# SPDX-License-Identifier: Apache-2.0
"""What Slurm learns about pools, sessions, instances and configurations: files that its calls read.

The files are replaced before a call that changed something is answered, and stay when the manager is away: an empty or
missing list would have Slurm forget the buffers that it knows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.records import ServerInfo
from forebay.workflows.manager.database import ReservationRow
from forebay.workflows.manager.job_table import JobRow
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.staging.publication import write_whole

__all__ = ["Books"]

_NS = 1_000_000_000
#: Jobs are counted from 1; the others take their number from their name, above these.
_PERSISTENTS_FROM = 1 << 30


@dataclass(frozen=True, slots=True)
class _Session:
    """A job or a persistent reservation, as Slurm knows them."""

    id: int
    token: str
    owner_uid: int
    created_ns: int
    files_bytes: int


class Books:
    """The files below ROOT/slurm."""

    def __init__(self, root: Path, settings: SlurmSettings) -> None:
        self._folder = root / "slurm"
        self._settings = settings
        self._written: dict[str, str] = {}
        self.pool_bytes = 0  #: what jobs may ask for in the whole; 0 until it is known

    def write(self, server: ServerInfo, jobs: Sequence[JobRow], persistents: Sequence[ReservationRow]) -> None:
        """Replaces what has changed; these are the jobs and persistent reservations that Slurm is to know."""
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o755)
            self._folder.chmod(0o755)
        sessions = [
            *(_Session(job.id, job.token, job.owner_uid, job.created_ns, job.capacity_bytes) for job in jobs),
            *(_session_of(row) for row in persistents),
        ]
        held = [session for session in sessions if session.files_bytes]
        instances = [
            {"id": session.id, "capacity": {"bytes": session.files_bytes}, "links": {"session": session.id}}
            for session in held
        ]
        configurations = [{"id": session.id, "links": {"instance": session.id}} for session in held]
        pool = self._pool(server)
        self.pool_bytes = pool["quantity"] * pool["granularity"]
        self._replace("pools", {"pools": [pool]})
        self._replace(
            "show_sessions",
            {
                "sessions": [
                    {
                        "id": session.id,
                        "token": session.token,
                        "owner": session.owner_uid,
                        "created": session.created_ns // _NS,
                    }
                    for session in sessions
                ]
            },
        )
        self._replace("show_instances", {"instances": instances})
        self._replace("show_configurations", {"configurations": configurations})

    def _pool(self, server: ServerInfo) -> dict[str, Any]:
        """A job's share for streams comes on top of what it asks for, so the pool looks smaller than it is."""
        unit = round(self._settings.granularity_bytes * (1 + self._settings.streams_share))
        quantity = server.pool_bytes // unit
        return {
            "id": self._settings.pool,
            "units": "bytes",
            "granularity": self._settings.granularity_bytes,
            "quantity": quantity,
            "free": min(quantity, max(0, server.pool_bytes - server.reserved_bytes) // unit),
        }

    def _replace(self, name: str, content: dict[str, Any]) -> None:
        # Slurm turns each apostrophe into a quotation mark; names here have none.
        text = json.dumps(content) + "\n"
        path = self._folder / f"{name}.json"
        if self._written.get(name) == text and path.exists():
            return
        write_whole(path, text, mode=0o644)  # the scheduler's user reads it
        self._written[name] = text


def _session_of(row: ReservationRow) -> _Session:
    number = _PERSISTENTS_FROM + (zlib.crc32(row.name.encode()) & (_PERSISTENTS_FROM - 1))
    return _Session(number, row.name, row.owner_uid, row.created_ns, row.files_bytes)
