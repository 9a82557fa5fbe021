# SPDX-License-Identifier: Apache-2.0
"""The request of a writer whose stream comes with rules: which of its steps are copied out while they are written."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from forebay.errors import ForebayError, InvalidArgumentError
from forebay.manager.jobs import StepsJob
from forebay.workflows.directives.stage_rules import stages_of_rules
from forebay.workflows.manager.core.name_turns import TaskTurns
from forebay.workflows.manager.core.stages.acting_user import check_may_stage
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.manager.http.peer import CurrentPeer

__all__ = ["build_rule_router"]

_RULES_MAX = 16
_CHARACTERS_MAX = 8192


def build_rule_router(supervisor: StageSupervisor) -> APIRouter:
    """The routes."""
    router = APIRouter()
    turns = TaskTurns()  # of users: two ranks, or two writers, may come with the same rule

    @router.post("/stage-rules")
    async def begin_rules(
        peer: CurrentPeer,
        stream: Annotated[str, Query(max_length=200)],
        rules: Annotated[str, Query(max_length=_CHARACTERS_MAX)],
        folder: Annotated[str, Query(max_length=_CHARACTERS_MAX)],
        umask: Annotated[str, Query(pattern="^0?[0-7]{1,3}$")] = "022",
        check: bool = False,
    ) -> Response:
        """Begins a stage for each rule, unless it runs. The answer is text: the numbers, or what is wrong.

        With `check`, nothing is begun. A stage that is over is begun again: the stream goes on, or is a new one. The
        header `forebay-error` has the code of what is wrong.
        """
        try:
            check_may_stage(peer)
            wanted = _stages(stream, rules, folder)
            numbers: list[int] = []
            async with turns.of(str(peer.uid)):
                for job in [] if check else wanted:
                    row = await supervisor.submit_unless_there(job, peer.uid, peer.gid, int(umask, 8))
                    numbers.append(row.id)
        except ForebayError as error:
            return Response(
                error.what,
                status_code=400,
                media_type="text/plain; charset=utf-8",
                headers={"forebay-error": error.code},
            )
        return Response(" ".join(map(str, numbers)), media_type="text/plain; charset=utf-8")

    return router


def _stages(stream: str, rules: str, folder: str) -> list[StepsJob]:
    reservation, slash, name = stream.partition("/")
    if not slash:
        raise InvalidArgumentError(f"{stream} is no stream: RESERVATION/STREAM")
    texts = [text.strip() for text in rules.split(";") if text.strip()]
    if not 0 < len(texts) <= _RULES_MAX:
        raise InvalidArgumentError(
            f"there are {len(texts)} rules; give 1 to {_RULES_MAX}, as in every=10 destination=/project/steps"
        )
    return stages_of_rules(reservation, (f"stream={name} {text}" for text in texts), folder=folder)
