# SPDX-License-Identifier: Apache-2.0
"""Which reservation a program's path lies in. Nothing is opened: the name is compared with that of a reservation that
the caller may use, and whoever carries the stage out keeps to the rules of names that users can change.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from forebay.errors import InvalidArgumentError, NotFoundError
from forebay.manager.records import JobRow, JobState, ReservationRow
from forebay.records import ReservationInfo
from forebay.workflows.directives.directives import Directives
from forebay.workflows.manager.core.access import Peer, may_use
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.reservations.reservations import Reservations

__all__ = ["Place", "Places"]

_PATH_BYTES_MAX = 4096
_PARTS_MAX = 256
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_IDS_MAX = 4  # a root may lie in a folder that is called so, too


@dataclass(frozen=True, slots=True)
class Place:
    """Something in a reservation's files."""

    reservation: ReservationRow
    path: str  #: below the reservation's files; "" is all of them
    files: str  #: where these files lie, as the program sees them


class Places:
    """Finds them. Usable from several threads.

    Parameters
    ----------
    mounts : str
        The folder in which each node of a job has the files of its reservations, by their ids; "": nodes have none.
    """

    def __init__(self, database: Database, reservations: Reservations, mounts: str = "") -> None:
        self._database = database
        self._reservations = reservations
        self._mounts = mounts
        self._jobs = JobTable(database)

    def find(self, path: str, peer: Peer) -> Place:
        """The place of an absolute path without links, as the program resolved it.

        Raises
        ------
        NotFoundError
            It lies in no reservation that the caller may use.
        InvalidArgumentError
            It is no path that names one place.
        """
        if not path.startswith("/") or "\0" in path or len(os.fsencode(path)) >= _PATH_BYTES_MAX:
            raise InvalidArgumentError("this is no absolute path", path[:200])
        if path.count("/") > _PARTS_MAX:
            raise InvalidArgumentError(f"the path has more than {_PARTS_MAX} parts", path[:200])
        if any(part in ("", ".", "..") for part in path[1:].split("/")):
            raise InvalidArgumentError("the path has a part that names no place of its own", path[:200])
        # The files of a reservation lie below a folder that has its id for a name.
        ids = [part for part in path.split("/") if _ID.fullmatch(part)][:_IDS_MAX]
        for row in self._database.reservations_of_ids(ids):
            try:
                info = self._reservations.info(row.name)
            except NotFoundError:
                continue
            files = self._files_of(row, info, path)
            if info.id == row.id and files and (peer.is_administrator or may_use(info, peer)):
                return Place(row, path[len(files) + 1 :], files)
        raise NotFoundError("this lies in no reservation of yours", path[:200])

    def _files_of(self, row: ReservationRow, info: ReservationInfo, path: str) -> str:
        """The reservation's files as the path has them: at home, or as nodes mount them; "": it does not lie there."""
        # On this node they are the instance's, whose users cannot change what leads there.
        seen = [info.files_path if row.server else os.path.realpath(info.files_path)]
        if self._mounts:
            seen.append(f"{self._mounts}/{row.id}")
        return next((files for files in seen if path == files or path.startswith(f"{files}/")), "")

    def job_of(self, place: Place, token: str, peer: Peer) -> JobRow | None:
        """The running job whose end is meant: the one that the reservation was made for, else the one that the program
        says it is part of, if it is the caller's and uses the reservation.
        """
        name = place.reservation.name
        for job in reversed(self._jobs.all([state for state in JobState if not state.is_final])):
            if job.reservation == name:
                return job if job.owner_uid == peer.uid else None
        named = self._jobs.current(token) if token.isascii() and token.isdigit() else None
        if named is None or named.state.is_final or named.owner_uid != peer.uid:
            return None
        return named if name in Directives.from_json(named.directives).persistents else None
