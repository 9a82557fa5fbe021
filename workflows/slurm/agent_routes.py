# SPDX-License-Identifier: Apache-2.0
"""The request of agents: `forebay agent` of a server tells what it has done, and takes what it is to do next. It comes
through the servers of the pool, which its own introduces it to by the pool's key.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from forebay.workflows.files.pool_engines import PoolEngines
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.manager.http.peer import CurrentPeer
from forebay.workflows.manager.http.request_limits import turn_of

__all__ = ["build_agent_router"]


class AgentAnswer(BaseModel):
    """To one call: a result, or an error."""

    number: int
    result: Any = None
    error: dict[str, str] | None = None


class AgentTurn(BaseModel):
    """What an agent says of itself."""

    server: str = Field(max_length=64)
    root_uuid: str = Field(max_length=64)
    agent: str = Field(max_length=64, description="another one for each run of the agent")
    shown: list[str] = Field(description="reservations of which its drivers have something")
    ended: list[str] = Field(description="those whose daemons do not run")
    answers: list[AgentAnswer]
    wait_seconds: float = Field(ge=0, le=30)


def build_agent_router(engines: PoolEngines, servers: Servers) -> APIRouter:
    """The routes."""
    router = APIRouter()

    @router.post("/files/agents/turn")
    async def turn(said: AgentTurn, peer: CurrentPeer, request: Request) -> dict[str, Any]:
        """Takes its answers, and gives it the next calls, if there are some in time."""
        peer.must_be_administrator("only the agents of the pool's servers show files for its manager")
        answers = {answer.number: {"result": answer.result, "error": answer.error} for answer in said.answers}

        def take() -> dict[str, Any]:
            calls = engines.agents.turn(
                said.server,
                said.root_uuid,
                said.agent,
                frozenset(said.shown),
                frozenset(said.ended),
                answers,
                said.wait_seconds,
            )
            return {"manager": servers.root_uuid(""), "incarnation": engines.incarnation, **calls}

        async with turn_of(request).given_back():
            return await asyncio.to_thread(take)

    return router
