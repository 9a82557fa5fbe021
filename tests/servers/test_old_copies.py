# SPDX-License-Identifier: Apache-2.0
"""Servers whose roots are restored from an old copy: what is lost, what is told, and what nobody ever reads as new."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from tests.servers.ranks import Ranks, check, numbers, start_here
from tests.servers.three_servers import be_far, problems, three_servers, wait_until_away, wait_until_present
from tests.support.load import until
from tests.support.server_pool import ServerPool
from tests.support.time_limits import seconds

pytestmark = [pytest.mark.timeout(90)]


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ServerPool]:
    with three_servers(tmp_path) as made:
        yield made


@pytest.fixture
def far(pool: ServerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of programs on another node than all servers, of which this process is one."""
    return be_far(pool, tmp_path, monkeypatch)


def copy_of(pool: ServerPool, server: int) -> Path:
    """A copy of its root as it is now."""
    root = pool.servers[server].root
    copy = root.with_name(f"{root.name}.copy")
    subprocess.run(["cp", "-a", root, copy], check=True)
    return copy


def put_back(pool: ServerPool, server: int, copy: Path) -> None:
    """The server dies, and is started again with that copy."""
    pool.servers[server].kill()
    shutil.rmtree(pool.servers[server].root)
    copy.rename(pool.servers[server].root)


def start_again(pool: ServerPool, server: int) -> None:
    pool.servers[server].start()
    pool.tell()


def write(far: dict[str, str], steps: range, **options: Any) -> None:
    """Durable steps."""
    with Ranks(start_here(far), "run1/flow", durability="durable", **options) as writers:
        for number in steps:
            assert writers.write(number) == ["done", "done"]
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]


def counters(pool: ServerPool, server: int) -> list[int]:
    """What is stored of syncs in the reservation's folder."""
    (path,) = (pool.servers[server].root / "reservations").glob("*/syncs")
    return [int(line.split()[0]) for line in path.read_text().splitlines()]


def home_says(pool: ServerPool, words: str, times: int = 1) -> None:
    until(lambda: pool.servers[0].log().count(words) >= times, words)


def stopped_at_next_sync(pool: ServerPool, far: dict[str, str]) -> Path:
    """Server 1 stops when it has synced the next step, and has not answered: a copy of its root that lacks step 1."""
    write(far, range(1))
    old = copy_of(pool, 1)
    write(far, range(1, 2), mode="a")
    pool.servers[1].stop()
    pool.servers[1].start(fail_point="server.member.synced=stop")
    pool.tell()
    home_says(pool, "member 1 (server1) is there", 2)
    return old


# crash-matrix: bytes on another member of the reservation | that member's server is killed, and its root restored from an old copy; the home may be killed, too | every step that is what it was, compared by checksum before anything is served; the others are lost, and nobody reads them
@pytest.mark.parametrize("home_dies", [False, True], ids=["home lives", "home dies"])
def test_a_member_restored_from_an_old_copy_loses_what_it_lacks_and_nothing_else(
    pool: ServerPool, far: dict[str, str], home_dies: bool
) -> None:
    write(far, range(2))
    old = copy_of(pool, 1)
    write(far, range(2, 4), mode="a")
    newest = counters(pool, 0)[1]
    put_back(pool, 1, old)
    if home_dies:
        pool.servers[0].kill()
        pool.servers[0].start()
    start_again(pool, 1)
    home_says(pool, "of 4 steps that have a part in its older copy, 2 are not what they were")
    home_says(pool, "member 1 (server1) is there", 2)
    with forebay.open("run1/flow", verify="read") as stream:
        assert numbers(stream) == [0, 1]
        check(stream, 0)
        check(stream, 1)
    assert pool.servers[0].log().count("is lost: ") == 2
    assert counters(pool, 1)[0] > newest
    # What comes next is written there again, and the copy counts as current from now on.
    write(far, range(4, 6), mode="a")
    pool.servers[1].kill()
    start_again(pool, 1)
    home_says(pool, "member 1 (server1) is there", 3)
    with forebay.open("run1/flow", verify="read") as stream:
        assert [step.number for step in stream.steps()] == [0, 1, 4, 5]
        assert np.array_equal(stream[5]["small"][1], np.arange(8.0) + 6)
    assert pool.servers[0].log().count("has an older copy") == 1
    assert problems(pool) == []


