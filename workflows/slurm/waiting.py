# SPDX-License-Identifier: Apache-2.0
"""What a job waits for that Slurm has not set up yet, for `forebay why JOB`: the manager has no row of it."""

from __future__ import annotations

import asyncio
import re
import time

from forebay.errors import InvalidArgumentError
from forebay.workflows.manager.database import Database
from forebay.workflows.manager.drains import DrainTable, server_name
from forebay.workflows.manager.peer import Peer
from forebay.workflows.manager.why import Answer
from forebay.workflows.slurm.directives import parse_directives
from forebay.workflows.slurm.processes import job_fields

__all__ = ["WaitingJobs"]

_UID = re.compile(r"[^(]*\(([0-9]{1,10})\)")


class WaitingJobs:
    """Usable from several threads."""

    def __init__(self, database: Database, scontrol: str) -> None:
        self._database = database
        self._drains = DrainTable(database)
        self._scontrol = scontrol

    def tell(self, token: str, peer: Peer) -> list[Answer]:
        """On the job, if Slurm knows it as pending, and the caller may see it."""
        fields = asyncio.run(job_fields(self._scontrol, token))
        owner = _UID.fullmatch(fields.get("UserId", ""))
        if fields.get("JobState") != "PENDING" or owner is None:
            return []
        if not peer.is_administrator and int(owner[1]) != peer.uid:
            return []
        missing = self._missing(fields.get("BurstBuffer", ""))
        if missing:
            waits_for = "; ".join(f"there is no persistent reservation {name}" for name in missing)
            ends = (
                f"a job with `#BB create_persistent name={missing[0]}`, or `forebay create {missing[0]} --persistent`"
            )
        else:
            drain = self._drains.of(server_name())
            waits_for = f"Slurm, whose reason is {fields.get('Reason', 'None')}"
            waits_for += "" if drain is None else f"; {drain.text}"
            ends = f"the scheduler: see `scontrol show job {token}`"
        return [Answer(f"job {token}", "pending", time.time_ns(), waits_for, [], ends)]

    def _missing(self, lines: str) -> list[str]:
        """Persistent reservations that its directives name and that do not exist."""
        try:
            names = parse_directives(lines.encode()).persistents
        except InvalidArgumentError:
            return []
        there = {row.name for row in self._database.reservations() if row.persistent}
        return [name for name in names if name not in there]
