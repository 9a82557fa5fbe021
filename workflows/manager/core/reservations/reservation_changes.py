# SPDX-License-Identifier: Apache-2.0
"""One reservation on both sides: its row, which says what was asked for, and what the server has.

The request is written down before the server is asked, and its outcome after.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from forebay.admin import Admin
from forebay.errors import DisconnectedError, ForebayError, NoSpaceError, NotFoundError, RefusedError
from forebay.fail_point import fail_point
from forebay.manager.records import MemberRow, ReservationRow, ReservationState
from forebay.records import Lifetime, ReservationInfo
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.pools.admission import FullError
from forebay.workflows.manager.core.pools.pools import SHARE_UNIT_BYTES
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.pools.servers import Servers, side_by_side
from forebay.workflows.manager.core.reservations.differences import another_exists

__all__ = ["ReservationChanges"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")

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
        """Has its servers create it, the home last; FullError if one has no room, or as one refuses.

        Of one that lies on several servers what was made before one refused is there still: `undo` removes it.

        Raises
        ------
        DisconnectedError
            A server was lost; asked again when it is back, it is created.
        """
        home, *others = request.servers
        for outcome in side_by_side(lambda server: self._attempt(lambda: self._create_on(server, request)), others):
            if isinstance(outcome, ForebayError):
                raise outcome
        if others:
            fail_point("manager.members.created")
        return self._create_on(home, request)

    def _create_on(self, server: str, request: ReservationRow) -> ReservationInfo:
        with self._noting_lost(server, request), self._servers.link(server).admin() as admin:
            # A server of no pool makes what it always made.
            several: dict[str, Any] = {}
            if request.members:
                several["id"] = request.id
                several["members"] = [(member.root_uuid, member.size_bytes) for member in request.members]
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
                    **several,
                )
            except NoSpaceError as error:
                raise FullError(error.what, error.where) from None

    def undo(self, request: ReservationRow) -> None:
        """Removes what there is of one that could not be made on all of its servers, and forgets it. Where a server is
        away, its row says that it is to be destroyed.
        """
        if not request.members:
            self._database.forget_reservation(request.name)
            return
        self._database.put_reservation(replace(request, state=ReservationState.DESTROYING, force=True))
        try:
            self.destroy(replace(request, state=ReservationState.DESTROYING), force=True)
        except ForebayError as error:
            _log.warning("what was made of reservation %s is removed later: %s", request.name, error)

    def destroy(self, row: ReservationRow, *, force: bool) -> bool:
        """Has its servers destroy it, the home first, and forgets it. False if a server other than the home is away:
        the reservation is gone, and its row says that this one is to hear of it.

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
            self._destroy_on(row.servers[0], row, force=force)
        except RefusedError:
            before = ReservationState.PRESENT if row.state is ReservationState.DESTROYING else row.state
            if doomed is not row:
                self._database.put_reservation(replace(row, state=before, force=False))
            raise
        except DisconnectedError as error:
            if doomed is row:
                raise
            raise DisconnectedError(
                f"{error.what}; reservation {row.name} is destroyed when that server is back", error.where
            ) from None
        # Its home has decided: the others hold nothing that anybody could want.
        others = row.servers[1:]
        if others:
            fail_point("manager.home.destroyed")
        answers = side_by_side(lambda server: self._attempt(lambda: self._destroy_on(server, row, force=True)), others)
        if left := [server for server, answer in zip(others, answers, strict=True) if isinstance(answer, ForebayError)]:
            names = ", ".join(server or server_name() for server in left)
            _log.warning("reservation %s is destroyed on %s when it is back", row.name, names)
            return False
        if doomed is row:
            self._forget_when_there_is_room(row.name)
        else:
            self._database.forget_reservation(row.name)
        return True

    def _destroy_on(self, server: str, row: ReservationRow, *, force: bool) -> None:
        if row.has_lost(server):
            return
        with self._noting_lost(server, row), self._servers.link(server).admin() as admin:
            if row.members and not self._is_there(admin, row):
                return
            admin.destroy(row.name, force=force)

    @staticmethod
    def _is_there(admin: Admin, row: ReservationRow) -> bool:
        """Whether the server has this one, and not another one of its name."""
        try:
            return admin.reservation(row.name, count_files=False).id == row.id
        except NotFoundError:
            return False

    @staticmethod
    def _attempt(call: Callable[[], _T]) -> _T | ForebayError:
        try:
            return call()
        except ForebayError as error:
            return error

    @contextlib.contextmanager
    def _noting_lost(self, server: str, row: ReservationRow) -> Iterator[None]:
        """Of one on several servers, one that is lost is asked again as soon as it answers."""
        try:
            yield
        except DisconnectedError:
            if row.members:
                self._servers.finish_later(server)
            raise

    def refuse_other(self, request: ReservationRow, have: ReservationRow, capacity_bytes: int | None = None) -> None:
        """AlreadyExistsError if the reservation of that name is another one than is asked for.

        Parameters
        ----------
        capacity_bytes : int, optional
            What the request comes to on as many servers, where it does not depend on the server.
        """
        if capacity_bytes is not None:
            request, granularity_bytes = replace(request, capacity_bytes=capacity_bytes), SHARE_UNIT_BYTES
        else:
            with self._servers.of(have).admin() as admin:
                granularity_bytes = admin.server().granularity_bytes
        if error := another_exists(request, have, granularity_bytes):
            raise error

    def adopt_from_server(self, name: str) -> ReservationRow | None:
        """The row of one that the own server has, and this manager did not make; None if the server has none."""
        with self._servers.own.admin() as admin:
            try:
                info = admin.reservation(name, count_files=False)
            except NotFoundError:
                return None
        return self.adopt(info, "") if info.home else None

    def adopt(self, info: ReservationInfo, server: str) -> ReservationRow:
        """Writes down what its server, which is its home, says of it."""
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
            members=self._members_of(info, server),
        )
        self._database.put_reservation(row)
        return row

    def _members_of(self, info: ReservationInfo, home: str) -> tuple[MemberRow, ...]:
        """What its servers give to one that lies on several."""
        if len(info.members) <= 1:
            return ()
        known = self._database.reservation(info.name)
        if known is not None and known.id == info.id and len(known.members) == len(info.members):
            return known.members  # with what is known of those that are lost
        members = []
        for number, member in enumerate(info.members):
            server = home if number == 0 else self._servers.of_root(member.server)
            # One of a server that has not joined yet has no name; reconciliation gives it one when it does.
            name = member.server if server is None else server
            members.append(MemberRow(name, member.server, member.capacity_bytes, lost=server is None))
        return tuple(members)

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