# crash-matrix: bytes on another member of the reservation | the home, with the sync in its journal, but not yet in its file of counters, at `server.counters.before_store`; the member's root is restored from before that sync | every step that is what it was; the others are lost, and nobody reads them
def test_what_only_the_journal_knows_of_a_sync_tells_an_old_copy(pool: ServerPool, far: dict[str, str]) -> None:
    write(far, range(1))
    until(lambda: counters(pool, 0)[1] == counters(pool, 1)[0], "the home's file of counters")
    old = copy_of(pool, 1)
    pool.servers[0].stop()
    pool.servers[0].start(fail_point="server.counters.before_store")
    wait_until_present(pool, 4)
    with Ranks(start_here(far), "run1/flow", durability="durable", mode="a") as writers:
        for rank in writers.ranks:
            rank.begin(1)
        assert pool.servers[0].wait() == -9
        before = counters(pool, 0)[1]
        put_back(pool, 1, old)
        assert counters(pool, 1)[0] == before
        pool.servers[0].start()
        start_again(pool, 1)
        home_says(pool, "of 2 steps that have a part in its older copy, 1 are not what they were")
        home_says(pool, "is lost: ")
    with forebay.open("run1/flow", verify="read") as stream:
        assert numbers(stream) == [0]
        check(stream, 0)


# crash-matrix: bytes on another member of the reservation | the home, once the other members have answered a sync, at `server.flush.before_journal_sync`, `server.counters.before_store`, `server.counters.stored` | every committed step; nobody is taken for an old copy, and the step becomes durable
@pytest.mark.parametrize(
    "point", ["server.flush.before_journal_sync", "server.counters.before_store", "server.counters.stored"]
)
def test_a_home_that_dies_after_the_answers_to_a_sync_takes_nobody_for_an_old_copy(
    pool: ServerPool, far: dict[str, str], point: str
) -> None:
    pool.servers[0].stop()
    pool.servers[0].start(fail_point=point)
    wait_until_present(pool, 4)
    with Ranks(start_here(far), "run1/flow", durability="durable") as writers:
        for rank in writers.ranks:
            rank.begin(0)
        assert pool.servers[0].wait() == -9
        pool.servers[0].start()
        assert [rank.line() for rank in writers.ranks] == ["done", "done"]
        assert [rank.end() for rank in writers.ranks] == ["closed", "closed"]
    until(lambda: counters(pool, 0)[1] == counters(pool, 1)[0], "the home's file of counters")
    assert "older copy" not in pool.servers[0].log()
    with forebay.open("run1/flow", verify="read") as stream:
        check(stream, 0)
    assert problems(pool) == []


# crash-matrix: bytes on another member of the reservation | that member's server is killed, and its root restored from an old copy, while a reader holds a step that the copy lacks; the home may be killed, too, also after the record, at `server.lose.after_append` | the member is back, nobody is given the step, and who holds it is told that it is gone
@pytest.mark.parametrize("home_dies", ["", "when the step is lost", "later"])
def test_who_holds_a_step_that_an_old_copy_lacks_holds_up_nobody(
    pool: ServerPool, far: dict[str, str], home_dies: str
) -> None:
    write(far, range(1))
    old = copy_of(pool, 1)
    write(far, range(1, 2), mode="a")
    if home_dies == "when the step is lost":
        pool.servers[0].stop()
        pool.servers[0].start(fail_point="server.lose.after_append")
        wait_until_present(pool, 4)
    with forebay.open("run1/flow") as holder:
        held = holder[1]
        assert np.array_equal(held["small"][0], np.arange(8.0) + 1)
        put_back(pool, 1, old)
        start_again(pool, 1)
        if home_dies == "when the step is lost":
            assert pool.servers[0].wait() == -9
        else:
            home_says(pool, "step 1 is lost: ")
            home_says(pool, "member 1 (server1) is there", 2)
        if home_dies:
            pool.servers[0].kill()
            pool.servers[0].start()
            pool.tell()
            # Each member once at the first start, server 1 unless the home died first, and both again.
            wait_until_present(pool, 6 if home_dies == "when the step is lost" else 5)
            home_says(pool, "member 1 (server1) is there", 2)
        with pytest.raises(forebay.StepGoneError, match=r"step 1 is lost: |the step was dropped"):
            held["T"][...]
        with forebay.open("run1/flow", verify="read") as stream:
            assert numbers(stream) == [0]
            check(stream, 0)
            with pytest.raises(forebay.StepGoneError):
                stream[1]
        assert problems(pool) == []
        del held
    assert problems(pool) == []


