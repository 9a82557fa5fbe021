# SPDX-License-Identifier: Apache-2.0
"""The requests of jobs' nodes: how many of them take a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import cast

import pytest
from fastapi.routing import APIRoute

from forebay.errors import BusyError
from forebay.manager.records import NodeAnswer, NodeAnswerState, NodeReported
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.slurm.job_files import JobFiles
from forebay.workflows.slurm.node_routes import NodeReport, NodeRequest, build_node_router
from tests.support.time_limits import seconds

_AT_ONCE = 8
_HELD = 12
_HELD_OF_USER = 6


class Files:
    """Its fences last until `end` is set. `full` is called when as many run as may."""

    def __init__(self, full: Callable[[], object]) -> None:
        self.end = threading.Event()
        self.most = 0
        self._full = full
        self._running = 0
        self._guard = threading.Lock()

    def report(self, *_: object) -> NodeReported:
        with self._guard:
            self._running += 1
            self.most = max(self.most, self._running)
            if self._running == _AT_ONCE:
                self._full()
        self.end.wait(seconds(60))
        with self._guard:
            self._running -= 1
        return NodeReported(fenced=True)

    def user_of(self, token: str) -> int:
        return int(token)  # each has one job

    def answer(self, *_: object) -> NodeAnswer:
        return NodeAnswer(NodeAnswerState.NONE)


def test_reports_that_wait_for_fences_leave_threads_and_places_to_other_requests() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        # One more than reports may take: with another report in it, `begin` would not be answered.
        loop.set_default_executor(ThreadPoolExecutor(_AT_ONCE + 1))
        is_full = asyncio.Event()
        files = Files(partial(loop.call_soon_threadsafe, is_full.set))
        router = build_node_router(cast(JobFiles, files))
        calls = {route.path: route.endpoint for route in router.routes if isinstance(route, APIRoute)}
        root = Peer(0, 0)
        report = calls["/slurm/nodes/report"]
        reports = [
            asyncio.ensure_future(report(NodeReport(job=job, node=f"n{number}", run=1, state="unclean"), root))
            for job in ("17", "18", "19")
            for number in range(_HELD_OF_USER)
        ]
        try:
            async with asyncio.timeout(seconds(30)):
                await is_full.wait()
                answer = await calls["/slurm/nodes/begin"](NodeRequest(job="18", node="n1"), root)
                assert answer["state"] == "none"
            assert not any(one.done() for one in reports[:_HELD])
            # The agent that is to fence them asks by the same way.
            for one in reports[_HELD:]:
                with pytest.raises(BusyError, match="report again"):
                    await asyncio.wait_for(one, seconds(30))
        finally:
            files.end.set()
        assert await asyncio.gather(*reports[:_HELD]) == [{"fenced": True}] * _HELD
        assert files.most == _AT_ONCE
        assert await report(NodeReport(job="17", node="late", run=1, state="clean"), root) == {"fenced": True}

    asyncio.run(run())


def test_reports_of_one_users_nodes_leave_places_to_those_of_others() -> None:
    """Whose report is not heard in time counts as unclean: its files are taken from it."""

    async def run() -> None:
        files = Files(lambda: None)
        router = build_node_router(cast(JobFiles, files))
        (report,) = [
            route.endpoint for route in router.routes if isinstance(route, APIRoute) and route.path.endswith("/report")
        ]
        root = Peer(0, 0)
        reports = [
            asyncio.ensure_future(report(NodeReport(job="17", node=f"n{number}", run=1, state="unclean"), root))
            for number in range(_HELD)
        ]
        try:
            for one in reports[_HELD_OF_USER:]:
                with pytest.raises(BusyError, match="report again"):
                    await asyncio.wait_for(one, seconds(30))
            files.end.set()
            assert await report(NodeReport(job="18", node="n1", run=1, state="clean"), root) == {"fenced": True}
        finally:
            files.end.set()
        assert await asyncio.gather(*reports[:_HELD_OF_USER]) == [{"fenced": True}] * _HELD_OF_USER

    asyncio.run(run())
