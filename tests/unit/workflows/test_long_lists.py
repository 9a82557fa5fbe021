# SPDX-License-Identifier: Apache-2.0
"""Lists of many megabytes cost others little: they are bounded, and those of one user come one after another."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from fastapi.responses import Response
from fastapi.routing import APIRoute

from forebay.manager.records import AttachmentKind, AttachmentRow, ReceiptRow
from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.reservations.attachments import Attachments
from forebay.workflows.manager.core.stages.receipts import Receipts, StoredReceipt
from forebay.workflows.manager.core.why import Why
from forebay.workflows.manager.http import receipt_routes
from forebay.workflows.manager.http.attachment_routes import build_attachment_router
from forebay.workflows.manager.http.list_response import list_response
from forebay.workflows.manager.http.receipt_routes import build_receipt_router
from tests.support.time_limits import seconds


def test_a_list_has_the_first_rows_that_its_length_allows() -> None:
    rows = [{"a": "x" * 100}, {"b": "y" * 100}, {"c": ""}]
    assert json.loads(bytes(list_response(rows).body)) == rows
    assert json.loads(bytes(list_response(rows, 220).body)) == rows[:2]
    assert json.loads(bytes(list_response(rows, 150).body)) == rows[:1]
    assert json.loads(bytes(list_response([], 0).body)) == []


class Kept(Receipts):
    """Receipts that are read when `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.begun: list[int | None] = []
        self.on_begun: Callable[[], object] = lambda: None

    def of(self, uid: int | None) -> Iterator[StoredReceipt]:
        self.begun.append(uid)
        self.on_begun()
        self.go.wait(seconds(60))
        row = ReceiptRow.from_native(
            {
                "stage": 1,
                "uid": uid,
                "job": {"kind": "files", "path": "x" * 1000},
                "begun_ns": 1,
                "ended_ns": 2,
                "result": {},
                "files": 0,
                "size_bytes": 0,
                "crc32c": "00000000",
                "path": "/r",
                "forebay": "0",
                "format": "forebay.stage",
                "version": 1,
            }
        )
        return iter([StoredReceipt(Path("/r"), uid or 0, row)] * 10)


def test_receipts_of_one_user_are_listed_one_after_another_and_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_routes, "_LISTED_BYTES_MAX", 4000)

    async def run() -> None:
        receipts = Kept()
        begun = asyncio.Semaphore(0)
        receipts.on_begun = partial(asyncio.get_running_loop().call_soon_threadsafe, begun.release)
        router = build_receipt_router(cast(Receipts, receipts))
        calls = {route.name: route.endpoint for route in router.routes if isinstance(route, APIRoute)}
        ada = [asyncio.ensure_future(calls["list_receipts"](Peer(7, 7))) for _ in range(3)]
        bob = asyncio.ensure_future(calls["list_receipts"](Peer(8, 8)))
        async with asyncio.timeout(seconds(30)):
            for _ in range(2):
                await begun.acquire()
            assert sorted(receipts.begun, key=str) == [7, 8]
            receipts.go.set()
            answers: list[Response] = await asyncio.gather(*ada, bob)
        assert [len(json.loads(bytes(answer.body))) for answer in answers] == [3, 3, 3, 3]

    asyncio.run(run())


class _Why:
    """Attachments that are read when `go` is set."""

    def __init__(self, on_begun: Callable[[int], object]) -> None:
        self.go = threading.Event()
        self._on_begun = on_begun

    def visible_attachments(self, peer: Peer) -> list[AttachmentRow]:
        self._on_begun(peer.uid)
        self.go.wait(seconds(60))
        return [AttachmentRow("run1", AttachmentKind.USER, "a", peer.uid)] * 3


def test_attachments_of_one_user_are_listed_one_after_another() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        begun: asyncio.Queue[int] = asyncio.Queue()
        why = _Why(lambda uid: loop.call_soon_threadsafe(begun.put_nowait, uid))
        router = build_attachment_router(cast(Attachments, None), cast(Why, why))
        calls = {route.name: route.endpoint for route in router.routes if isinstance(route, APIRoute)}
        ada = [asyncio.ensure_future(calls["list_attachments"](Peer(7, 7))) for _ in range(3)]
        bob = asyncio.ensure_future(calls["list_attachments"](Peer(8, 8)))
        async with asyncio.timeout(seconds(30)):
            assert sorted([await begun.get(), await begun.get()]) == [7, 8]
            assert begun.empty()
            why.go.set()
            answers: list[Response] = await asyncio.gather(*ada, bob)
        assert [len(json.loads(bytes(answer.body))) for answer in answers] == [3, 3, 3, 3]

    asyncio.run(run())