def test_a_writer_that_waits_for_a_lost_step_is_told_although_a_follower_holds_it(
    pool: ServerPool, far: dict[str, str]
) -> None:
    old = stopped_at_next_sync(pool, far)
    with (
        forebay.open("run1/flow") as holder,
        Ranks(start_here(far), "run1/flow", durability="durable", mode="a") as writers,
    ):
        follower = holder.follow(start=2, timeout=seconds(60))
        for rank in writers.ranks:
            rank.begin(2)
        # Committed, and not durable without the answer of server 1.
        held = next(follower)
        assert held.number == 2
        put_back(pool, 1, old)
        start_again(pool, 1)
        for rank in writers.ranks:
            assert "has an older copy, without steps that were to be durable" in rank.line()
        home_says(pool, "member 1 (server1) is there", 3)
        write(far, range(3, 5), mode="a")
        assert next(follower).number == 3
        with pytest.raises(forebay.StepGoneError, match="step 2 is lost: "):
            held["T"][...]
    assert problems(pool) == []


# crash-matrix: bytes on another member of the reservation | the home while a step waits for that member's sync, then the member, whose root is restored from an old copy; the writers come back when the step is lost already | the writers are told that it is not durable
def test_writers_that_come_back_after_their_step_was_lost_are_told(pool: ServerPool, far: dict[str, str]) -> None:
    old = stopped_at_next_sync(pool, far)
    with Ranks(start_here(far), "run1/flow", durability="durable", mode="a") as writers:
        for rank in writers.ranks:
            rank.begin(2)
        with pool.admin(0) as admin:
            until(lambda: admin.stream("run1/flow").committed == 2, "the step is committed")
        for rank in writers.ranks:
            rank.send(signal.SIGSTOP)
        pool.servers[0].kill()
        put_back(pool, 1, old)
        pool.servers[0].start()
        start_again(pool, 1)
        home_says(pool, "step 2 is lost: ")
        home_says(pool, "member 1 (server1) is there", 3)
        for rank in writers.ranks:
            rank.send(signal.SIGCONT)
        for rank in writers.ranks:
            assert "has an older copy, without steps that were to be durable" in rank.line()
    assert problems(pool) == []


def test_while_its_old_copy_is_checked_a_member_serves_nothing(pool: ServerPool, far: dict[str, str]) -> None:
    write(far, range(1))
    old = copy_of(pool, 1)
    with forebay.open("run1/flow", "a", durability="durable") as writer, writer.step() as step:
        step["spread"] = np.arange(12.0 * (1 << 17))  # 12 MiB: a share of it lies on each server
    pool.servers[2].kill()
    wait_until_away(pool)
    put_back(pool, 1, old)
    start_again(pool, 1)
    home_says(pool, "member 1 stays unavailable: server server2 is away since")
    with (
        forebay.open("run1/flow", reconnect_timeout=0) as stream,
        pytest.raises(forebay.UnavailableError, match="server1 has an older copy of its segments"),
    ):
        stream[0]["T"][...]
    with pool.admin(0) as admin:
        assert any("server1 has an older copy of its segments" in found.what for found in admin.audit())
    start_again(pool, 2)
    home_says(pool, "member 1 (server1) is there", 2)
    with forebay.open("run1/flow", verify="read") as stream:
        assert numbers(stream) == [0]
        check(stream, 0)
    assert problems(pool) == []


def test_steps_without_checksums_are_lost_with_an_old_copy(pool: ServerPool, far: dict[str, str]) -> None:
    write(far, range(1), checksums=False)
    old = copy_of(pool, 1)
    write(far, range(1, 2), mode="a")
    put_back(pool, 1, old)
    start_again(pool, 1)
    home_says(pool, "step 0 is lost: a block has no checksum, so nobody knows whether it is what it was")
    home_says(pool, "member 1 (server1) is there", 2)
    with forebay.open("run1/flow") as stream:
        assert numbers(stream) == []


def test_two_members_restored_from_old_copies_are_checked_together(pool: ServerPool, far: dict[str, str]) -> None:
    write(far, range(2))
    old = [copy_of(pool, 1), copy_of(pool, 2)]
    write(far, range(2, 3), mode="a")
    put_back(pool, 1, old[0])
    put_back(pool, 2, old[1])
    start_again(pool, 1)
    start_again(pool, 2)
    home_says(pool, "is there", 4)
    with forebay.open("run1/flow", verify="read") as stream:
        assert numbers(stream) == [0, 1]
        check(stream, 0)
        check(stream, 1)
    assert problems(pool) == []


