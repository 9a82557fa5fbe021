# SPDX-License-Identifier: Apache-2.0
"""Persistent reservations under Slurm: made and destroyed by `#BB` lines, used by `#DW persistentdw`."""

from __future__ import annotations

import time

from forebay.errors import NotFoundError
from forebay.manager.records import ReservationRow, ReservationState
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.reservations.attachments import Attachments
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.slurm.job_files import JobFiles
from forebay.workflows.slurm.settings import SlurmSettings
from forebay.workflows.slurm.users import primary_group, user_as_peer

__all__ = ["Persistents"]


class Persistents:
    """Usable from several threads."""

    def __init__(
        self,
        database: Database,
        reservations: Reservations,
        attachments: Attachments,
        settings: SlurmSettings,
        files: JobFiles,
    ) -> None:
        self._database = database
        self._jobs = JobTable(database)
        self._reservations = reservations
        self._attachments = attachments
        self._settings = settings
        self._files = files

    def create(self, name: str, uid: int, pool: str, files_bytes: int) -> None:
        """Makes one for the user; idempotent.

        Raises
        ------
        PermissionDeniedError, NotFoundError
            Nobody gets reservations under that user's name; or the name is one of jobs.
        AlreadyExistsError, NoSpaceError
            Another one has the name; the pool is full.
        """
        gid = primary_group(uid, self._settings.uid_min)
        self._reservations.check_free_name(name)
        self._reservations.create(
            ReservationRow(
                name=name,
                capacity_bytes=self._settings.streams_bytes(files_bytes),
                files_bytes=files_bytes,
                persistent=True,
                owner_uid=uid,
                owner_gid=gid,
                created_ns=time.time_ns(),
                pool=pool,
            ),
            queues=False,
            reach=self._files.reach(pool),
        )

    def destroy(self, name: str, *, hurry: bool) -> bool:
        """Destroys one; False if there is none. Slurm has checked who asks for it.

        Parameters
        ----------
        hurry : bool
            The user does not wait for steps that are not staged out.

        Raises
        ------
        RefusedError
            A job is attached to it still, or it has precious steps or writers: Slurm tries again later.
        """
        row = self._database.reservation(name)
        if row is None or not row.persistent or row.state is not ReservationState.PRESENT:
            return False
        if self._jobs.uses_as_own(name):
            return False
        self._attachments.table.must_be_free(name)
        self._reservations.destroy(name, force=hurry, by=None)
        return True

    def attach(self, name: str, holder: str, uid: int) -> None:
        """The job uses it from now on.

        Raises
        ------
        NotFoundError
            There is none of that name (yet), or it belongs to another user, who shares it neither with this one nor
            with a group of theirs.
        """
        row = self._database.reservation(name)
        if row is None or not row.persistent or not self._is_seen(name, row.owner_uid, uid):
            raise NotFoundError(
                f"there is no persistent reservation {name} of yours or shared with you; its creating job may not have "
                "run yet"
            )
        self._attachments.attach_job(name, holder, uid)

    def _is_seen(self, name: str, owner_uid: int, uid: int) -> bool:
        return owner_uid == uid or self._reservations.is_shared_with(name, user_as_peer(uid))
