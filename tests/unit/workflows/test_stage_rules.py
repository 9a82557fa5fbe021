# SPDX-License-Identifier: Apache-2.0
"""Rules that a stream brings along: begun once, and nobody's wait for another user's."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.manager.jobs import StepsJob
from forebay.manager.stage_state import StageState
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.stages.supervisor import StageSupervisor
from forebay.workflows.manager.http import rule_routes

ADA, BOB = Peer(7, 7, frozenset({7})), Peer(8, 8, frozenset({8}))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with contextlib.closing(Database(tmp_path / "manager.sqlite")) as opened:
        yield opened


@pytest.fixture
def supervisor(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StageSupervisor:
    """Nothing of it runs: stages wait."""
    made = StageSupervisor(database, tmp_path)
    monkeypatch.setattr(made, "_fill_slots", lambda: None)
    monkeypatch.setattr(rule_routes, "check_may_stage", lambda peer: None)
    return made


async def begin(supervisor: StageSupervisor, peer: Peer, rules: str, router: Any = None) -> bytes:
    """The answer to a writer of that user."""
    route: Any = (router or rule_routes.build_rule_router(supervisor)).routes[0]
    answer = await route.endpoint(peer=peer, stream="mesh/flow", rules=rules, folder="/pfs", umask="022")
    return bytes(answer.body)


def test_a_rule_is_begun_once_until_its_stage_is_over(supervisor: StageSupervisor, database: Database) -> None:
    async def run() -> None:
        rules = "every=2 destination=/pfs/a; every=3 destination=b"
        assert await begin(supervisor, ADA, rules) == b"1 2"
        assert await begin(supervisor, ADA, rules) == b"1 2"
        assert await begin(supervisor, BOB, rules) == b"3 4"
        database.change_stage(2, state=StageState.SUCCEEDED)
        assert await begin(supervisor, ADA, rules) == b"1 5"

    asyncio.run(run())


def test_two_rules_do_not_share_a_destination(supervisor: StageSupervisor) -> None:
    """The second would fail, because the first works there until the stream ends."""
    told = asyncio.run(begin(supervisor, ADA, "every=2 destination=/pfs/a; every=3 destination=a/"))
    assert told.startswith(b"two rules have the destination /pfs/a, where one stage works at a time")
    assert asyncio.run(begin(supervisor, ADA, "every=2 destination=/pfs/a; every=2 destination=a")) == b"1"


def test_a_stage_that_has_seen_the_end_begins_anew(supervisor: StageSupervisor, database: Database) -> None:
    async def run() -> None:
        job = StepsJob("mesh/flow", "/pfs/ü", follow=True)
        first = await supervisor.submit(job, 7, 7, 0o22)
        database.change_stage(first.id, state=StageState.RUNNING, progress={"stream_ended": True})
        assert (await supervisor.submit_unless_there(job, 7, 7, 0o22)).id == first.id
        assert supervisor._wanted_again == {first.id}

    asyncio.run(run())


def test_nobody_waits_while_the_manager_looks_through_anothers_stages(
    supervisor: StageSupervisor, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may have ten thousand that wait, and ask again and again whether one of them is there."""
    goes_on = threading.Event()

    def waits_for(uid: int, whole: Any) -> Any:
        def look(*arguments: Any, **options: Any) -> Any:
            if uid in arguments:
                assert goes_on.wait(60)
            return whole(*arguments, **options)

        return look

    monkeypatch.setattr(database, "unfinished_stage", waits_for(ADA.uid, database.unfinished_stage))

    async def run() -> None:
        router = rule_routes.build_rule_router(supervisor)
        adas = [asyncio.create_task(begin(supervisor, ADA, "every=2 destination=a", router)) for _ in range(4)]
        try:
            async with asyncio.timeout(30):
                assert await begin(supervisor, BOB, "every=2 destination=a", router) == b"1"
                async with supervisor._ending:  # stages of all users succeed
                    pass
        finally:
            goes_on.set()
        assert await asyncio.gather(*adas) == [b"2"] * 4

    asyncio.run(run())


def test_calls_of_libdatawarp_wait_for_those_of_their_user_alone(supervisor: StageSupervisor) -> None:
    async def run() -> None:
        async with supervisor.asked.turn(ADA.uid), asyncio.timeout(30), supervisor.asked.turn(BOB.uid):
            again = asyncio.create_task(supervisor.asked.turn(ADA.uid).__aenter__())
            await asyncio.sleep(0)
            assert not again.done()
        await again

    asyncio.run(run())