def test_blocks_that_lie_on_two_members_are_compared_when_both_are_there(pool: ServerPool, far: dict[str, str]) -> None:
    block = np.arange(12.0 * (1 << 17))  # 12 MiB: a share of it lies on each server
    with forebay.open("run1/flow", "w", durability="durable") as writer, writer.step() as step:
        step["T"] = block
    old = copy_of(pool, 1)
    with forebay.open("run1/flow", "a", durability="durable") as writer, writer.step() as step:
        step["T"] = block + 1
    pool.servers[2].kill()
    wait_until_away(pool)
    put_back(pool, 1, old)
    start_again(pool, 1)
    home_says(pool, "member 1 stays unavailable: server server2 is away since")
    with (
        forebay.open("run1/flow", reconnect_timeout=0) as stream,
        pytest.raises(forebay.UnavailableError),
    ):
        stream[0]["T"][...]
    start_again(pool, 2)
    home_says(pool, "step 1 is lost: ")
    wait_until_present(pool, 4)
    with forebay.open("run1/flow", verify="read") as stream:
        assert numbers(stream) == [0]
        assert np.array_equal(stream[0]["T"][...], block)
    assert problems(pool) == []


def test_a_home_that_cannot_read_what_it_has_stored_has_everything_checked(
    pool: ServerPool, far: dict[str, str]
) -> None:
    write(far, range(2))
    pool.servers[0].kill()
    (path,) = (pool.servers[0].root / "reservations").glob("*/syncs")
    path.write_text("not what was stored")
    pool.servers[0].start()
    pool.tell()
    wait_until_present(pool, 4)
    assert pool.servers[0].log().count("in its older copy, 0 are not what they were") == 2
    with forebay.open("run1/flow", verify="read") as stream:
        check(stream, 0)
        check(stream, 1)
    assert problems(pool) == []


# crash-matrix: bytes on another member of the reservation | the home is killed, and its root restored from an old copy | the reservation serves nothing and says why; what lies on other members stays
def test_a_home_restored_from_an_old_copy_serves_nothing_and_says_so(pool: ServerPool, far: dict[str, str]) -> None:
    write(far, range(1))
    old = copy_of(pool, 0)
    write(far, range(1, 3), mode="a")
    until(lambda: counters(pool, 1)[1] == counters(pool, 0)[1], "the member knows what its home has stored")
    put_back(pool, 0, old)
    start_again(pool, 0)
    home_says(pool, "reservation run1: it serves nothing")
    with pytest.raises(forebay.ForebayError, match="this server, its home, has an older copy of it"):
        forebay.open("run1/flow", reconnect_timeout=0, timeout=0)
    with pytest.raises(forebay.ForebayError, match="has an older copy of it"):
        forebay.open("run1/flow", mode="a")
    with pool.admin(0) as admin:
        assert "it serves nothing" in admin.reservation("run1").trouble
        with pytest.raises(forebay.ForebayError, match="it serves nothing"):
            admin.streams("run1")
        told = [finding for finding in admin.audit() if "it serves nothing" in finding.what]
        assert [(finding.severity, finding.where) for finding in told] == [("problem", "reservation run1")]
    environment = {name: value for name, value in far.items() if name not in ("FOREBAY_SERVER", "FOREBAY_TOKEN_FILE")}
    shown = subprocess.run(
        ["forebay", "show", "run1"],
        env=environment | {"FOREBAY_TRANSPORT": "auto", "FOREBAY_ROOT": str(pool.servers[0].root)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "this server, its home, has an older copy" in " ".join(shown.stdout.split())
    # The newer copy is all that helps, or the reservation's end.
    pool.destroy("run1", [0, 1, 2])


def test_an_audit_reads_what_lies_on_other_members(pool: ServerPool, far: dict[str, str]) -> None:
    write(far, range(3))
    assert problems(pool) == []
    paths = (pool.servers[1].root / "reservations").glob("*/segments/*")
    path = next(path for path in sorted(paths) if any(path.read_bytes()))
    with path.open("r+b") as segment:
        bytes_there = bytearray(segment.read(4096))
        bytes_there[1000] ^= 1
        segment.seek(0)
        segment.write(bytes_there)
    (found,) = problems(pool)
    assert "checksum mismatch" in found
    assert "variable T" in found
    pool.servers[2].kill()
    wait_until_away(pool)
    with pool.admin(0) as admin:
        notes = [finding.what for finding in admin.audit(read_data=True) if "was not read" in finding.what]
    assert len(notes) == 1
    assert notes[0].startswith("what member 2 has of 3 steps was not read: server server2 is away since")
