# SPDX-License-Identifier: Apache-2.0
"""Administration from Python: reservations, streams, marks, audits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import forebay
from tests.support.staging_server import StagingServer


@pytest.fixture
def admin(server: StagingServer) -> forebay.Admin:
    return forebay.Admin()


def test_server_tells_its_pool(server: StagingServer, admin: forebay.Admin) -> None:
    info = admin.server()
    assert info.pid == server.pid
    assert info.root == str(server.root) == forebay.instance_root()
    assert info.pool_bytes == forebay.parse_size("1GiB")
    assert info.granularity_bytes > 0
    assert Path(forebay.server_socket()).is_socket()
    json.dumps(info.as_dict())


def test_creating_and_destroying_are_idempotent(admin: forebay.Admin) -> None:
    first = admin.create("twice", "64MiB", persistent=True)
    assert first.lifetime is forebay.Lifetime.PERSISTENT
    assert first.capacity_bytes >= 64 << 20
    assert (first.owner_uid, first.owner_gid) == (os.getuid(), os.getgid())
    assert Path(first.files_path).is_dir()
    assert admin.create("twice", 64 << 20, persistent=True).id == first.id
    with pytest.raises(forebay.AlreadyExistsError) as caught:
        admin.create("twice", "128MiB", persistent=True)
    assert isinstance(caught.value, FileExistsError)
    assert "twice" in [known.name for known in admin.reservations()]
    assert admin.reservation("twice").id == first.id
    json.dumps(first.as_dict())
    admin.destroy("twice")
    admin.destroy("twice")
    with pytest.raises(forebay.NotFoundError):
        admin.reservation("twice")


@pytest.mark.parametrize("name", ["", "1run", "a/b", "x" * 65])
def test_bad_names_are_refused(admin: forebay.Admin, name: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError):
        admin.create(name, "64MiB")


def test_pool_and_account_are_kept_for_the_manager(admin: forebay.Admin) -> None:
    admin.create("counted", "64MiB", pool="fast", account="climate")
    known = admin.reservation("counted")
    assert (known.pool, known.account) == ("fast", "climate")
    admin.destroy("counted")
    for pool, account in (("x" * 65, ""), ("", "x" * 65)):
        with pytest.raises(forebay.InvalidArgumentError, match="64 bytes at most"):
            admin.create("counted", "64MiB", pool=pool, account=account)


def test_pool_is_not_overbooked(admin: forebay.Admin) -> None:
    with pytest.raises(forebay.NoSpaceError):
        admin.create("giant", "2TiB")
    with pytest.raises(forebay.InvalidArgumentError, match="2G"):
        admin.create("giant", "2G")


def test_files_have_a_capacity_of_their_own(admin: forebay.Admin) -> None:
    before = admin.server().reserved_bytes
    info = admin.create("both", "64MiB", files="16MiB")
    assert (info.capacity_bytes, info.files_bytes, info.files_used_bytes) == (64 << 20, 16 << 20, None)
    assert admin.server().reserved_bytes == before + (80 << 20)
    assert admin.create("both", "64MiB", files=16 << 20).id == info.id
    with pytest.raises(forebay.AlreadyExistsError, match="16 MiB for files"):
        admin.create("both", "64MiB", files="17MiB")
    data = Path(info.files_path) / "data"
    data.write_bytes(bytes(1 << 20))
    assert (admin.reservation("both").files_used_bytes or 0) >= 1 << 20
    assert admin.reservation("both", count_files=False).files_used_bytes is None
    admin.create("other", "64MiB", files="16MiB")
    assert {info.files_used_bytes for info in admin.reservations(count_files=False)} == {None}
    [other] = admin.reservations(names=["other", "nobody's"])
    assert (other.name, other.files_used_bytes) == ("other", 0)
    assert admin.reservations(names=[]) == []
    many = [f"none{number}" for number in range(5000)]  # more than one request carries
    assert [info.name for info in admin.reservations(names=[*many, "other"])] == ["other"]
    admin.destroy("other")
    assert admin.audit() == []
    data.write_bytes(bytes(17 << 20))
    [finding] = admin.audit()
    assert finding.severity is forebay.Severity.PROBLEM
    assert "16 MiB were granted for files" in finding.what
    data.unlink()
    assert admin.audit() == []
    admin.destroy("both")
    assert admin.server().reserved_bytes == before


def test_files_without_a_capacity_are_noted(admin: forebay.Admin) -> None:
    info = admin.create("streams", "64MiB")
    (Path(info.files_path) / "data").write_bytes(bytes(1 << 20))
    [finding] = admin.audit()
    assert finding.severity is forebay.Severity.NOTE
    assert "no capacity was granted for files" in finding.what
    admin.destroy("streams")


def test_a_reservation_may_be_of_files_only(server: StagingServer, admin: forebay.Admin) -> None:
    info = admin.create("inputs", 0, files="8MiB", persistent=True)
    assert (info.capacity_bytes, info.files_bytes, info.used_bytes) == (0, 8 << 20, 0)
    with pytest.raises(forebay.NoSpaceError, match="no capacity for streams"):
        forebay.open("inputs/flow", mode="w")
    (Path(info.files_path) / "mesh").write_bytes(b"mesh")
    server.kill()
    server.start()
    with forebay.Admin(reconnect_timeout=30) as later:
        assert later.reservation("inputs").files_bytes == 8 << 20
        assert later.audit(read_data=True) == []
        later.destroy("inputs")


def test_capacities_that_overflow_or_are_none_are_refused(admin: forebay.Admin) -> None:
    for capacity, files in ((0, 0), ("64MiB", 2**63 - 1), (2**63 - 1, 2**63 - 1), (1, "1MiB")):
        with pytest.raises(forebay.InvalidArgumentError):
            admin.create("giant", capacity, files=files)
    with pytest.raises(forebay.NoSpaceError):
        admin.create("giant", "64MiB", files="2TiB")


def test_streams_steps_and_marks(admin: forebay.Admin, reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w", durability="durable", retention="precious:2") as stream:
        for number in range(4):
            with stream.step() as step:
                step["n"] = number
    assert [summary.precious for summary in admin.steps(address)] == [True, False, True, False]
    [info] = admin.streams(reservation)
    assert info == admin.stream(forebay.Address.parse(address))
    assert (info.status, info.committed, info.steps) == ("ended", 3, 4)
    with pytest.raises(forebay.RefusedError):
        admin.remove_stream(address)
    admin.mark_staged(address, info.epoch, [0, 2], "receipt.json")
    assert [summary.staged for summary in admin.steps(address)] == [True, False, True, False]
    assert not any(summary.precious for summary in admin.steps(address))
    assert admin.stream(address).staged == 2
    admin.set_precious(address, [3])
    assert admin.steps(address)[3].precious
    admin.set_precious(address, [3], False)
    admin.set_retention(address, "last:1")
    assert admin.stream(address).retention == forebay.Retention(last=1)
    admin.remove_stream(address)
    assert admin.streams(reservation) == []


def test_single_steps_are_dropped_unless_somebody_needs_one(admin: forebay.Admin, reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w", retention="precious:4") as writer:
        for number in range(6):
            writer.write("n", number)

    def kept() -> list[int]:
        return [summary.number for summary in admin.steps(address)]

    admin.drop_steps(address, [1, 2])
    assert kept() == [0, 3, 4, 5]
    admin.drop_steps(address, [2, 2, 3])  # again, as after an answer that was lost
    assert kept() == [0, 4, 5]
    for step, why in ((0, "precious"), (4, "precious")):
        with pytest.raises(forebay.RefusedError, match=why):
            admin.drop_steps(address, [5, step])
    with forebay.open(address) as stream, stream[5], pytest.raises(forebay.RefusedError, match="holds it"):
        admin.drop_steps(address, [5])
    with forebay.open(address) as stream, stream.follow("render", ack="manual") as follower:
        follower.ack(next(follower))
    with pytest.raises(forebay.RefusedError, match="consumer render has not passed it"):
        admin.drop_steps(address, [5])
    with pytest.raises(forebay.NotFoundError, match="no such step yet"):
        admin.drop_steps(address, [6])
    assert kept() == [0, 4, 5]
    admin.remove_consumer(address, "render")
    admin.drop_steps(address, [5])
    assert kept() == [0, 4]
    assert [finding.what for finding in admin.audit(read_data=True)] == []


def test_consumer_is_forgotten(admin: forebay.Admin, reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step["n"] = 1
    assert [int(step["n"]) for step in forebay.open(address).follow("render")] == [1]
    assert [consumer.name for consumer in admin.stream(address).consumers] == ["render"]
    admin.remove_consumer(address, "render")
    assert admin.stream(address).consumers == ()


def test_audit_of_a_healthy_instance_finds_no_problem(admin: forebay.Admin, reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream, stream.step() as step:
        step["n"] = 1
    assert [finding for finding in admin.audit(read_data=True) if finding.severity == "problem"] == []


def test_connection_that_is_closed_says_so(server: StagingServer) -> None:
    with forebay.Admin() as admin:
        admin.server()
    with pytest.raises(forebay.InvalidArgumentError, match="closed"):
        admin.server()


def test_no_server_is_told_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_ROOT", str(tmp_path))
    monkeypatch.delenv("FOREBAY_SOCKET", raising=False)
    with pytest.raises(forebay.ForebayError, match="forebay up"):
        forebay.Admin()


def test_streams_are_all_told_however_many_consumers_they_have(reservation: str) -> None:
    """The server tells some thousand streams and consumers at once, and is asked again."""
    names = [f"s{number}" for number in range(5)]
    for name in names:
        with forebay.open(f"{reservation}/{name}", mode="w") as written, written.step() as step:
            step["a"] = 1
        with forebay.open(f"{reservation}/{name}") as stream:
            for number in range(1024 if name != "s4" else 1):
                stream.follow(f"c{number}").close()
    with forebay.Admin() as admin:
        told = admin.streams(reservation)
    assert [info.name for info in told] == names
    assert [len(info.consumers) for info in told] == [1024, 1024, 1024, 1024, 1]
