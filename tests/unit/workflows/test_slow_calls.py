# SPDX-License-Identifier: Apache-2.0
"""What takes long for one user keeps no other waiting."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from forebay.admin import Admin
from forebay.manager.records import AttachmentKind, AttachmentRow
from forebay.records import ReservationInfo
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.database.attachment_table import AttachmentTable
from forebay.workflows.manager.core.database.database import Database
from forebay.workflows.manager.core.name_turns import NameTurns, TaskTurns
from forebay.workflows.manager.core.pools.servers import Servers
from forebay.workflows.manager.core.reservations.reservations import Reservations
from forebay.workflows.manager.core.slow_calls import SlowCalls
from tests.support.time_limits import seconds
from tests.unit.workflows.test_manager_reservations import FakeServer, request

_SECONDS_MAX = seconds(60)


class SlowServer(FakeServer):
    """Takes as long as the test likes to create `large`."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let_go = threading.Event(), threading.Event()

    def create(self, name: str, capacity: int, **options: Any) -> ReservationInfo:
        if name == "large":
            self.asked.set()
            assert self.let_go.wait(_SECONDS_MAX)
        return super().create(name, capacity, **options)


def test_while_a_large_reservation_is_made_others_are_made_used_and_destroyed(tmp_path: Path) -> None:
    server = SlowServer()
    database = Database(tmp_path / "manager.sqlite")
    reservations = Reservations(database, Servers(database, lambda _address: cast(Admin, server)))
    with ThreadPoolExecutor() as threads:
        large = threads.submit(reservations.create, request("large", 50))
        assert server.asked.wait(_SECONDS_MAX)
        reservations.create(request("small", owner_uid=8))
        AttachmentTable(database).put(AttachmentRow("small", AttachmentKind.USER, "me", 8))
        assert reservations.findings() == []
        AttachmentTable(database).end(AttachmentRow("small", AttachmentKind.USER, "me", 8), "detached")
        assert reservations.destroy("small", force=False, by=Peer(8, 8))
        assert not large.done()
        # Who asks for the same one waits for its turn.
        again = threads.submit(reservations.create, request("large", 50))
        server.let_go.set()
        assert large.result(_SECONDS_MAX) == again.result(_SECONDS_MAX)
    assert server.created == 2
    database.close()


def test_calls_of_one_user_beyond_a_few_wait_and_those_of_others_do_not() -> None:
    async def run() -> None:
        calls = SlowCalls()
        let_go = threading.Event()
        running = threading.Semaphore(0)

        def slow() -> int:
            running.release()
            assert let_go.wait(_SECONDS_MAX)
            return 1

        ones = [asyncio.create_task(calls.run(1001, slow)) for _ in range(50)]
        for _ in range(2):
            await asyncio.to_thread(running.acquire, timeout=_SECONDS_MAX)
        assert await calls.run(1002, lambda: 2) == 2
        assert not running.acquire(blocking=False), "more than two of one user ran"
        let_go.set()
        assert await asyncio.gather(*ones) == [1] * 50
        calls.close()

    asyncio.run(run())


def test_turns_are_taken_for_each_name_and_forgotten() -> None:
    turns = NameTurns()
    order: list[str] = []

    def take(name: str) -> None:
        with turns.of(name):
            order.append(name)

    with ThreadPoolExecutor() as threads:
        with turns.of("a"):
            waiting = threads.submit(take, "a")
            threads.submit(take, "b").result(_SECONDS_MAX)
            assert not waiting.done()
            assert turns.is_taken("a")
        waiting.result(_SECONDS_MAX)
    assert order == ["b", "a"]
    assert len(turns) == 0


def test_tasks_take_turns_for_each_name_and_one_that_is_cancelled_leaves_none_behind() -> None:
    async def run() -> None:
        turns = TaskTurns()
        order: list[str] = []

        async def take(name: str) -> None:
            async with turns.of(name):
                order.append(name)

        async with turns.of("a"):
            waiting, cancelled = asyncio.create_task(take("a")), asyncio.create_task(take("a"))
            await take("b")
            cancelled.cancel()
            await asyncio.wait([cancelled])
            assert not waiting.done()
        await waiting
        assert order == ["b", "a"]
        assert not turns.is_taken("a")

    asyncio.run(run())
