# SPDX-License-Identifier: Apache-2.0
"""The requests about stages: which there are, queueing, following and cancelling one."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from forebay.errors import InvalidArgumentError
from forebay.manager.jobs import job_from_json
from forebay.manager.records import StageReceipt, StageRow
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import no_stage
from forebay.workflows.manager.core.name_turns import TaskTurns
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.stages.acting_user import check_may_act, check_may_stage
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.manager.http.list_response import list_response
from forebay.workflows.manager.http.numbers import StageNumber
from forebay.workflows.manager.http.peer import CurrentPeer
from forebay.workflows.manager.http.request_limits import turn_of

__all__ = ["build_stage_router"]

_WAIT_SECONDS_MAX = 30.0
_JOB_CHARACTERS_MAX = 65536


class StageRequest(BaseModel):
    """A stage to run."""

    job: dict[str, Any] = Field(description="see forebay.manager.jobs")
    umask: int = Field(default=0o022, ge=0, le=0o777)


def build_stage_router(supervisor: StageSupervisor, reservations: Reservations) -> APIRouter:
    """The routes."""
    router = APIRouter()
    turns = TaskTurns()  # of users: a long list takes the processor for a while

    async def tell_whole(row: StageRow) -> dict[str, Any]:
        receipt = await asyncio.to_thread(supervisor.receipts.find, row.id, row.owner_uid)
        place = None if receipt is None else StageReceipt(str(receipt.path), receipt.row.crc32c).as_dict()
        return row.as_dict() | {"version": supervisor.version(row.id), "receipt": place}

    @router.get("/stages")
    async def list_stages(peer: CurrentPeer) -> Response:
        """The caller's stages; an administrator's request gives all."""
        async with turns.of(str(peer.uid)):
            rows = await supervisor.stages(peer.whose)
            return await asyncio.to_thread(lambda: list_response(row.as_dict() for row in rows))

    @router.post("/stages")
    async def submit_stage(request: StageRequest, peer: CurrentPeer) -> dict[str, Any]:
        """Queues a stage."""
        if len(json.dumps(request.job)) > _JOB_CHARACTERS_MAX:  # as its process gets it
            raise InvalidArgumentError(
                "the stage's description is too long; use ranges for steps, fewer variables, or several stages"
            )
        job = job_from_json(request.job)
        check_may_stage(peer)
        check_may_act(job, peer)
        await asyncio.to_thread(reservations.check_stages_here, job)
        return await tell_whole(await supervisor.submit(job, peer.uid, peer.gid, request.umask))

    @router.get("/stages/{stage_id}")
    async def show_stage(
        stage_id: StageNumber,
        peer: CurrentPeer,
        request: Request,
        seen: int = -1,
        wait_seconds: Annotated[float, Query(ge=0, le=_WAIT_SECONDS_MAX)] = 0.0,
    ) -> dict[str, Any]:
        """One stage; with `seen`, the version that the caller has, waits for a newer one."""
        _check_may_see(await supervisor.stage(stage_id), peer)
        if wait_seconds:
            async with turn_of(request).given_back():
                await supervisor.wait_for_change(stage_id, seen, wait_seconds)
        return await tell_whole(await supervisor.stage(stage_id))

    @router.post("/stages/{stage_id}/cancel")
    async def cancel_stage(stage_id: StageNumber, peer: CurrentPeer) -> dict[str, Any]:
        """Cancels a stage; idempotent."""
        _check_may_see(await supervisor.stage(stage_id), peer)
        return await tell_whole(await supervisor.cancel(stage_id))

    return router


def _check_may_see(row: StageRow, peer: Peer) -> None:
    """To others there is no such stage."""
    if not peer.may_see(row.owner_uid):
        raise no_stage(row.id)
