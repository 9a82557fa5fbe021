# SPDX-License-Identifier: Apache-2.0
"""The requests about reservations: which there are, creating, changing, destroying."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from forebay.errors import PermissionDeniedError
from forebay.manager.records import Destruction, QueuePlace, ReservationRow
from forebay.near_names import near_names
from forebay.sizes import parse_size
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.pools.placement import Reach
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.slow_calls import SlowCalls
from forebay.workflows.manager.http.peer import CurrentPeer

__all__ = ["build_reservation_router"]


class ReservationRequest(BaseModel):
    """A reservation to create."""

    name: str
    capacity: int | str = Field(description='for streams: bytes, or a text such as "2GiB"')
    files: int | str = Field(default=0, description="for files/, beside that")
    persistent: bool = False
    pool: str = Field(default="", description="none: the default pool")
    account: str = Field(default="", description="whose quota it counts in, beside the user's; none: no account's")
    on: list[str] = Field(default_factory=list, max_length=1000, description="only on these servers")
    servers: int = Field(
        default=0, ge=0, le=1024, description="on how many; 0: on all that `on` names, else as its pool says"
    )
    wait: bool = Field(
        default=False,
        description='where there is no room now, the answer is a place in the queue: {"waiting": …}; it is lost when '
        "the same request is not made again within 30 s",
    )


class ReservationChange(BaseModel):
    """What a reservation is to have from now on; null: as it is."""

    persistent: bool | None = None
    files: int | str | None = Field(default=None, description='for files/: bytes, or a text such as "2GiB"')


def build_reservation_router(
    database: Database,
    reservations: Reservations,
    slow_calls: SlowCalls,
    root: Path,
    changed: Callable[[], None],
    *,
    shared: bool,
) -> APIRouter:
    """The routes.

    Parameters
    ----------
    changed : callable
        Called when reservations were made, changed or destroyed, before that is answered.
    shared : bool
        Users other than the instance's own may have reservations.
    """
    router = APIRouter()

    @router.get("/reservations")
    def list_reservations(peer: CurrentPeer) -> list[dict[str, Any]]:
        """The caller's reservations as they were asked for; an administrator's request gives all."""
        return [row.as_dict() for row in database.reservations() if peer.may_see(row.owner_uid)]

    @router.get("/usable-reservations")
    async def list_usable(peer: CurrentPeer) -> dict[str, Any]:
        """What the caller may read at least, on all servers, as these know it; and the servers that are away."""
        there, away = await slow_calls.run(peer.uid, reservations.servers.usable_reservations, peer)
        return {"reservations": [info.as_dict() for info in there], "away": away}

    @router.post("/reservations")
    async def create_reservation(request: ReservationRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Creates a reservation; idempotent."""
        if not shared and not peer.is_administrator:
            raise PermissionDeniedError(
                f"this instance is user {os.geteuid()}'s own and takes no reservations of others; ask them for "
                "`forebay up --shared`, or start one of your own with `forebay up`",
                str(root),
            )
        if not peer.is_administrator:
            reservations.check_free_name(request.name)
        wanted = ReservationRow(
            name=request.name,
            capacity_bytes=parse_size(request.capacity),
            files_bytes=parse_size(request.files),
            persistent=request.persistent,
            owner_uid=peer.uid,
            owner_gid=peer.gid,
            created_ns=time.time_ns(),
            pool="" if request.pool == "default" else request.pool,
            account=request.account,
        )
        create = reservations.create_or_wait if request.wait else reservations.create
        made = await slow_calls.run(peer.uid, create, wanted, reach=Reach(tuple(request.on)), servers=request.servers)
        await asyncio.to_thread(changed)
        return {"waiting": made.as_dict()} if isinstance(made, QueuePlace) else made.as_dict()

    @router.patch("/reservations/{name:path}")
    async def change_reservation(name: str, request: ReservationChange, peer: CurrentPeer) -> dict[str, Any]:
        """Changes lifetime and capacity for files of a reservation; idempotent."""
        info = await slow_calls.run(
            peer.uid,
            reservations.change,
            name,
            persistent=request.persistent,
            files_bytes=None if request.files is None else parse_size(request.files),
            by=peer,
        )
        await asyncio.to_thread(changed)
        return info.as_dict()

    @router.delete("/reservations/{name:path}")
    async def destroy_reservation(name: str, peer: CurrentPeer, force: bool = False) -> dict[str, Any]:
        """Destroys a reservation; idempotent. Where there was none, `near` has names that may have been meant."""
        existed = await slow_calls.run(peer.uid, reservations.destroy, name, force=force, by=peer)
        await asyncio.to_thread(changed)
        near = [] if existed else await asyncio.to_thread(lambda: near_names(name, reservations.names_of(peer.whose)))
        return Destruction(name, existed, tuple(near)).as_dict()

    return router
