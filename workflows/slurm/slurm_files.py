# SPDX-License-Identifier: Apache-2.0
"""What Slurm and `dwstat` are told: files below ROOT/slurm. Their programs read them without the manager.

`snapshot` is the scheduler's: its pools, and how many parts `snapshot.N` have the sessions, with the variables of each
job. What a call changed is replaced before the call is answered. `dwstat` is for everybody. All stay when the manager
is away: an empty or missing list would have Slurm forget the buffers that it knows. Nothing is synced: after a crash of
the machine the manager writes them anew, and the programs tell half a file from a whole one.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from forebay.errors import DisconnectedError, ForebayError
from forebay.manager.records import JobRow, JobState, ReservationRow
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.pools.placement import Reach, ServerSpace
from forebay.workflows.manager.core.pools.pools import Pools
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.slurm.known_rows import KnownRows
from forebay.workflows.slurm.sessions import PoolState, ServerState, Session, Use, session_of_job, session_of_persistent
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.snapshot_sections import PARTS, Entry, SnapshotSections, part_name
from forebay.workflows.slurm.status_tables import status_tables
from forebay.workflows.staging.publication import write_whole

__all__ = ["SlurmFiles"]

_log = logging.getLogger(__name__)

#: With more sessions, tables for `dwstat` take so long that no call waits for them: they follow within seconds.
_TABLES_AT_ONCE_MAX = 200
#: They are not made for this many times as long as they took.
_TABLES_PAUSE = 20


class SlurmFiles:
    """The files below ROOT/slurm. Usable from several threads.

    Parameters
    ----------
    environment : callable
        The variables of one job.
    reach : callable
        Where reservations of jobs from a pool may lie.
    """

    def __init__(
        self,
        root: Path,
        settings: SlurmSettings,
        database: Database,
        pools: Pools,
        environment: Callable[[JobRow], dict[str, str]],
        reach: Callable[[str], Reach],
    ) -> None:
        self._folder = root / "slurm"
        self._settings = settings
        self._rows = KnownRows(database)
        self._pools = pools
        self._environment = environment
        self._reach = reach
        self._turn = threading.Lock()  # Guards what follows. Who writes last has looked last.
        self._looks = 0
        self._written: dict[str, str] = {}
        self._spaces: list[ServerSpace] = []  # as the servers last said
        self._pools_written: list[PoolState] = []
        self._tables_due = True
        self._tables_not_before = 0.0
        self._sections = SnapshotSections()
        self._variables: dict[int, str] = {}  # sections of the snapshot, by number of the job
        self._unknown: set[int] = set()  # jobs whose variables could not be written
        self._tables_turn = threading.Lock()  # Guards the file `dwstat`, and what follows. It is taken after the other.
        self._tables_look = 0  # by which look at the rows it was written
        self._tables_text = ""
        self.pools: dict[str, PoolState] = {}  #: by name, as far as they are known

    def refresh(self, *, at_leisure: bool = False) -> None:
        """Replaces what has changed. While the server is away, what it last said stands.

        Parameters
        ----------
        at_leisure : bool
            No call waits for it: also long tables for `dwstat` are made.

        Raises
        ------
        DisconnectedError
            The server is away, and has never been there.
        """
        with self._turn:
            online = self._ask_server()
            pools = [self._pool(key, online=online) for key in self._pools.settings.pools]
            self.pools = {pool.name: pool for pool in pools}
            changed = self._rows.refresh()
            self._tables_due = self._tables_due or bool(changed) or pools != self._pools_written
            if not changed and not self._unknown and pools == self._pools_written and not self._tables_due:
                return
            for key in changed | self._unknown:
                self._sections.put(key, self._session(key))
            if not self._folder.is_dir():
                self._folder.mkdir(mode=0o755)
                self._folder.chmod(0o755)
            for number in sorted(self._sections.changed):
                self._replace_part(part_name(number), self._sections.texts(number))
                self._sections.changed.discard(number)
            # Behind the parts: while there is no snapshot, nobody takes some of them for all.
            self._replace_part("snapshot", [_pools_text(pools), f"== parts\n{PARTS}\n"])
            self._pools_written = pools
            if self._sections.count > _TABLES_AT_ONCE_MAX and not at_leisure:
                return
            sessions = self._sections.sessions()
            uses = self._uses(sessions)
            self._looks += 1
            look = self._looks
            if len(sessions) <= _TABLES_AT_ONCE_MAX:
                self._write_tables(look, pools, sessions, uses)
                self._tables_due = False
                return
            if time.monotonic() < self._tables_not_before:
                return
            self._tables_due = False
        # Nobody waits for these, so they are made without holding anybody up, and not all the time.
        began = time.monotonic()
        try:
            self._write_tables(look, pools, sessions, uses)
        except BaseException:
            with self._turn:
                self._tables_due = True
            raise
        with self._turn:
            self._tables_not_before = time.monotonic() + _TABLES_PAUSE * (time.monotonic() - began)

    def _write_tables(self, look: int, pools: list[PoolState], sessions: list[Session], uses: list[Use]) -> None:
        tables = status_tables(pools, sessions, uses)
        text = _whole([f"== {title}\n{lines}" for title, lines in tables.items()])
        with self._tables_turn:
            if look < self._tables_look:
                return  # Somebody who has looked later was faster.
            self._replace("dwstat", text, self._tables_text, public=True)
            self._tables_look, self._tables_text = look, text

    def _ask_server(self) -> bool:
        try:
            self._spaces = self._pools.spaces()
        except DisconnectedError:
            if not self._spaces:
                raise
            return False
        return True

    def _pool(self, key: str, *, online: bool) -> PoolState:
        """A job's share for streams comes on top of what it asks for, so the pool looks smaller than it is. What others
        wait for is not free, nor what is left on a server beside whole units.
        """
        pool = self._pools.settings.pools[key]
        granularity_bytes = pool.granularity_bytes if key else self._settings.granularity_bytes
        unit = round(granularity_bytes * (1 + self._settings.streams_share))
        reach = self._reach(key)
        spaces = [space for space in reach.of(self._spaces) if reach.allows(space.name)]
        taking = [space for space in spaces if not space.refuses]
        whole_bytes, free_bytes = self._pools.capacity(key, self._spaces)
        free_bytes = min(free_bytes, sum(space.free_bytes for space in taking)) - self._pools.waiting_bytes(key)
        quantity = min(whole_bytes // unit, sum(space.capacity_bytes // unit for space in spaces))
        free = min(quantity, free_bytes // unit, sum(space.free_bytes // unit for space in taking))
        return PoolState(
            name=key or self._settings.pool,
            granularity_bytes=granularity_bytes,
            quantity=quantity,
            free=max(0, free),
            servers=tuple(
                ServerState(
                    name=space.name,
                    online=online and not space.is_away,
                    drained=bool(space.refuses) and not space.is_away,
                    quantity=min(whole_bytes, space.capacity_bytes) // unit,
                )
                for space in spaces
            ),
        )

    def _name_of_pool(self, row: ReservationRow | None) -> str:
        return self._settings.pool if row is None or not row.pool else row.pool

    def _session(self, key: int | str) -> Entry | None:
        """What Slurm is told of a job, by number, or of a persistent reservation, by name; None: nothing."""
        if isinstance(key, str):
            row = self._rows.persistent(key)
            return None if row is None else Entry(session_of_persistent(row, self._name_of_pool(row), _servers_of(row)))
        job = self._rows.job(key)
        if job is None:
            self._variables.pop(key, None)
            self._unknown.discard(key)
            return None
        row = self._rows.reservations.get(job.reservation)
        return Entry(session_of_job(job, self._name_of_pool(row), _servers_of(row)), self._variables_of(job))

    def _variables_of(self, job: JobRow) -> str:
        """Its section of the snapshot, if its setup is done. A job has the same variables all its life."""
        if job.state is JobState.SETUP:
            return ""
        if job.id not in self._variables:
            try:
                self._variables[job.id] = f"== paths {job.token}\n{_lines(self._environment(job))}"
                self._unknown.discard(job.id)
            except ForebayError as error:  # somebody destroyed by force what the job uses
                if job.id not in self._unknown:
                    _log.warning("job %s: its variables are not known: %s", job.token, error)
                self._unknown.add(job.id)
                return ""
        return self._variables[job.id]

    def _uses(self, sessions: list[Session]) -> list[Use]:
        by_holder = {job.holder: job for session in sessions if (job := self._rows.job(session.id)) is not None}
        instances = {session.reservation: session.id for session in sessions if session.files_bytes}
        return [
            Use(row.id, by_holder[row.holder].id, instances[row.reservation], by_holder[row.holder].state)
            for row in sorted((row for rows in self._rows.uses.values() for row in rows), key=lambda row: row.id)
            if row.holder in by_holder and row.reservation in instances
        ]

    def _replace_part(self, name: str, sections: list[str]) -> None:
        text = _whole(sections)
        self._replace(name, text, self._written.get(name), public=False)
        self._written[name] = text

    def _replace(self, name: str, text: str, written: str | None, *, public: bool) -> None:
        path = self._folder / name
        if written == text and path.exists():
            return
        scheduler = self._settings.scheduler_uid
        owner = None if public or os.geteuid() != 0 else scheduler
        write_whole(path, text, mode=0o644 if public else 0o600, owner=owner, durable=False)


def _servers_of(row: ReservationRow | None) -> tuple[tuple[str, int], ...]:
    if row is None:
        return ((server_name(), 0),)
    others = [(member.server or server_name(), member.size_bytes) for member in row.members[1:]]
    return ((row.server or server_name(), row.files_bytes), *others)


def _whole(sections: list[str]) -> str:
    return "".join([*sections, "== end\n"])


def _pools_text(pools: list[PoolState]) -> str:
    rows = [
        {
            "id": pool.name,
            "units": "bytes",
            "granularity": pool.granularity_bytes,
            "quantity": pool.quantity,
            "free": pool.free,
        }
        for pool in pools
    ]
    return f"== pools\n{json.dumps({'pools': rows})}\n"


def _lines(variables: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in variables.items())
