# SPDX-License-Identifier: Apache-2.0
"""The requests about attachments: which there are, attaching, extending, detaching."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from forebay.workflows.manager.core.name_turns import TaskTurns
from forebay.workflows.manager.core.reservations.attachments import Attachments, Hold
from forebay.workflows.manager.core.why import Why
from forebay.workflows.manager.http.list_response import list_response
from forebay.workflows.manager.http.peer import CurrentPeer

__all__ = ["build_attachment_router"]


class HoldRequest(BaseModel):
    """Who uses which reservation."""

    reservation: str
    holder: str = Field(description="what the user calls the attachment; the same name again renews it")
    ttl_seconds: float | None = Field(default=None, description="how long it lasts; none: until it is detached")

    def hold(self) -> Hold:
        """What is asked for."""
        return Hold(self.reservation, self.holder, ttl_seconds=self.ttl_seconds)


class AttachRequest(HoldRequest):
    """An attachment to make."""

    pid: int | None = Field(default=None, gt=0, description="it ends with this process")
    process: str | None = Field(default=None, description="which one: see forebay.manager.process_identity")

    def hold(self) -> Hold:
        """What is asked for."""
        return Hold(self.reservation, self.holder, self.pid, self.process, self.ttl_seconds)


def build_attachment_router(attachments: Attachments, why: Why) -> APIRouter:
    """The routes."""
    router = APIRouter()
    turns = TaskTurns()  # of users: a long list takes the processor for a while

    @router.get("/attachments")
    async def list_attachments(peer: CurrentPeer) -> Response:
        """The caller's attachments, and all to the caller's reservations; an administrator's request gives all."""

        def listed() -> Response:
            return list_response(row.as_dict() for row in why.visible_attachments(peer))

        async with turns.of(str(peer.uid)):
            return await asyncio.to_thread(listed)

    @router.post("/attachments")
    def attach(request: AttachRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Keeps a reservation in use; the same holder again renews its attachment."""
        return attachments.attach(request.hold(), peer).as_dict()

    @router.post("/attachments/extend")
    def extend(request: HoldRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Lets an attachment last longer, or shorter."""
        return attachments.extend(request.hold(), peer).as_dict()

    @router.post("/attachments/detach")
    def detach(request: HoldRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Ends an attachment; idempotent."""
        return {"detached": attachments.detach(request.reservation, request.holder, peer)}

    return router
