# SPDX-License-Identifier: Apache-2.0
"""What Slurm and `dwstat` are told: two files below ROOT/slurm. Their programs read them without the manager.

`snapshot` is the scheduler's: its lists, and the variables of each job. `dwstat` is for everybody. Both are replaced
before a call that changed something is answered, and stay when the manager is away: an empty or missing list would have
Slurm forget the buffers that it knows.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forebay.errors import DisconnectedError, ForebayError
from forebay.records import ServerInfo
from forebay.workflows.manager.attachment_table import AttachmentKind, AttachmentTable
from forebay.workflows.manager.database import Database, ReservationRow
from forebay.workflows.manager.job_table import JobRow, JobTable
from forebay.workflows.manager.pools import Pools
from forebay.workflows.manager.server_link import ServerLink
from forebay.workflows.manager.states import JobState
from forebay.workflows.slurm.sessions import PoolState, Session, Use, session_of_job, session_of_persistent
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.status_tables import status_tables
from forebay.workflows.staging.publication import write_whole

__all__ = ["Books"]

_log = logging.getLogger(__name__)

_LIVING = [state for state in JobState if not state.is_final]


class Books:
    """The files below ROOT/slurm. Usable from several threads.

    Parameters
    ----------
    persistents : callable
        The persistent reservations that Slurm is to know.
    environment : callable
        The variables of one job.
    """

    def __init__(
        self,
        root: Path,
        settings: SlurmSettings,
        database: Database,
        link: ServerLink,
        pools: Pools,
        persistents: Callable[[], list[ReservationRow]],
        environment: Callable[[JobRow], dict[str, str]],
    ) -> None:
        self._folder = root / "slurm"
        self._settings = settings
        self._jobs = JobTable(database)
        self._attachments = AttachmentTable(database)
        self._database = database
        self._link = link
        self._pools = pools
        self._persistents = persistents
        self._environment = environment
        self._host = socket.gethostname().partition(".")[0]
        self._turn = threading.Lock()  # Guards what follows. Who writes last has looked last.
        self._written: dict[str, str] = {}
        self._server: ServerInfo | None = None
        self._variables: dict[int, str] = {}  # by number of the job's row
        self.pools_bytes: dict[str, int] = {}  #: what jobs may ask of each pool in the whole, as far as it is known

    def refresh(self) -> None:
        """Replaces what has changed. While the server is away, what it last said stands.

        Raises
        ------
        DisconnectedError
            The server is away, and has never been there.
        """
        with self._turn:
            online = self._ask_server()
            assert self._server is not None
            pools = [self._pool(key, self._server, online=online) for key in self._pools.settings.pools]
            self.pools_bytes = {pool.name: pool.quantity * pool.granularity_bytes for pool in pools}
            jobs = self._jobs.all(_LIVING)
            rows = {row.name: row for row in self._database.reservations()}
            sessions = [
                *(session_of_job(job, self._name_of_pool(rows.get(job.reservation))) for job in jobs),
                *(session_of_persistent(row, self._name_of_pool(row)) for row in self._persistents()),
            ]
            if not self._folder.is_dir():
                self._folder.mkdir(mode=0o755)
                self._folder.chmod(0o755)
            self._replace("snapshot", self._lists(pools, sessions) | self._paths(jobs), public=False)
            self._replace("dwstat", status_tables(pools, sessions, self._uses(jobs, sessions)), public=True)

    def _ask_server(self) -> bool:
        try:
            with self._link.admin() as admin:
                self._server = admin.server()
        except DisconnectedError:
            if self._server is None:
                raise
            return False
        return True

    def _pool(self, key: str, server: ServerInfo, *, online: bool) -> PoolState:
        """A job's share for streams comes on top of what it asks for, so the pool looks smaller than it is. What others
        wait for is not free.
        """
        pool = self._pools.settings.pools[key]
        granularity_bytes = pool.granularity_bytes if key else self._settings.granularity_bytes
        unit = round(granularity_bytes * (1 + self._settings.streams_share))
        whole_bytes, free_bytes = self._pools.capacity(key, server)
        quantity = whole_bytes // unit
        return PoolState(
            name=key or self._settings.pool,
            host=self._host,
            online=online,
            granularity_bytes=granularity_bytes,
            quantity=quantity,
            free=min(quantity, max(0, free_bytes - self._pools.waiting_bytes(key)) // unit),
        )

    def _name_of_pool(self, row: ReservationRow | None) -> str:
        return self._settings.pool if row is None or not row.pool else row.pool

    def _lists(self, pools: list[PoolState], sessions: list[Session]) -> dict[str, str]:
        held = [session for session in sessions if session.files_bytes]
        lists: dict[str, list[dict[str, Any]]] = {
            "pools": [
                {
                    "id": pool.name,
                    "units": "bytes",
                    "granularity": pool.granularity_bytes,
                    "quantity": pool.quantity,
                    "free": pool.free,
                }
                for pool in pools
            ],
            "sessions": [
                {
                    "id": session.id,
                    "token": session.token,
                    "owner": session.owner_uid,
                    "created": session.created_seconds,
                }
                for session in sessions
            ],
            "instances": [
                {"id": session.id, "capacity": {"bytes": session.files_bytes}, "links": {"session": session.id}}
                for session in held
            ],
            "configurations": [{"id": session.id, "links": {"instance": session.id}} for session in held],
        }
        # Slurm turns each apostrophe into a quotation mark; names here have none.
        return {
            key if key == "pools" else f"show_{key}": json.dumps({key: items}) + "\n" for key, items in lists.items()
        }

    def _paths(self, jobs: list[JobRow]) -> dict[str, str]:
        """Of the jobs whose setup is done. A job has the same variables all its life."""
        known: dict[int, str] = {}
        for job in jobs:
            if job.state is JobState.SETUP:
                continue
            try:
                known[job.id] = self._variables.get(job.id) or _lines(self._environment(job))
            except ForebayError as error:  # somebody destroyed by force what the job uses
                _log.warning("job %s: its variables are not known: %s", job.token, error)
        self._variables = known
        return {f"paths {job.token}": known[job.id] for job in jobs if job.id in known}

    def _uses(self, jobs: list[JobRow], sessions: list[Session]) -> list[Use]:
        by_holder = {job.holder: job for job in jobs}
        instances = {session.reservation: session.id for session in sessions if session.files_bytes}
        return [
            Use(row.id, by_holder[row.holder].id, instances[row.reservation], by_holder[row.holder].state)
            for row in self._attachments.all()
            if row.kind is AttachmentKind.JOB and row.holder in by_holder and row.reservation in instances
        ]

    def _replace(self, name: str, sections: dict[str, str], *, public: bool) -> None:
        text = "".join(f"== {title}\n{lines}" for title, lines in sections.items()) + "== end\n"
        path = self._folder / name
        if self._written.get(name) == text and path.exists():
            return
        scheduler = self._settings.scheduler_uid
        write_whole(
            path, text, mode=0o644 if public else 0o600, owner=None if public or os.geteuid() != 0 else scheduler
        )
        self._written[name] = text


def _lines(variables: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())
