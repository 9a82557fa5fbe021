# SPDX-License-Identifier: Apache-2.0
"""Calls of libdatawarp: whether a program has learned how its stage ended."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from fastapi import Request
from fastapi.routing import APIRoute

from forebay.errors import NoSpaceError
from forebay.manager.jobs import FilesJob
from forebay.manager.records import JobState
from forebay.manager.stage_state import StageState
from forebay.workflows.datawarp.calls import build_datawarp_router
from forebay.workflows.datawarp.places import Places
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.database.job_table import JobTable
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.stages.asked_stages import Asking
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor

PEER = Peer(7, 7)


class Call:
    """A request of a program, which may be gone when it is to be answered."""

    def __init__(self, name: str, *, is_gone: bool) -> None:
        self._body = "\0".join((name, "kind", "file", "path", "/files/a", "")).encode()
        self._is_gone = is_gone

    async def stream(self) -> AsyncIterator[bytes]:
        yield self._body

    async def is_disconnected(self) -> bool:
        return self._is_gone


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with contextlib.closing(Database(tmp_path / "manager.sqlite")) as opened:
        yield opened


async def due_after(supervisor: StageSupervisor, database: Database, name: str, *, is_gone: bool) -> tuple[int, bool]:
    """What a call on a stage that has failed returns, and whether the stage is due at its job's end after it."""
    job = JobTable(database).add("17", 7, 7, 1 << 24, {})
    JobTable(database).change(job.id, state=JobState.RUNNING)
    asking = Asking(7, "id-1", "a", directory=False, job=job.id)
    row = await supervisor.submit(
        FilesJob("job17", "17/a", "/pfs/a", inward=False, only="file"), 7, 7, 0o22, asking=asking, deferred=True
    )
    failure = {"code": "permission_denied", "what": "no", "where": ""}
    database.change_stage(row.id, state=StageState.FAILED, failure=failure)

    def find(*_: object) -> SimpleNamespace:
        return SimpleNamespace(path="a", files="/files", reservation=SimpleNamespace(id="id-1", name="job17"))

    router = build_datawarp_router(
        supervisor, cast(Places, SimpleNamespace(find=find)), cast(Reservations, SimpleNamespace())
    )
    (call,) = (route.endpoint for route in router.routes if isinstance(route, APIRoute))
    answer = await call(cast(Request, Call(name, is_gone=is_gone)), PEER)
    return int(answer.body.partition(b"\0")[0]), await supervisor.asked.due(job.id) == [row.id]


@pytest.mark.parametrize(
    ("name", "number"), [("wait", errno.EACCES), ("query", 0), ("failed", 0), ("terminate", 0), ("place", 0)]
)
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_program_is_told_by_what_tells_of_its_stage_and_only_while_it_is_there(
    database: Database, tmp_path: Path, name: str, number: int, is_gone: bool
) -> None:
    supervisor = StageSupervisor(database, tmp_path)
    told = asyncio.run(due_after(supervisor, database, name, is_gone=is_gone))
    assert told == (number, is_gone or name == "place")


def test_an_answer_does_not_fail_where_it_cannot_be_noted(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = StageSupervisor(database, tmp_path)

    async def full(_: object) -> None:
        raise NoSpaceError("the disk is full")

    monkeypatch.setattr(supervisor.asked, "note_told", full)
    told = asyncio.run(due_after(supervisor, database, "wait", is_gone=False))
    assert told == (errno.EACCES, True)
