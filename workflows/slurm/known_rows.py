# SPDX-License-Identifier: Apache-2.0
"""The rows that Slurm's lists are made of. Only what has changed is read again: there may be ten thousand."""

from __future__ import annotations

from forebay.manager.records import AttachmentKind, AttachmentRow, JobRow, JobState, ReservationRow, ReservationState
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable

__all__ = ["KnownRows"]

_NOT_GONE = [state for state in JobState if state is not JobState.GONE]


class KnownRows:
    """As the database had them when `refresh` was last called, by one thread at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._job_table = JobTable(database)
        self._attachment_table = AttachmentTable(database)
        self._touched = database.follow()
        self._complete = False
        self._jobs: dict[int, JobRow] = {}
        self._of_jobs: set[str] = set()
        self.reservations: dict[str, ReservationRow] = {}
        self.uses: dict[str, list[AttachmentRow]] = {}  #: attachments of jobs, by reservation

    def refresh(self) -> set[int | str]:
        """Reads what has changed; returns the numbers of such jobs, and the names of reservations that may have."""
        touched = self._touched.take()
        try:
            return self._read(touched) if self._complete else self._read_all()
        except BaseException:
            self._complete = False
            raise

    def job(self, number: int) -> JobRow | None:
        """One that the scheduler is not through with."""
        job = self._jobs.get(number)
        return None if job is None or job.state.is_final else job

    def persistent(self, name: str) -> ReservationRow | None:
        """One that Slurm is to know: not that of a job, be it living or in quarantine."""
        row = self.reservations.get(name)
        if row is None or name in self._of_jobs or not row.persistent or row.state is not ReservationState.PRESENT:
            return None
        return row

    def _read_all(self) -> set[int | str]:
        self._jobs = {job.id: job for job in self._job_table.all(_NOT_GONE)}
        self._of_jobs = {job.reservation for job in self._jobs.values()}
        self.reservations = {row.name: row for row in self._database.reservations()}
        self.uses = {}
        for row in self._attachment_table.all():
            if row.kind is AttachmentKind.JOB:
                self.uses.setdefault(row.reservation, []).append(row)
        self._complete = True
        return {*self._jobs, *self.reservations}

    def _read(self, touched: dict[str, set[int | str]]) -> set[int | str]:
        changed = {*touched.get("jobs", ()), *touched.get("reservations", ())}
        for number in touched.get("jobs", ()):
            job = self._job_table.numbered(int(number))
            if job is None or job.state is JobState.GONE:
                gone = self._jobs.pop(int(number), None)
                if gone is not None:
                    self._of_jobs.discard(gone.reservation)
                    changed.add(gone.reservation)
            else:
                self._jobs[job.id] = job
                self._of_jobs.add(job.reservation)
                changed.add(job.reservation)
        for name in map(str, touched.get("reservations", ())):
            row = self._database.reservation(name)
            if row is None:
                self.reservations.pop(name, None)
                self.uses.pop(name, None)
            else:
                self.reservations[name] = row
        for name in map(str, touched.get("attachments", ())):
            self.uses[name] = [row for row in self._attachment_table.of(name) if row.kind is AttachmentKind.JOB]
        return changed
