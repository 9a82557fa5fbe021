# SPDX-License-Identifier: Apache-2.0
"""The requests about the instance as a whole: its health, what is wrong, its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from forebay.manager.records import Health
from forebay.records import Finding
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.reservations.in_use import refuse_if_in_use
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.http.peer import CurrentPeer

__all__ = ["build_instance_router"]


class ShutdownRequest(BaseModel):
    """The instance goes down."""

    force: bool = Field(
        default=False,
        description="destroy reservations although jobs, holders, writers or unstaged precious steps are in them",
    )


def build_instance_router(
    database: Database,
    reservations: Reservations,
    root: Path,
    find: Callable[[], list[Finding]],
    request_exit: Callable[[], None],
    *,
    shared: bool,
) -> APIRouter:
    """The routes.

    Parameters
    ----------
    find : callable
        What `forebay doctor` should know.
    request_exit : callable
        Called when the instance is to go down.
    shared : bool
        Users other than its own may have reservations.
    """
    router = APIRouter()
    started_ns = time.time_ns()

    @router.get("/health")
    def health() -> dict[str, Any]:
        """The manager is alive; can it reach the server?"""
        incarnation = reservations.servers.own.incarnation()
        server_pid = None if incarnation is None else incarnation[0]
        return Health(version("forebay"), str(root), started_ns, shared, server_pid).as_dict()

    @router.get("/findings")
    def findings(peer: CurrentPeer) -> list[dict[str, Any]]:
        """What `forebay doctor` should know."""
        if not peer.is_administrator:
            return []
        return [finding.as_dict() for finding in find()]

    @router.post("/shutdown")
    async def shut_down(request: ShutdownRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Destroys the reservations that are not persistent, and ends the manager."""
        peer.must_be_administrator("only the instance's own user and root may take it down")
        if not request.force:
            await asyncio.to_thread(refuse_if_in_use, database)
        destroyed, to_destroy = await asyncio.to_thread(reservations.destroy_non_persistent, force=request.force)
        request_exit()
        return {"destroyed": destroyed, "to_destroy": to_destroy}

    return router
