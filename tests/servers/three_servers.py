# SPDX-License-Identifier: Apache-2.0
"""A reservation over three servers without a manager, and programs on another node than all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.load import until
from tests.support.server_pool import ServerPool

__all__ = ["be_far", "far_environment", "problems", "three_servers", "wait_until_away", "wait_until_present"]

MIB = 1 << 20
SHARE = 32 * MIB


@contextmanager
def three_servers(folder: Path) -> Iterator[ServerPool]:
    """The reservation run1: server 0 is its home. Nothing becomes durable by itself."""
    with ServerPool(folder / "pool", 3, options=("--flush-interval-ms", "-1")) as made:
        made.create("run1", [(0, SHARE), (1, SHARE), (2, SHARE)])
        wait_until_present(made, 2)
        yield made


def wait_until_present(pool: ServerPool, times: int) -> None:
    """The home has found a member so many times."""
    until(lambda: pool.servers[0].log().count("is there") >= times, "the other members are there")


def wait_until_away(pool: ServerPool, times: int = 1) -> None:
    """The home has noticed so many times that server 2 is away."""
    line = "member 2 (server2) is away"
    until(lambda: pool.servers[0].log().count(line) >= times, "the home knows that member 2 is away")


def far_environment(pool: ServerPool, folder: Path) -> dict[str, str]:
    """The environment of a program on another node than all servers."""
    token = folder / "token"
    token.touch(mode=0o600)
    with pool.admin(0) as admin:
        token.write_text(admin.create_token("run1", rights=("read", "write")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_ROOT")}
    return kept | {
        "FOREBAY_TRANSPORT": "tcp",
        "FOREBAY_SERVER": pool.addresses[0],
        "FOREBAY_TOKEN_FILE": str(token),
    }


def be_far(pool: ServerPool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """This process is such a program from now on; the environment of others."""
    environment = far_environment(pool, folder)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FOREBAY_ROOT", raising=False)
    return environment


def problems(pool: ServerPool) -> list[str]:
    """What audits of all servers find, which read all data."""
    found = []
    for server in range(3):
        with pool.admin(server) as admin:
            found += [finding.what for finding in admin.audit(read_data=True) if finding.severity == "problem"]
    return found
