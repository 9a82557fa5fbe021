# SPDX-License-Identifier: Apache-2.0
"""The request of agents: `forebay agent` of a server tells what it has done, and takes what it is to do next. It comes
through the servers of the pool, which its own introduces it to by the pool's key.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from forebay.workflows.files.agent_calls import Turn
from forebay.workflows.files.agent_proof import check_agent_proof
from forebay.workflows.files.pool_engines import PoolEngines
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.manager.http.peer import CurrentPeer
from forebay.workflows.manager.http.request_limits import turn_of

__all__ = ["AgentTurn", "build_agent_router", "take_turn"]


class AgentAnswer(BaseModel):
    """To one call: a result, or an error."""

    number: int
    result: Any = None
    error: dict[str, str] | None = None


class AgentTurn(BaseModel):
    """What an agent says of itself, as `Turn` has it."""

    server: str = Field(max_length=64)
    root_uuid: str = Field(max_length=64)
    agent: str = Field(max_length=64, description="another one for each run of the agent")
    proof: str = Field(max_length=64, description="that it has the pool's key")
    manager: str = Field(max_length=64, description="root of the manager that it works for; empty: of none yet")
    incarnation: int = Field(description="of that manager")
    shown: list[str] = Field(description="reservations of which its drivers have something")
    ended: list[str] = Field(description="those whose daemons do not run")
    cgroup_problem: str = Field("", max_length=400, description="why daemons count to the agent; empty: they do not")
    under_way: list[int] = Field(description="calls that it has taken and not answered")
    answers: list[AgentAnswer]
    wait_seconds: float = Field(ge=0, le=30)


def take_turn(said: AgentTurn, engines: PoolEngines, servers: Servers, key: str) -> dict[str, Any]:
    """Takes its answers, and gives it the next calls, if there are some in time; raises as `AgentCalls.turn`.

    Raises
    ------
    PermissionDeniedError
        The agent does not have the pool's key, which is the file `key`.
    """
    check_agent_proof(said.proof, key, said.server, said.root_uuid, said.agent)
    manager, incarnation = servers.root_uuid(""), engines.incarnation
    # Numbers of calls begin anew with each run of the manager.
    is_ours = (said.manager, said.incarnation) == (manager, incarnation)
    answers = {answer.number: {"result": answer.result, "error": answer.error} for answer in said.answers}
    calls = engines.agents.turn(
        Turn(
            said.server,
            said.root_uuid,
            said.agent,
            frozenset(said.shown),
            frozenset(said.ended),
            said.cgroup_problem,
            frozenset(said.under_way if is_ours else ()),
            answers if is_ours else {},
            said.wait_seconds,
        )
    )
    return {"manager": manager, "incarnation": incarnation, **calls}


def build_agent_router(engines: PoolEngines, servers: Servers, key: str) -> APIRouter:
    """The routes.

    Parameters
    ----------
    key : str
        Path of the pool's key.
    """
    router = APIRouter()

    @router.post("/files/agents/turn")
    async def turn(said: AgentTurn, peer: CurrentPeer, request: Request) -> dict[str, Any]:
        """Takes its answers, and gives it the next calls, if there are some in time."""
        peer.must_be_administrator("only the agents of the pool's servers show files for its manager")
        async with turn_of(request).given_back():
            return await asyncio.to_thread(take_turn, said, engines, servers, key)

    return router
