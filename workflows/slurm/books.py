# SPDX-License-Identifier: Apache-2.0
"""What Slurm learns about pools, sessions, instances and configurations: files that its calls read.

The files are replaced before a call that changed something is answered, and stay when the manager is away: an empty or
missing list would have Slurm forget the buffers that it knows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forebay.records import ServerInfo
from forebay.workflows.manager.job_table import JobRow
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.staging.publication import write_whole

__all__ = ["Books"]

_NS = 1_000_000_000


class Books:
    """The files below ROOT/slurm."""

    def __init__(self, root: Path, settings: SlurmSettings) -> None:
        self._folder = root / "slurm"
        self._settings = settings
        self._written: dict[str, str] = {}

    def write(self, server: ServerInfo, jobs: Sequence[JobRow]) -> None:
        """Replaces what has changed; `jobs` are those that Slurm is to know."""
        if not self._folder.is_dir():
            self._folder.mkdir(mode=0o755)
            self._folder.chmod(0o755)
        sessions = [
            {"id": job.id, "token": job.token, "owner": job.owner_uid, "created": job.created_ns // _NS} for job in jobs
        ]
        instances = [
            {"id": job.id, "capacity": {"bytes": job.capacity_bytes}, "links": {"session": job.id}}
            for job in jobs
            if job.capacity_bytes
        ]
        configurations = [{"id": job.id, "links": {"instance": job.id}} for job in jobs if job.capacity_bytes]
        self._replace("pools", {"pools": [self._pool(server)]})
        self._replace("show_sessions", {"sessions": sessions})
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
