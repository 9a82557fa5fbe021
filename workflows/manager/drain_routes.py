# SPDX-License-Identifier: Apache-2.0
"""The requests that drain the server, and that say whether it is drained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from forebay.errors import PermissionDeniedError
from forebay.workflows.manager.drains import Drain, server_name
from forebay.workflows.manager.peer import CurrentPeer, Peer
from forebay.workflows.manager.pools import Pools

__all__ = ["build_drain_router"]


class DrainRequest(BaseModel):
    """The server is to take no new grants."""

    reason: str = Field(default="", max_length=200, description="for those who are refused")


def build_drain_router(pools: Pools, changed: Callable[[], None]) -> APIRouter:
    """The routes.

    Parameters
    ----------
    changed : callable
        Called when the server was drained or takes grants again, before that is answered.
    """
    router = APIRouter()

    @router.get("/servers")
    def list_servers() -> list[dict[str, Any]]:
        """The server, and since when and why it is drained, if it is."""
        return [_tell(pools.drain_now())]

    @router.post("/servers/drain")
    def drain(request: DrainRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Lets the server take no new grants; idempotent."""
        _must_be_administrator(peer)
        drained = pools.drains.drain(server_name(), " ".join(request.reason.split()), peer.uid)
        changed()
        return _tell(drained)

    @router.post("/servers/undrain")
    def undrain(peer: CurrentPeer) -> dict[str, Any]:
        """Lets the server take grants again; idempotent."""
        _must_be_administrator(peer)
        was = pools.drains.undrain(server_name())
        changed()
        return _tell(None) | {"was_drained": was}

    return router


def _must_be_administrator(peer: Peer) -> None:
    if not peer.is_administrator:
        raise PermissionDeniedError("only the instance's own user and root may drain its server")


def _tell(drain: Drain | None) -> dict[str, Any]:
    return {"server": server_name(), "drained": None if drain is None else asdict(drain)}
