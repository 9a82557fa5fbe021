# SPDX-License-Identifier: Apache-2.0
"""A server whose clock is an hour off: what it gives and is given counts all the same."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from tests.servers.ranks import Ranks, check, numbers, start_here
from tests.servers.three_servers import be_far, problems, three_servers, wait_until_present
from tests.support.server_pool import ServerPool

pytestmark = [pytest.mark.timeout(90)]

HOME, MEMBER = 0, 1


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ServerPool]:
    with three_servers(tmp_path) as made:
        yield made


@pytest.fixture
def far(pool: ServerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of programs on another node than all servers, of which this process is one."""
    return be_far(pool, tmp_path, monkeypatch)


def start_off(pool: ServerPool, server: int, hours: int) -> None:
    """The server is started again; its clock is so many hours off. Its monotonic clock is not."""
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not found:
        pytest.skip("libfaketime is not installed: apt install libfaketime")
    off = {"LD_PRELOAD": found[0], "FAKETIME": f"{hours:+d}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    pool.servers[server].kill()
    pool.servers[server].start(environment=off)
    pool.tell()


# crash-matrix: a reservation over several servers | the home or a member, started again with a clock that is an hour ahead or behind, and later with one that is right | writers, readers, permits and tokens as with clocks that agree
@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("server", [HOME, MEMBER])
def test_a_clock_that_is_an_hour_off_changes_nothing(
    pool: ServerPool, far: dict[str, str], server: int, hours: int
) -> None:
    with Ranks(start_here(far), "run1/flow", durability="durable") as writers:
        assert writers.write(0) == ["done", "done"]
        present = pool.servers[HOME].log().count("is there")
        start_off(pool, server, hours)
        wait_until_present(pool, present + (2 if server == HOME else 1))
        # What was granted on a member before may be refused once.
        written = next(number for number in range(1, 4) if writers.write(number) == ["done", "done"])
        with forebay.open("run1/flow", verify="read") as stream:
            check(stream, 0)
            check(stream, 1, written)
        present = pool.servers[HOME].log().count("is there")
        pool.servers[server].kill()
        pool.servers[server].start()
        pool.tell()
        wait_until_present(pool, present + (2 if server == HOME else 1))
        again = next(number for number in range(4, 7) if writers.write(number) == ["done", "done"])
        with forebay.open("run1/flow", verify="read") as stream:
            assert numbers(stream) == [0, 1, 2]
            check(stream, 1, written)
            check(stream, 2, again)
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    assert problems(pool) == []
