# SPDX-License-Identifier: Apache-2.0
"""The requests about servers: which there are, joining and leaving the pool, draining."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from forebay.manager.records import Retirement, ServerStatus
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.pools.placement import ServerSpace
from forebay.workflows.manager.core.pools.server_name import server_name
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.slow_calls import SlowCalls
from forebay.workflows.manager.http.peer import CurrentPeer

__all__ = ["build_server_router"]


class DrainRequest(BaseModel):
    """A server is to take no new grants."""

    reason: str = Field(default="", max_length=200, description="for those who are refused")
    server: str = Field(default="", description="none: the manager's own")


class UndrainRequest(BaseModel):
    """A server is to take grants again."""

    server: str = ""


class JoinRequest(BaseModel):
    """A server of the pool's, from now on."""

    name: str = Field(max_length=64)
    address: str = Field(max_length=300, description="HOST:PORT, where the others find it")


def build_server_router(reservations: Reservations, slow_calls: SlowCalls, changed: Callable[[], None]) -> APIRouter:
    """The routes.

    Parameters
    ----------
    changed : callable
        Called when a server was drained or takes grants again, before that is answered.
    """
    router = APIRouter()
    servers = reservations.servers

    def status_of(space: ServerSpace) -> ServerStatus:
        key = "" if space.name == server_name() else space.name
        known = next((server for server in servers.others() if server.name == key), None)
        return ServerStatus(
            server=space.name,
            uuid=servers.root_uuid(key),
            address=servers.address if known is None else known.address,
            drained=servers.drains.of(space.name),
            retired=known is not None and known.retired,
            away_since_ns=None if (since := servers.away_since(key)) is None else round(since * 1e9),
            capacity_bytes=space.capacity_bytes,
            free_bytes=space.free_bytes,
            reservations=space.reservations,
        )

    @router.get("/servers")
    def list_servers() -> list[dict[str, Any]]:
        """The servers: what each has, since when and why it is drained or away, if it is."""
        return [status_of(space).as_dict() for space in servers.spaces()]

    @router.post("/servers")
    async def join(request: JoinRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Has a server in the pool; idempotent."""
        _must_be_administrator(peer)
        joined = await slow_calls.run(peer.uid, reservations.take_server, request.name, request.address)
        await asyncio.to_thread(changed)
        return joined.as_dict()

    @router.post("/servers/drain")
    def drain(request: DrainRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Lets a server take no new grants; idempotent."""
        _must_be_administrator(peer)
        name = servers.key_of(request.server) or server_name()
        drained = servers.drains.drain(name, " ".join(request.reason.split()), peer.uid)
        changed()
        return {"server": name, "drained": drained.as_dict()}

    @router.post("/servers/undrain")
    def undrain(peer: CurrentPeer, request: UndrainRequest | None = None) -> dict[str, Any]:
        """Lets a server take grants again; idempotent."""
        _must_be_administrator(peer)
        name = servers.key_of("" if request is None else request.server) or server_name()
        servers.check_stays(name)
        was = servers.drains.undrain(name)
        changed()
        return {"server": name, "drained": None, "was_drained": was}

    @router.post("/servers/{name}/retire")
    def retire(name: str, peer: CurrentPeer) -> dict[str, Any]:
        """Lets a server take nothing new; it leaves the pool with its last reservation."""
        _must_be_administrator(peer)
        names = servers.retire(servers.key_of(name))
        return Retirement(name, tuple(names), servers.leave_if_retired(name)).as_dict()

    @router.delete("/servers/{name}")
    async def forget(name: str, peer: CurrentPeer) -> dict[str, Any]:
        """Gives up a server that will not come back."""
        _must_be_administrator(peer)
        given_up = await slow_calls.run(peer.uid, reservations.give_up_server, servers.key_of(name))
        return given_up.as_dict()

    return router


def _must_be_administrator(peer: Peer) -> None:
    peer.must_be_administrator("only the instance's own user and root may say what its servers do")
