# SPDX-License-Identifier: Apache-2.0
"""How many reservations a server shows by NFS, each of which takes one of its ports: no user takes the last ones."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from forebay.errors import NoSpaceError
from forebay.manager.records import ReservationRow
from forebay.workflows.files.pool_engines import PoolEngines
from forebay.workflows.manager.core.access import is_administrator
from forebay.workflows.manager.core.database.database import Database

__all__ = ["ShownPlaces"]

#: The last of so many parts of a server's places is for users who have none.
_PARTS_OF_PLACES = 4


class ShownPlaces:
    """Those of all servers. Usable from several threads.

    Parameters
    ----------
    uses : callable
        A job or a stage of this user has the reservation with this uuid shown.
    """

    def __init__(self, engines: PoolEngines, database: Database, uses: Callable[[int, str], bool]) -> None:
        self._engines = engines
        self._database = database
        self._uses = uses
        self._guard = threading.Lock()  # Guards what follows, and is held while places are counted.
        self._opening: dict[str, int] = {}  # users for whom reservations are being opened, by their uuids

    @contextlib.contextmanager
    def taken(self, uid: int, row: ReservationRow) -> Iterator[None]:
        """One of its server's, while its files are opened for this user's job or stage. Whoever has the turn of the
        reservation calls.

        Raises
        ------
        NoSpaceError
            The places that are left are for others.
        """
        with self._guard:
            self._check(uid, row)
            self._opening[row.id] = uid
        try:
            yield
        finally:
            with self._guard:
                self._opening.pop(row.id, None)

    def _check(self, uid: int, row: ReservationRow) -> None:
        if is_administrator(uid):
            return
        shown = {*self._engines.reservations(), *self._opening}
        if row.id in shown:
            return
        there = [other.id for other in self._database.reservations_of_ids(shown) if other.server == row.server]
        kept = self._engines.places // _PARTS_OF_PLACES
        if self._engines.places - len(there) > kept or not any(self._has(uid, other) for other in there):
            return
        raise NoSpaceError(
            f"{len(there)} reservations are shown to nodes, and the {kept} places that are left are for users who have "
            "none; run again when other jobs and stages of yours have ended",
            f"reservation {row.name}",
        )

    def _has(self, uid: int, reservation_id: str) -> bool:
        return self._opening.get(reservation_id) == uid or self._uses(uid, reservation_id)
