# SPDX-License-Identifier: Apache-2.0
"""Files of reservations whose home is another server, mounted on the manager's node while stages move them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from forebay.errors import ForebayError
from forebay.manager.jobs import FilesJob, Job, MatchedFilesJob
from forebay.manager.records import ReservationRow
from forebay.workflows.files.node_mounts import NodeMounts, Wanted
from forebay.workflows.manager.core.name_turns import NameTurns
from forebay.workflows.manager.core.used_by_key import UsedByKey

__all__ = ["ShownFiles", "StageTrees"]

_log = logging.getLogger(__name__)

#: Of one user. An agent carries out four calls at once, and jobs of others wait for theirs.
_OPENED_AT_ONCE = 2


class ShownFiles(Protocol):
    """Who shows files of other servers to this node."""

    def reaches(self, reservation: ReservationRow) -> bool:
        """A driver shows the reservation's files."""

    def open_for_stages(self, reservation: ReservationRow, uid: int) -> Wanted:
        """Shows them to this node for a stage of this user's, until `close_for_stages`; idempotent."""

    def close_for_stages(self, reservation_id: str) -> None:
        """They are not mounted here any more; idempotent."""


class StageTrees:
    """Those of one instance. Usable from several threads; stages of one reservation share its mount.

    Parameters
    ----------
    mounts : NodeMounts
        In a folder of the instance's own.
    reservation : callable
        The row of this name; None without one.
    may_use : callable
        The reservation of this name may be read by the user of this number. Nothing is mounted for others: whose files
        are here can be seen, and to be told that they may not is their stage's business.
    """

    def __init__(
        self,
        mounts: NodeMounts,
        shown: ShownFiles,
        reservation: Callable[[str], ReservationRow | None],
        may_use: Callable[[str, int], bool],
        seconds_max: float,
    ) -> None:
        self._mounts = mounts
        self._shown = shown
        self._reservation = reservation
        self._may_use = may_use
        self._seconds_max = seconds_max
        self._holders: Counter[str] = Counter()  # a reservation's turn guards its count
        self._turns = NameTurns()
        self._opening: UsedByKey[int, threading.Semaphore] = UsedByKey(lambda: threading.Semaphore(_OPENED_AT_ONCE))

    def start(self) -> None:
        """Takes away what an earlier manager has left mounted: its stages have ended with it.

        Raises
        ------
        StorageError
            Others may change names in the folder, or a mount does not go.
        """
        self._mounts.prepare()
        for reservation_id in self._mounts.reservations():
            self._mounts.detach(reservation_id, self._deadline())

    def hold(self, job: Job, uid: int) -> tuple[str, Path] | None:
        """Where files that the job moves are found, and the reservation's uuid, for `release`; None: on this server, or
        the user may not use them.

        Raises
        ------
        ForebayError
            They cannot be shown, or not mounted. It may pass.
        """
        if not isinstance(job, FilesJob | MatchedFilesJob):
            return None
        row = self._reservation(job.reservation)
        if row is None or not row.server or not self._shown.reaches(row) or not self._may_use(row.name, uid):
            return None
        with self._opening.use(uid) as places, places, self._turns.of(row.id):
            self._holders[row.id] += 1
            try:
                self._mounts.mount(self._shown.open_for_stages(row, uid), self._deadline())
            except BaseException:
                self._let_go(row.id)
                raise
        return row.id, self._mounts.place(row.id)

    def release(self, reservation_id: str) -> None:
        """A stage that held it is over. The last one's end takes the mount away."""
        with self._turns.of(reservation_id):
            self._let_go(reservation_id)

    def _let_go(self, reservation_id: str) -> None:
        self._holders[reservation_id] -= 1
        if self._holders[reservation_id]:
            return
        del self._holders[reservation_id]
        try:
            # What stages have copied they have synced. A process of one that does not end keeps no one waiting.
            self._mounts.detach(reservation_id, self._deadline())
            self._shown.close_for_stages(reservation_id)
        except ForebayError as error:
            _log.warning("files of %s stay mounted until the next stage, or start: %s", reservation_id, error)

    def _deadline(self) -> float:
        return time.monotonic() + self._seconds_max
