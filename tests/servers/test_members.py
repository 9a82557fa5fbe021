# SPDX-License-Identifier: Apache-2.0
"""A reservation over three servers, whose clients come by TCP: where bytes lie, and what they survive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.servers.ranks import Ranks, block, check, numbers, start_here
from tests.servers.three_servers import (
    far_environment,
    problems,
    three_servers,
    wait_until_away,
    wait_until_present,
)
from tests.support.load import until
from tests.support.server_pool import ServerPool

pytestmark = [pytest.mark.timeout(60)]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ServerPool]:
    with three_servers(tmp_path) as made:
        yield made


@pytest.fixture
def far(pool: ServerPool, tmp_path: Path) -> dict[str, str]:
    return far_environment(pool, tmp_path)


@pytest.fixture
def as_far(far: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is on another node than all servers, too."""
    for name, value in far.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FOREBAY_ROOT", raising=False)


def used_segments(pool: ServerPool, server: int) -> int:
    """How many of its segments hold anything but zeros."""
    paths = (pool.servers[server].root / "reservations").glob("*/segments/*")
    return sum(any(path.read_bytes()) for path in paths)


def lose_power(pool: ServerPool, server: int) -> None:
    """The server's node is started again: what was not synced may be gone."""
    pool.servers[server].kill()
    (pool.servers[server].root / "boot-id").write_text("another boot\n")
    pool.servers[server].start()


def test_blocks_go_to_other_members_and_metadata_home(pool: ServerPool, far: dict[str, str], as_far: None) -> None:
    with Ranks(start_here(far), "run1/flow") as writers:
        for number in range(4):
            assert writers.write(number) == ["done", "done"]
        with forebay.open("run1/flow", verify="read") as stream:
            for number in range(4):
                check(stream, number)
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    with forebay.open("run1/flow") as stream:
        check(stream, 3)
    assert used_segments(pool, 0) == 2  # one for each rank, with metadata
    assert used_segments(pool, 1) >= 4
    assert used_segments(pool, 2) >= 4
    assert problems(pool) == []


def test_space_on_members_is_used_again_by_the_next_group(pool: ServerPool, far: dict[str, str], as_far: None) -> None:
    for group in range(3):
        with Ranks(start_here(far), "run1/flow", retention="last:2") as writers:
            # More than there is, so that the space of earlier steps, and of earlier groups, has to come back.
            for number in range(20):
                assert writers.write(number) == ["done", "done"], (group, number)
            if group != 1:
                assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    with forebay.open("run1/flow", verify="read") as stream:
        assert numbers(stream) == [18, 19]
        check(stream, 18)
        check(stream, 19)
    assert problems(pool) == []


def test_a_member_that_is_away_makes_its_steps_unavailable_and_no_others(
    pool: ServerPool, far: dict[str, str], as_far: None
) -> None:
    with Ranks(start_here(far), "run1/flow") as writers:
        for number in range(2):
            assert writers.write(number) == ["done", "done"]
        pool.servers[2].kill()
        wait_until_away(pool)
        with forebay.open("run1/flow", reconnect_timeout=0) as stream:
            step = stream[1]
            assert np.array_equal(step["small"][1], np.arange(8.0) + 2)
            with pytest.raises(forebay.UnavailableError, match=r"server2 is away since|server server2"):
                step["T"][...]
        # What was granted there before may be refused once; the others take the steps that follow.
        written = next(number for number in range(2, 5) if writers.write(number) == ["done", "done"])
        with forebay.open("run1/flow", reconnect_timeout=0, verify="read") as stream:
            check(stream, 2, written)
        pool.servers[2].start()
        pool.tell()
        wait_until_present(pool, 3)
        with forebay.open("run1/flow", verify="read") as stream:
            check(stream, 0)
            check(stream, 1)
            check(stream, 2, written)
        assert writers.write(9) == ["done", "done"]
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    assert problems(pool) == []


def test_space_of_durable_steps_comes_back_while_a_member_is_away(
    pool: ServerPool, far: dict[str, str], as_far: None
) -> None:
    with Ranks(start_here(far), "run1/flow", retention="last:2", durability="durable") as writers:
        for number in range(4):
            assert writers.write(number) == ["done", "done"]
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    pool.servers[2].kill()
    wait_until_away(pool)
    with Ranks(start_here(far), "run1/flow", retention="last:2", mode="a") as writers:
        # Three times what the other member has.
        for number in range(4, 30):
            assert writers.write(number) == ["done", "done"], number
    with forebay.open("run1/flow", reconnect_timeout=0, verify="read") as stream:
        check(stream, 28)
        check(stream, 29)
    pool.servers[2].start()
    wait_until_present(pool, 3)
    assert pool.servers[0].log().count("a sync waits") == 0
    assert problems(pool) == []


