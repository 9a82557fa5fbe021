# SPDX-License-Identifier: Apache-2.0
"""Reservation ``run1`` over three servers, and programs on another node than all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.load import until
from tests.support.server_pool import ServerPool

__all__ = ["SHARE", "as_far", "far", "problems", "spread", "wait_until_present"]

MIB = 1 << 20
SHARE = 32 * MIB


@pytest.fixture
def spread(tmp_path: Path) -> Iterator[ServerPool]:
    """The servers; the first is the reservation's home."""
    with ServerPool(tmp_path / "pool", 3, options=("--flush-interval-ms", "-1")) as made:
        made.create("run1", [(0, SHARE), (1, SHARE), (2, SHARE)])
        wait_until_present(made, 2)
        yield made


def wait_until_present(pool: ServerPool, times: int) -> None:
    """Until the home has said so often that a member is there."""
    until(lambda: pool.servers[0].log().count("is there") >= times, "the other members are there")


@pytest.fixture
def far(spread: ServerPool, tmp_path: Path) -> dict[str, str]:
    """The environment of a program on another node than all servers."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    with spread.admin(0) as admin:
        token.write_text(admin.create_token("run1", rights=("read", "write")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_ROOT")}
    return kept | {
        "FOREBAY_TRANSPORT": "tcp",
        "FOREBAY_SERVER": spread.addresses[0],
        "FOREBAY_TOKEN_FILE": str(token),
    }


@pytest.fixture
def as_far(far: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is such a program, too."""
    for name, value in far.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FOREBAY_ROOT", raising=False)


def problems(pool: ServerPool) -> list[str]:
    """What audits of all servers find, which read all data."""
    found = []
    for server in range(3):
        with pool.admin(server) as admin:
            found += [finding.what for finding in admin.audit(read_data=True) if finding.severity == "problem"]
    return found
