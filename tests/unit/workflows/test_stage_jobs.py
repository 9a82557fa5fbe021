# SPDX-License-Identifier: Apache-2.0
"""What a stage is to do comes from users: each field has the type that it should have, and all of them have an end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from forebay.errors import InvalidArgumentError, RefusedError
from forebay.manager.jobs import FilesJob, Job, MatchedFilesJob, StepsJob, job_from_json, job_to_json
from forebay.manager.records import StageRow
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.stages import supervisor as supervisor_module
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.manager.http import stage_routes
from forebay.workflows.manager.http.api import build_api

STEPS = StepsJob("run1/flow", "/out", every=3, variables=("T", "p\udcff"), follow=True)
FILES = FilesJob("run1", "a", "/b", inward=False, wait_closed_seconds=5, unclean_nodes=("n1",))
MATCHED = MatchedFilesJob("run1", "", "/b", "*.h5", exclude=("x*",), multiple_of=10)


@pytest.mark.parametrize("job", [STEPS, FILES, MATCHED])
def test_a_job_is_read_as_it_was_written(job: Job) -> None:
    assert job_from_json(json.loads(json.dumps(job_to_json(job)))) == job


WRONG = [
    (STEPS, "stream", 5),
    (STEPS, "stream", ["a"]),
    (STEPS, "stream", {"a": 1}),
    (STEPS, "stream", None),
    (STEPS, "destination", "/tmp/\0x"),
    (STEPS, "destination", "/tmp/\ud800"),
    (STEPS, "every", "x"),
    (STEPS, "every", 1.5),
    (STEPS, "every", True),
    (STEPS, "every", 1 << 63),
    (STEPS, "variables", "abc"),
    (STEPS, "variables", [[1], {"a": 2}]),
    (STEPS, "variables", None),
    (STEPS, "follow", "yes"),
    (STEPS, "follow", 1),
    (STEPS, "format", 3),
    (FILES, "reservation", ["a"]),
    (FILES, "as_root", 0),
    (FILES, "owner", False),
    (FILES, "wait_closed_seconds", float("nan")),
    (FILES, "wait_closed_seconds", float("inf")),
    (FILES, "wait_closed_seconds", "x"),
    (FILES, "wait_closed_seconds", -1),
    (FILES, "only", {"z": 1}),
    (MATCHED, "reservation", {"a": 1}),
    (MATCHED, "exclude", [5]),
    (MATCHED, "nonsense", 5),
]


@pytest.mark.parametrize(("job", "field", "value"), WRONG)
def test_a_field_of_another_type_is_refused_by_its_name(job: Job, field: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=field):
        job_from_json(job_to_json(job) | {field: value})


@pytest.mark.parametrize("document", [{}, {"kind": ["steps"]}, {"kind": "steps"}, {"kind": "x" * 100_000}])
def test_what_is_no_stage_is_refused_in_few_words(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as refusal:
        job_from_json(document)
    assert len(str(refusal.value)) < 300


def test_descriptions_of_a_users_stages_are_bounded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor_module, "_WAITING_CHARACTERS_MAX", 200_000, raising=False)
    monkeypatch.setattr(StageSupervisor, "_fill_slots", lambda _self: None)  # all wait

    async def run() -> None:
        with contextlib.closing(Database(tmp_path / "manager.sqlite")) as database:
            supervisor = StageSupervisor(database, tmp_path)
            long = StepsJob("run1/flow", "/out", steps="1," * 20_000)
            for _ in range(5):
                await supervisor.submit(long, 1, 1, 0o22)
            with pytest.raises(RefusedError, match="descriptions of user 1's stages"):
                await supervisor.submit(long, 1, 1, 0o22)
            # Others are not concerned, and neither is this one once its are over.
            await supervisor.submit(long, 2, 2, 0o22)
            for row in await supervisor.stages(1):
                await supervisor.cancel(row.id)
            await supervisor.submit(long, 1, 1, 0o22)

    caplog.set_level(logging.INFO)
    asyncio.run(run())
    assert max(len(record.getMessage()) for record in caplog.records) < 2000


def test_stages_that_are_over_are_forgotten_by_the_length_of_their_descriptions_too(tmp_path: Path) -> None:
    with contextlib.closing(Database(tmp_path / "manager.sqlite")) as database:
        for number in range(10):
            row = database.add_stage({"kind": "steps", "steps": "x" * 1000 * number}, 7, 7, 0o22)
            database.change_stage(row.id, state=StageState.SUCCEEDED)
        waiting = database.add_stage({"kind": "steps", "steps": "x" * 100_000}, 7, 7, 0o22)
        database.forget_old_stages(7, 1000, 20_000)
        assert [row.id for row in database.stages()] == [9, 10, waiting.id]


def test_a_list_of_stages_is_built_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    row = StageRow(1, StageState.QUEUED, job_to_json(STEPS), 1, 1, 0o22, False, 0, 1, None, None, {}, (), None, None)
    sent: list[dict[str, Any]] = []
    builders: set[int] = set()
    tell = StageRow.as_dict

    def note_thread(row: StageRow) -> dict[str, Any]:
        builders.add(threading.get_ident())
        return tell(row)

    class Stages:
        async def stages(self, _uid: int | None) -> list[StageRow]:
            return [row] * 3

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async def call() -> None:
        api = build_api([stage_routes.build_stage_router(cast(Any, Stages()), cast(Any, None))])
        scope = {"type": "http", "method": "GET", "path": "/stages", "query_string": b"", "headers": []}
        await api(scope | {"state": {"peer": Peer(1, 1)}}, receive, send)

    monkeypatch.setattr(StageRow, "as_dict", note_thread)
    asyncio.run(call())
    told = json.loads(b"".join(message.get("body", b"") for message in sent))
    assert [stage["id"] for stage in told] == [1, 1, 1]
    assert job_from_json(told[2]["job"]) == STEPS
    assert builders
    assert threading.get_ident() not in builders