def test_a_writer_without_space_is_told_of_what_is_free_on_a_member_that_is_away(
    pool: ServerPool, as_far: None
) -> None:
    pool.servers[2].kill()
    wait_until_away(pool)
    free = r"free of .*, and 32 MiB where it cannot be used now \(server server2 is away since 20"
    with forebay.open("run1/flow", "w", retention="all") as writer:

        def fill() -> None:
            while True:
                with writer.step() as step:
                    step["T"] = np.zeros(1 << 17)

        with pytest.raises(forebay.NoSpaceError, match=free):
            fill()


def test_a_member_that_loses_its_power_takes_only_what_was_not_durable(
    pool: ServerPool, far: dict[str, str], as_far: None
) -> None:
    with Ranks(start_here(far), "run1/flow", durability="durable") as writers:
        for number in range(3):
            assert writers.write(number) == ["done", "done"]
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    with Ranks(start_here(far), "run1/other") as writers:
        for number in range(3):
            assert writers.write(number) == ["done", "done"]
        lose_power(pool, 1)
        pool.tell()
        until(lambda: "are lost with the power of a member" in pool.servers[0].log(), "the home knows what is lost")
        with forebay.open("run1/other") as stream:
            assert numbers(stream) == []
        # The group lives, and goes on.
        written = next(number for number in range(3, 6) if writers.write(number) == ["done", "done"])
        with forebay.open("run1/other", verify="read") as stream:
            assert len(numbers(stream)) == 1
            array = stream[numbers(stream)[0]]["T"][...]
            assert np.array_equal(array[1], block(written, 1))
    with forebay.open("run1/flow", verify="read") as stream:
        assert numbers(stream) == [0, 1, 2]
        for number in range(3):
            check(stream, number)
    assert problems(pool) == []


# crash-matrix: bytes on another member of the reservation | that member's server, while it syncs them, at `server.member.synced` | the step is committed, and durable once the member is back; nothing is durable before
# crash-matrix: bytes on another member of the reservation | that member's server, while it closes a rank's way to them, at `server.member.fenced` | every committed step; the space is free once the member is back, and the group goes on
@pytest.mark.parametrize("point", ["server.member.synced", "server.member.fenced"])
def test_a_member_dies_while_the_home_asks_something_of_it(
    pool: ServerPool, far: dict[str, str], as_far: None, point: str
) -> None:
    pool.servers[1].stop()
    pool.servers[1].start(fail_point=point)
    wait_until_present(pool, 3)
    with Ranks(start_here(far), "run1/flow", retention="last:2") as writers:
        assert writers.write(0) == ["done", "done"]
        # Ends the group, which voids its permits, and has what it wrote synced.
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    assert pool.servers[1].wait() == -9
    if point == "server.member.synced":  # the other does not hold up syncs
        with forebay.open("run1/flow", reconnect_timeout=0) as stream:
            assert not next(iter(stream.steps())).durable
    pool.servers[1].start()
    wait_until_present(pool, 4)
    with Ranks(start_here(far), "run1/flow", retention="last:2", mode="a") as writers:
        for number in range(1, 20):
            assert writers.write(number) == ["done", "done"]
    with forebay.open("run1/flow", verify="read") as stream:
        until(
            lambda: next(step for step in stream.steps() if step.number == 18).durable,
            "what lies on the member is durable",
        )
        check(stream, 18)
        check(stream, 19)
    assert problems(pool) == []


def test_the_home_is_killed_while_ranks_write_and_nothing_is_lost(
    pool: ServerPool, far: dict[str, str], as_far: None
) -> None:
    with Ranks(start_here(far), "run1/flow") as writers:
        assert writers.write(0) == ["done", "done"]
        for number in range(1, 4):
            for rank in writers.ranks:
                rank.begin(number)
            pool.servers[0].kill()
            pool.servers[0].start()
            assert [rank.line() for rank in writers.ranks] == ["done", "done"]
        with forebay.open("run1/flow", verify="read") as stream:
            for number in range(4):
                check(stream, number)
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    assert problems(pool) == []


def test_a_destroyed_reservation_leaves_nothing_on_any_server(
    pool: ServerPool, far: dict[str, str], as_far: None
) -> None:
    with Ranks(start_here(far), "run1/flow") as writers:
        assert writers.write(0) == ["done", "done"]
    pool.destroy("run1", [0, 1, 2])

    def left() -> list[Path]:
        folders = [server.root / folder for server in pool.servers for folder in ("reservations", "quarantine")]
        return [path for folder in folders for path in folder.iterdir()]

    until(lambda: not left(), "nothing of the reservation is left")
    for server in range(3):
        with pool.admin(server) as admin:
            assert admin.server().reserved_bytes == 0
