# SPDX-License-Identifier: Apache-2.0
"""The requests about receipts: which there are, one whole, the end of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response, StreamingResponse

from forebay.workflows.manager.core.name_turns import TaskTurns
from forebay.workflows.manager.core.stages.receipts import Receipts, find_receipt
from forebay.workflows.manager.http.list_response import list_response
from forebay.workflows.manager.http.numbers import StageNumber
from forebay.workflows.manager.http.peer import CurrentPeer

__all__ = ["build_receipt_router"]

_LISTED_MAX = 1000
_LISTED_BYTES_MAX = 16 << 20
_PIECE_BYTES = 64 << 10


def build_receipt_router(receipts: Receipts) -> APIRouter:
    """The routes. Users have their own receipts; an administrator has all."""
    router = APIRouter()
    turns = TaskTurns()  # of users: a long list takes the processor for a while

    @router.get("/receipts")
    async def list_receipts(
        peer: CurrentPeer,
        place: Annotated[str, Query(max_length=4096)] = "",
        count: Annotated[int, Query(ge=1, le=_LISTED_MAX)] = _LISTED_MAX,
    ) -> Response:
        """The newest receipts, without their rows, as far as 16 MiB hold them; with `place`, a path or RES:PATH, those
        of what lies there.
        """

        def found() -> Iterator[dict[str, Any]]:
            of_place = (receipt for receipt in receipts.of(peer.whose) if not place or receipt.covers(place))
            return (receipt.row.as_dict() for receipt in islice(of_place, count))

        async with turns.of(str(peer.uid)):
            return await asyncio.to_thread(lambda: list_response(found(), _LISTED_BYTES_MAX))

    @router.get("/receipts/{stage_id}")
    async def show_receipt(stage_id: StageNumber, peer: CurrentPeer) -> StreamingResponse:
        """A whole receipt, as docs/formats/receipt.md describes it."""
        receipt = await asyncio.to_thread(find_receipt, receipts, stage_id, peer.whose)

        def pieces() -> Iterator[bytes]:
            with receipt.path.open("rb") as file:
                while piece := file.read(_PIECE_BYTES):
                    yield piece

        return StreamingResponse(pieces(), media_type="application/x-ndjson")

    @router.delete("/receipts/{stage_id}")
    async def remove_receipt(stage_id: StageNumber, peer: CurrentPeer) -> dict[str, Any]:
        """Removes a receipt; idempotent."""
        receipt = await asyncio.to_thread(receipts.find, stage_id, peer.whose)
        if receipt is not None:
            await asyncio.to_thread(receipts.remove, receipt)
        return {"removed": receipt is not None}

    return router
