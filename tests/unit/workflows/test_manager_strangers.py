# SPDX-License-Identifier: Apache-2.0
"""Whose reservations a manager takes that is not root's."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from forebay.workflows.manager.core.access import Peer
from forebay.workflows.manager.core.slow_calls import SlowCalls
from forebay.workflows.manager.http.api import build_api
from forebay.workflows.manager.http.reservation_routes import build_reservation_router


class _Reservations:
    """Says that it was asked."""

    def check_free_name(self, name: str) -> None:
        """There are no jobs."""

    def create(self, request: Any, *, reach: Any, servers: int) -> Any:
        request.name.encode()  # as a database does
        return self

    def as_dict(self) -> dict[str, Any]:
        return {"created": True}


def _create_as(uid: int, *, shared: bool, name: str = "run1") -> tuple[int, dict[str, Any]]:
    database, reservations = cast(Any, None), cast(Any, _Reservations())
    body = json.dumps({"name": name, "capacity": "16MiB"}).encode()
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/reservations",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "state": {"peer": Peer(uid, uid)},
    }

    async def call() -> None:
        slow_calls = SlowCalls()
        root = Path("/root")
        router = build_reservation_router(database, reservations, slow_calls, root, lambda: None, shared=shared)
        await build_api([router])(scope, receive, send)
        slow_calls.close()

    asyncio.run(call())
    told = b"".join(message.get("body", b"") for message in sent)
    return sent[0]["status"], json.loads(told)


@pytest.mark.parametrize("shared", [False, True])
def test_strangers_have_reservations_only_in_a_shared_instance(shared: bool) -> None:
    stranger = os.geteuid() + 1
    status, told = _create_as(stranger, shared=shared)
    if shared:
        assert (status, told) == (200, {"created": True})
    else:
        assert status == 403
        assert "forebay up --shared" in told["error"]["what"]


@pytest.mark.parametrize("uid", [0, os.geteuid()])
def test_root_and_its_own_user_always_have(uid: int) -> None:
    assert _create_as(uid, shared=False) == (200, {"created": True})


def test_characters_that_no_text_has_are_a_mistake_and_leave_no_traceback_in_the_log() -> None:
    status, told = _create_as(0, shared=True, name="a\ud800")
    assert status == 400
    assert "no text has" in told["error"]["what"]
