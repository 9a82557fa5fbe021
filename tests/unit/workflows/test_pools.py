# SPDX-License-Identifier: Apache-2.0
"""The rules of pools, quotas and the queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import InvalidArgumentError, NoSpaceError, PermissionDeniedError
from forebay.manager.records import QueueRow, ReservationRow
from forebay.workflows.manager.core.database.database import Database, Held
from forebay.workflows.manager.core.database.queue_table import QueueTable
from forebay.workflows.manager.core.pools.admission import Ask, FullError, Holdings, admit, estimated_end_ns
from forebay.workflows.manager.core.pools.placement import ServerSpace
from forebay.workflows.manager.core.pools.pool_settings import PoolSettings, Who
from tests.support.manager_database import new_database

ADA, BEN = Who(1001, "ada", frozenset({"climate"})), Who(1002, "ben", frozenset({"guests"}))
TABLES: dict[str, Any] = {
    "pools": {
        "default": {"user_quota": "60B"},
        "fast": {
            "capacity": "40B",
            "granularity": "10B",
            "allow_groups": ["climate"],
            "user_quota": "30B",
            "user_quotas": {"ada": "40B"},
        },
    },
    "accounts": {"weather": {"groups": ["climate"], "quota": "50B"}},
}
SETTINGS = PoolSettings.from_configuration(TABLES, Path("forebay.toml"))


def held(size_bytes: int, *, pool: str = "", account: str = "", uid: int = 1001) -> ReservationRow:
    return ReservationRow("held", size_bytes, False, owner_uid=uid, owner_gid=1, pool=pool, account=account)


def waiting(size_bytes: int, *, pool: str = "", uid: int = 1002) -> QueueRow:
    return QueueRow(1, "waiting", pool, "", size_bytes, uid, 0, 0, 0)


def try_to_admit(
    size_bytes: int,
    *rows: ReservationRow,
    pool: str = "",
    account: str = "",
    who: Who = ADA,
    before: tuple[QueueRow, ...] = (),
    server_bytes: int = 100,
) -> None:
    admit(
        Ask(pool, account, size_bytes, who),
        settings=SETTINGS,
        holdings=Holdings(SETTINGS, [Held(row.pool, row.account, row.owner_uid, row.capacity_bytes) for row in rows]),
        servers=[ServerSpace("node1", server_bytes, server_bytes - sum(row.capacity_bytes for row in rows))],
        before=before,
    )


def test_the_default_pool_has_what_the_others_leave() -> None:
    assert SETTINGS.capacity_bytes("", 100) == 60
    try_to_admit(60)
    with pytest.raises(NoSpaceError, match="the whole pool default has 60 B") as refused:
        try_to_admit(61)
    assert not isinstance(refused.value, FullError)


def test_a_driver_that_no_job_can_use_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no job can use juicefs yet"):
        PoolSettings.from_configuration({"pools": {"default": {"files_driver": "juicefs"}}}, Path("forebay.toml"))
    with pytest.raises(InvalidArgumentError, match="must be one of"):
        PoolSettings.from_configuration({"pools": {"default": {"files_driver": "gluster"}}}, Path("forebay.toml"))


def test_a_pool_counts_in_units_of_its_granularity() -> None:
    try_to_admit(10, held(21, pool="fast"), pool="fast")
    with pytest.raises(FullError, match="pool fast has 10 B of 40 B free"):
        try_to_admit(11, held(21, pool="fast", uid=7), pool="fast")


def test_a_pool_is_open_to_those_on_its_lists() -> None:
    with pytest.raises(PermissionDeniedError, match="pool fast is not open to user ben"):
        try_to_admit(10, pool="fast", who=BEN)
    with pytest.raises(InvalidArgumentError, match="there is no pool slow; there are default, fast"):
        try_to_admit(10, pool="slow")


def test_quotas_of_users_and_accounts_hold() -> None:
    try_to_admit(30, held(30))
    with pytest.raises(FullError, match="the quota of user ada in pool default is 60 B, of which 40 B are held"):
        try_to_admit(30, held(40))
    with pytest.raises(FullError, match="quota of account weather is 50 B"):
        try_to_admit(10, held(45, pool="", account="weather", uid=7), account="weather")
    with pytest.raises(NoSpaceError, match="ask for less") as refused:
        try_to_admit(55, account="weather")
    assert not isinstance(refused.value, FullError)


def test_whoever_came_first_gets_space_first() -> None:
    with pytest.raises(FullError, match="1 came before") as refused:
        try_to_admit(10, before=(waiting(50),))
    assert refused.value.ahead == 1
    # Not those of another pool, nor who waits for a quota of their own.
    try_to_admit(10, before=(waiting(30, pool="fast"),))
    try_to_admit(10, held(30, uid=1002), before=(waiting(50),))


def test_what_is_not_configured_is_refused() -> None:
    for tables, told in (
        ({"pools": {"fast": {}}}, "needs a capacity"),
        ({"pools": {"fast": {"capacity": "2 parsecs"}}}, "unknown unit"),
        ({"pools": {"fast": {"kapacity": "1B"}}}, "has no setting kapacity"),
        ({"pools": {"fast": {"capacity": "1B", "allow_users": [7]}}}, "names in quotes"),
        ({"accounts": {"weather": {"quota": 5}}}, "must be of type str"),
        ({"pools": "fast"}, "has no tables"),
    ):
        with pytest.raises(InvalidArgumentError, match=told):
            PoolSettings.from_configuration(tables, Path("forebay.toml"))


@given(st.lists(st.tuples(st.integers(1, 60), st.sampled_from(["", "fast"]), st.sampled_from([ADA, BEN])), max_size=30))
def test_no_byte_is_granted_twice(requests: list[tuple[int, str, Who]]) -> None:
    rows: list[ReservationRow] = []
    for size, pool, who in requests:
        try:
            try_to_admit(size, *rows, pool=pool, who=who)
        except (NoSpaceError, PermissionDeniedError):
            continue
        rows.append(held(size, pool=pool, uid=who.uid))
    assert sum(row.capacity_bytes for row in rows if row.pool == "") <= 60
    assert sum(-(-row.capacity_bytes // 10) * 10 for row in rows if row.pool == "fast") <= 40
    assert sum(row.capacity_bytes for row in rows) <= 100


@pytest.mark.parametrize(("missing", "end"), [(0, 5), (10, 5), (11, 7), (30, 7), (31, None)])
def test_the_estimate_is_when_enough_has_ended(missing: int, end: int | None) -> None:
    assert estimated_end_ns(missing, [(7, 20), (5, 10)]) == end


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueTable]:
    database = Database(new_database(tmp_path / "manager.sqlite"))
    yield QueueTable(database)
    database.close()


def request(name: str, size_bytes: int = 10, uid: int = 1001) -> ReservationRow:
    return ReservationRow(name, size_bytes, False, owner_uid=uid, owner_gid=1)


def test_a_place_is_kept_by_asking_again_and_lost_by_silence(
    queue: QueueTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.enter(request("first"))
    queue.enter(request("second"))
    queue.enter(request("first"))
    assert [(row.name, row.ahead) for row in queue.all()] == [("first", 0), ("second", 1)]
    # Who wants more goes to the end.
    queue.enter(request("first", 20))
    assert [row.name for row in queue.all()] == ["second", "first"]
    with pytest.raises(PermissionDeniedError):
        queue.enter(request("first", uid=1002))
    assert not queue.leave("first", 1002)
    assert queue.leave("first", 1001)
    queue.forget_silent()
    assert [row.name for row in queue.all()] == ["second"]
    monkeypatch.setattr("forebay.workflows.manager.core.database.queue_table.SEEN_SECONDS_MAX", -1.0)
    queue.forget_silent()
    assert queue.all() == []


def test_one_users_requests_leave_places_in_the_queue_for_others(
    queue: QueueTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.workflows.manager.core.database.queue_table._OF_ONE_USER_MAX", 3)
    for number in range(3):
        queue.enter(request(f"r{number}"))
    with pytest.raises(NoSpaceError, match="3 reservations of user 1001 wait for space already"):
        queue.enter(request("r3"))
    # It keeps the places that it has, and others come in.
    queue.enter(request("r1"))
    queue.enter(request("others", uid=1002))
    for number in range(5):
        queue.enter(request(f"roots{number}", uid=0))
    queue.leave("r0")
    queue.enter(request("r3"))
    assert queue.all()[-1].owner_uid == 1001
