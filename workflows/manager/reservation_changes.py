# SPDX-License-Identifier: Apache-2.0
"""One reservation on both sides: its row, which says what was asked for, and what the server has.

The request is written down before the server is asked, and its outcome after.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from forebay.errors import NoSpaceError, NotFoundError, RefusedError
from forebay.records import Lifetime, ReservationInfo
from forebay.workflows.manager.admission import FullError
from forebay.workflows.manager.attachment_table import AttachmentTable
from forebay.workflows.manager.database import Database, ReservationRow
from forebay.workflows.manager.differences import another_exists
from forebay.workflows.manager.servers import Servers
from forebay.workflows.manager.states import ReservationState

__all__ = ["ReservationChanges"]

_log = logging.getLogger(__name__)

_ROOM_SECONDS_MAX = 5.0
_ROOM_POLL_SECONDS = 0.05


class ReservationChanges:
    """Steps of a change. Whoever calls has the reservation's turn."""

    def __init__(self, database: Database, servers: Servers) -> None:
        self._database = database
        self._attachments = AttachmentTable(database)
        self._servers = servers
        #: Called before a reservation is destroyed: whatever holds its files open lets go of them.
        self.let_go: Callable[[ReservationRow], None] = lambda _row: None

    def create(self, request: ReservationRow) -> ReservationInfo:
        """Has the server create it; FullError if it has no room, or as the server refuses."""
        with self._servers.of(request).admin() as admin:
            try:
                return admin.create(
                    request.name,
                    request.capacity_bytes,
                    files=request.files_bytes,
                    persistent=request.persistent,
                    owner_uid=request.owner_uid,
                    owner_gid=request.owner_gid,
                    pool=request.pool,
                    account=request.account,
                )
            except NoSpaceError as error:
                raise FullError(error.what, error.where) from None

    def destroy(self, row: ReservationRow, *, force: bool) -> None:
        """Has the server destroy it, and forgets it.

        Raises
        ------
        RefusedError
            Somebody is attached, or the server refuses, without `force`; it stays.
        DisconnectedError
            The server was lost; the row says that it is to be destroyed.
        """
        doomed = replace(row, state=ReservationState.DESTROYING, force=force)
        try:
            if force or row.state is ReservationState.DESTROYING:
                self._database.put_reservation(doomed)
            else:
                self._attachments.doom(row.name)
        except NoSpaceError as error:
            if not force:
                self._attachments.must_be_free(row.name)
            # Destroying may be what makes the room. A death in between leaves a row that `forebay doctor` tells of.
            _log.warning("reservation %s is destroyed without a note of it: %s", row.name, error)
            doomed = row
        self.let_go(row)
        try:
            with self._servers.of(row).admin() as admin:
                admin.destroy(row.name, force=force)
        except RefusedError:
            before = ReservationState.PRESENT if row.state is ReservationState.DESTROYING else row.state
            if doomed is not row:
                self._database.put_reservation(replace(row, state=before, force=False))
            raise
        if doomed is row:
            self._forget_when_there_is_room(row.name)
        else:
            self._database.forget_reservation(row.name)

    def refuse_other(self, request: ReservationRow, have: ReservationRow) -> None:
        """AlreadyExistsError if the reservation of that name is another one than is asked for."""
        with self._servers.of(have).admin() as admin:
            granularity_bytes = admin.server().granularity_bytes
        if error := another_exists(request, have, granularity_bytes):
            raise error

    def adopt_from_server(self, name: str) -> ReservationRow | None:
        """The row of one that the own server has, and this manager did not make; None if the server has none."""
        with self._servers.own.admin() as admin:
            try:
                return self.adopt(admin.reservation(name), "")
            except NotFoundError:
                return None

    def adopt(self, info: ReservationInfo, server: str) -> ReservationRow:
        """Writes down what its server says of it."""
        row = ReservationRow(
            name=info.name,
            capacity_bytes=info.capacity_bytes,
            files_bytes=info.files_bytes,
            persistent=info.lifetime is Lifetime.PERSISTENT,
            owner_uid=info.owner_uid,
            owner_gid=info.owner_gid,
            state=ReservationState.PRESENT,
            id=info.id,
            created_ns=info.created_ns,
            pool=info.pool,
            account=info.account,
            server=server,
        )
        self._database.put_reservation(row)
        return row

    def _forget_when_there_is_room(self, name: str) -> None:
        """The server may answer before the disk has the space back."""
        deadline = time.monotonic() + _ROOM_SECONDS_MAX
        while True:
            try:
                self._database.forget_reservation(name)
                return
            except NoSpaceError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_ROOM_POLL_SECONDS)
