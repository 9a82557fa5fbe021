# SPDX-License-Identifier: Apache-2.0
"""The requests about pools, and about who waits for their space."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from forebay.manager.records import PoolSpace
from forebay.workflows.manager.core.pools.pools import Pools
from forebay.workflows.manager.http.peer import CurrentPeer

__all__ = ["build_pool_router"]


def build_pool_router(pools: Pools) -> APIRouter:
    """The routes."""
    router = APIRouter()

    @router.get("/pools")
    def list_pools() -> list[dict[str, Any]]:
        """The pools: name, capacity, what of it is free, what those who wait ask for."""
        spaces = pools.spaces()
        rows = []
        for key, pool in pools.settings.pools.items():
            capacity_bytes, free_bytes = pools.capacity(key, spaces)
            waiting_bytes = pools.waiting_bytes(key)
            row = PoolSpace(pool.name, capacity_bytes, free_bytes, pool.granularity_bytes, waiting_bytes)
            rows.append(row.as_dict())
        return rows

    @router.get("/queue")
    def list_queue(peer: CurrentPeer) -> list[dict[str, Any]]:
        """Reservations of the caller's that wait for space, with how many came before; an administrator sees all."""
        return [row.as_dict() for row in pools.queue() if peer.may_see(row.owner_uid)]

    @router.delete("/queue/{name:path}")
    def leave_queue(name: str, peer: CurrentPeer) -> dict[str, Any]:
        """Waits no longer; idempotent."""
        return {"left": pools.leave(name, peer.whose)}

    return router
