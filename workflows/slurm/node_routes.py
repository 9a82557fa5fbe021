# SPDX-License-Identifier: Apache-2.0
"""The requests of jobs' nodes: what they mount, and that they have let go of it. Root of a node makes them, which comes
through a server of the pool, by MUNGE or introduced by the server of its node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from forebay.errors import BusyError
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.http.peer import CurrentPeer
from forebay.workflows.slurm.job_files import JobFiles

__all__ = ["build_node_router"]

_REPORTS_AT_ONCE_MAX = 8
#: The server passes on 32 requests of root of other nodes at once. Up to 16 are those of agents, who carry out the
#: fences that reports wait for: reports may not take the places of all others.
_REPORTS_HELD_MAX = 12
#: Of the jobs of one user. A job of a thousand nodes that are all unclean needs as many fences of one reservation, and
#: whose report is not heard counts as unclean.
_REPORTS_HELD_OF_USER_MAX = 6


class NodeRequest(BaseModel):
    """A node and a job."""

    job: str = Field(pattern="^[1-9][0-9]{0,18}$")
    node: str = Field(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")


class NodeReport(NodeRequest):
    """What has become of the job's files on the node."""

    run: int = Field(description="as the answer to the node's request said")
    state: Literal["mounted", "failed", "clean", "unclean"]
    reason: str = Field(default="", max_length=1000)


def build_node_router(files: JobFiles) -> APIRouter:
    """The routes."""
    router = APIRouter()
    # Each may wait for a fence, and a job has many nodes: they wait here, and take no threads from others.
    reports = asyncio.Semaphore(_REPORTS_AT_ONCE_MAX)
    held: Counter[int | None] = Counter()  # by user

    @router.post("/slurm/nodes/begin")
    async def begin(request: NodeRequest, peer: CurrentPeer) -> dict[str, Any]:
        """What the node mounts for the job."""
        _check_root(peer)
        return (await asyncio.to_thread(files.answer, request.job, request.node)).as_dict()

    @router.post("/slurm/nodes/report")
    async def report(request: NodeReport, peer: CurrentPeer) -> dict[str, Any]:
        """Takes note; an unclean node is fenced when this is answered."""
        _check_root(peer)
        user = await asyncio.to_thread(files.user_of, request.job)
        if held.total() >= _REPORTS_HELD_MAX or held[user] >= _REPORTS_HELD_OF_USER_MAX:
            raise BusyError("as many nodes report as may at once; report again", request.node)
        held[user] += 1
        try:
            async with reports:
                said = (request.job, request.run, request.node, request.state, request.reason)
                return (await asyncio.to_thread(files.report, *said)).as_dict()
        finally:
            held[user] -= 1
            if not held[user]:
                del held[user]

    return router


def _check_root(peer: Peer) -> None:
    peer.must_be_administrator("only root of a job's node asks for its mounts")
