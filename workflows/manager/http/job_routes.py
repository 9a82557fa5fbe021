# SPDX-License-Identifier: Apache-2.0
"""The requests about jobs of a scheduler, and the one that asks what a job, a reservation or a stage waits for."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.why import Why
from forebay.workflows.manager.http.peer import CurrentPeer

__all__ = ["build_job_router"]


def build_job_router(table: JobTable, why: Why) -> APIRouter:
    """The routes."""
    router = APIRouter()

    @router.get("/jobs")
    def list_jobs(peer: CurrentPeer) -> list[dict[str, Any]]:
        """The caller's jobs of a scheduler; an administrator's request gives all."""
        return [job.as_dict() for job in table.all() if peer.may_see(job.owner_uid)]

    @router.get("/why")
    def tell_why(what: Annotated[str, Query(max_length=200)], peer: CurrentPeer) -> list[dict[str, Any]]:
        """What a reservation, a job or a stage waits for, since when, who holds it, and what ends it."""
        return [answer.as_dict() for answer in why.tell(what, peer)]

    return router
