# SPDX-License-Identifier: Apache-2.0
"""The pools of one instance: who gets what of them, and who waits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from forebay.errors import NoSpaceError
from forebay.manager.records import Drain, QueuePlace, QueueRow, ReservationRow, ReservationState
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable
from forebay.workflows.manager.core.database.database import Database, Held
from forebay.workflows.manager.core.database.queue_table import QueueTable
from forebay.workflows.manager.core.pools.admission import (
    Ask,
    FullError,
    Holdings,
    admit,
    check_staying,
    estimated_end_ns,
)
from forebay.workflows.manager.core.pools.placement import (
    Placement,
    Reach,
    ServerSpace,
    dealt_bytes,
    emptied,
    place,
)
from forebay.workflows.manager.core.pools.pool_settings import PoolSettings, Who
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.pools.servers import Servers

__all__ = ["SHARE_UNIT_BYTES", "Pools"]

#: Of one on several servers, as these round it (core/storage/reservation_store.h).
SHARE_UNIT_BYTES = 1 << 20
_SHARE_BYTES_MIN = 8 << 20


class Pools:
    """Usable from several threads. Whoever creates reservations holds a lock meanwhile, so no byte is granted twice."""

    def __init__(self, database: Database, servers: Servers, settings: PoolSettings) -> None:
        self.settings = settings
        self._database = database
        self._attachments = AttachmentTable(database)
        self._queue = QueueTable(database)
        self._servers = servers

    def start(self) -> None:
        """When the manager has come up: nobody who waits could be heard before."""
        self._queue.greet_all()

    def check(
        self, request: ReservationRow, *, queues: bool, reach: Reach | None = None, servers: int = 0
    ) -> Placement:
        """Where the reservation may be made now; raises as `admit` does.

        Parameters
        ----------
        reach : Reach, optional
            Where alone; None: anywhere.
        servers : int
            On how many; 0: on all that `reach` names, else on as many as the pool says.
        """
        reach = reach or Reach()
        who = Who.of(request.owner_uid)
        if request.account:
            self.settings.account(request.account).check_has(who)
        waiting = self.queue() if queues else []
        before = next((number for number, row in enumerate(waiting) if row.name == request.name), len(waiting))
        spaces = reach.of(self.spaces())
        ask = self._ask(request, who, servers, reach, spaces)
        check_staying(ask, spaces)
        return admit(
            ask,
            settings=self.settings,
            holdings=Holdings(self.settings, self._database.held()),
            servers=spaces,
            before=waiting[:before],
        )

    def streams_bytes(self, request: ReservationRow, servers: int) -> int:
        """What a request comes to on so many servers, which give whole units."""
        ask = _spread(_ask(request, Who.of(request.owner_uid)), servers, Reach())
        return dealt_bytes(ask.placement(), ask.granularity_bytes(self.settings.pool(request.pool)))

    def _ask(self, request: ReservationRow, who: Who, servers: int, reach: Reach, spaces: Sequence[ServerSpace]) -> Ask:
        """What it asks for on so many servers; 0: on all that `reach` names, else on as many as the pool says."""
        pool = self.settings.pool(request.pool)
        if not servers and pool.is_striped and not reach.on:
            unit = -(-pool.granularity_bytes // SHARE_UNIT_BYTES) * SHARE_UNIT_BYTES
            share = -(-_SHARE_BYTES_MIN // unit) * unit
            with_room = sum(not space.refuses and space.free_bytes >= share for space in spaces)
            servers = max(1, min(request.capacity_bytes // share, with_room))
        return _spread(_ask(request, who), servers, reach)

    def has_room(self, request: ReservationRow, also: Iterable[ReservationRow], reach: Reach) -> bool:
        """The reservation of a scheduler's job could be made now, beside what is held and what `also` will be there.
        One that was begun goes on where it is.
        """
        spaces = self._spaces_by_books(reach)
        known = self._database.reservation(request.name)
        if known is not None:
            name = known.server or server_name()
            if known.state is ReservationState.DESTROYING:
                return False  # one of its servers is away
            if known.state is ReservationState.PRESENT or known.members:
                # Its space is its own; what was begun on several servers goes on there, without another admission.
                there = {space.name for space in spaces if not space.is_away}
                needed = {server or server_name() for server in known.servers}
                return needed <= there and name not in reach.without
            reach = Reach((name,))
        held = self._database.held()
        for row in also:
            held.append(Held(row.pool, row.account, row.owner_uid, row.capacity_bytes + row.files_bytes))
            ask = self._ask(row, Who.of(row.owner_uid), 0, reach, spaces)
            if placed := place(spaces, ask.placement(), ask.granularity_bytes(self.settings.pool(row.pool))):
                taken = {share.server: share.size_bytes for share in placed.shares}
                spaces = [replace(space, free_bytes=space.free_bytes - taken.get(space.name, 0)) for space in spaces]
        return self._would_admit(request, held, spaces, reach)

    def check_ever(self, request: ReservationRow, reach: Reach) -> None:
        """NoSpaceError if there never will be room for that: it is larger than the pool, each server or a quota."""
        self._would_admit(request, [], emptied(self.spaces()), reach)

    def _spaces_by_books(self, reach: Reach) -> list[ServerSpace]:
        """What is free by the manager's own books, which know what is being made."""
        own, *others = reach.of(self.spaces())
        found = []
        for key, space in (("", own), *((space.name, space) for space in others)):
            held_bytes = sum(alike.count * alike.size_bytes for alike in self._database.held(key))
            found.append(replace(space, free_bytes=space.capacity_bytes - held_bytes))
        return found

    def _would_admit(
        self, request: ReservationRow, held: list[Held], spaces: Sequence[ServerSpace], reach: Reach
    ) -> bool:
        try:
            admit(
                self._ask(request, Who.of(request.owner_uid), 0, reach, spaces),
                settings=self.settings,
                holdings=Holdings(self.settings, held),
                servers=spaces,
                before=[],
            )
        except FullError:
            return False
        return True

    def check_growth(self, known: ReservationRow, files_bytes: int) -> None:
        """Returns if a reservation may have that much for files/ now; raises as `check` does."""
        size_bytes = known.capacity_bytes + known.files_bytes
        home = known.server or server_name()
        elsewhere = {member.server or server_name(): member.size_bytes for member in known.members[1:]}
        # What it has is given back for this look; and what lies on other servers counts as if it lay on its home, for
        # the files alone grow.
        given_back = Held(known.pool, known.account, known.owner_uid, size_bytes, -1)
        admit(
            replace(_ask(replace(known, files_bytes=files_bytes), Who.of(known.owner_uid)), on=(home,)),
            settings=self.settings,
            holdings=Holdings(self.settings, [*self._database.held(), given_back]),
            servers=[
                replace(
                    server,
                    free_bytes=server.free_bytes + size_bytes,
                    capacity_bytes=server.capacity_bytes + sum(elsewhere.values()),
                )
                if server.name == home
                else replace(server, capacity_bytes=server.capacity_bytes - elsewhere.get(server.name, 0))
                for server in self.spaces()
            ],
            before=self.queue(),
            can_wait=False,
        )

    def enter(self, request: ReservationRow) -> None:
        """Takes a place in the queue, or keeps the one it has; raises as `QueueTable.enter` does."""
        self._queue.enter(request)

    def leave(self, name: str, owner_uid: int | None = None) -> bool:
        """Waits no longer; False if nobody (or not this user) waits under that name."""
        return self._queue.leave(name, owner_uid)

    def queue(self) -> list[QueueRow]:
        """Who waits, the first to come first."""
        self._queue.forget_silent()
        return self._queue.all()

    def place(self, request: ReservationRow, error: FullError) -> QueuePlace:
        """What to tell somebody who waits.

        Raises
        ------
        NoSpaceError
            Nothing can make room: nothing is held.
        """
        spaces = self.spaces()
        refusing = any(space.refuses for space in spaces)
        nothing_held = all(space.free_bytes == space.capacity_bytes for space in spaces)
        if not error.ahead and nothing_held and not refusing:
            self._queue.leave(request.name)
            raise NoSpaceError(error.what, error.where)
        waiting = self._queue.all()
        own = next((row for row in waiting if row.name == request.name), None)
        pool = request.pool
        wanted = sum(row.size_bytes for row in waiting if row.pool == pool and (own is None or row.id <= own.id))
        _, free = self.capacity(pool, spaces)
        return QueuePlace(
            name=request.name,
            ahead=error.ahead,
            since_ns=time.time_ns() if own is None else own.created_ns,
            reason=error.what,
            estimate_ns=None if refusing else estimated_end_ns(wanted - free, self._attachments.known_ends(pool)),
        )

    def capacity(self, pool: str, spaces: Sequence[ServerSpace]) -> tuple[int, int]:
        """What a pool has, and what of it may be had: nothing on servers that are drained or away.

        Parameters
        ----------
        spaces : sequence of ServerSpace
            All servers.
        """
        whole = self.settings.capacity_bytes(pool, sum(space.capacity_bytes for space in spaces))
        free = sum(space.free_bytes for space in spaces if not space.refuses)
        if free and self.settings.decides:
            free = min(free, whole - Holdings(self.settings, self._database.held()).of_pool(pool))
        return whole, max(0, free)

    def waiting_bytes(self, pool: str) -> int:
        """What those who wait ask for together."""
        return sum(row.size_bytes for row in self._queue.all() if row.pool == pool)

    def drain_now(self) -> Drain | None:
        """Why the manager's own server takes no new grants; None if it takes them."""
        return self._servers.drains.of(server_name())

    def spaces(self) -> list[ServerSpace]:
        """What each server has; DisconnectedError if the manager's own is away."""
        return self._servers.spaces()


def _spread(ask: Ask, servers: int, reach: Reach) -> Ask:
    """The same on several servers, if so many are asked for."""
    return replace(
        ask,
        servers=servers,
        on=reach.on,
        home_on=reach.home_on,
        unit_bytes=SHARE_UNIT_BYTES,
        share_bytes_min=_SHARE_BYTES_MIN,
    )


def _ask(request: ReservationRow, who: Who) -> Ask:
    return Ask(request.pool, request.account, request.capacity_bytes + request.files_bytes, who, request.files_bytes)
