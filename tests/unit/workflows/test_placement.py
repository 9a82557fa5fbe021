# SPDX-License-Identifier: Apache-2.0
"""On which servers reservations are placed, and that admission holds with several."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import InvalidArgumentError, NoSpaceError
from forebay.workflows.manager.core.pools.admission import Ask, FullError, Holdings, admit
from forebay.workflows.manager.core.pools.placement import Placement, PlacementRequest, ServerSpace, emptied, place
from forebay.workflows.manager.core.pools.pool_settings import PoolSettings, Who
from tests.bench import placement_at_scale

ADA = Who(1001, "ada", frozenset())


@st.composite
def spaces(draw: st.DrawFn, at_most: int = 6) -> list[ServerSpace]:
    """Servers of up to 40 bytes."""
    servers = []
    for number in range(draw(st.integers(1, at_most))):
        capacity = draw(st.integers(0, 40))
        refuses = draw(st.sampled_from(["", "", "", f"server node{number} is drained"]))
        free = draw(st.integers(0, capacity))
        servers.append(ServerSpace(f"node{number}", capacity, free, refuses, draw(st.integers(0, 3))))
    return servers


@st.composite
def requests(draw: st.DrawFn) -> PlacementRequest:
    files = draw(st.integers(0, 30))
    on = tuple(draw(st.lists(st.sampled_from(["node0", "node1", "node2"]), max_size=3)))
    home_on = tuple(draw(st.lists(st.sampled_from(["node0", "node1", "node3"]), max_size=2)))
    most = len(set(on)) or 4
    return PlacementRequest(files + draw(st.integers(0, 60)), files, draw(st.integers(0, most)), on, home_on)


def shares_of(placed: Placement) -> dict[str, int]:
    return {share.server: share.size_bytes for share in placed.shares}


@given(spaces(), requests(), st.integers(1, 7))
def test_shares_are_whole_units_that_are_free_on_as_many_servers_as_were_asked_for(
    servers: list[ServerSpace], request: PlacementRequest, granularity: int
) -> None:
    placed = place(servers, request, granularity)
    if placed is None:
        return
    known = {server.name: server for server in servers}
    shares = shares_of(placed)
    assert len(shares) == len(placed.shares) == request.server_count
    assert all(size % granularity == 0 and 0 < size <= known[name].free_bytes for name, size in shares.items())
    assert not any(known[name].refuses for name in shares)
    assert not request.on or set(shares) <= set(request.on)
    # Not less than was asked for, and a unit more at most, or one for each server.
    assert request.size_bytes <= sum(shares.values())
    units = max(-(-request.size_bytes // granularity), request.server_count, -(-request.files_bytes // granularity))
    assert sum(shares.values()) <= (units + request.server_count) * granularity
    assert shares[placed.home] >= request.files_bytes
    assert not request.home_on or placed.home in request.home_on


@given(spaces(4), requests(), st.integers(1, 7))
def test_a_request_is_refused_only_if_no_choice_of_servers_has_the_room(
    servers: list[ServerSpace], request: PlacementRequest, granularity: int
) -> None:
    placed = place(servers, request, granularity)
    able = [
        (server.free_bytes // granularity, not request.home_on or server.name in request.home_on)
        for server in servers
        if not server.refuses and (not request.on or server.name in request.on)
    ]
    files = -(-request.files_bytes // granularity)
    whole = max(-(-request.size_bytes // granularity), files + request.server_count - (files > 0))
    could = any(
        sum(units for units, _ in chosen) >= whole
        and min(units for units, _ in chosen) >= 1
        and any(may_be_home and units >= files for units, may_be_home in chosen)
        for chosen in itertools.combinations(able, request.server_count)
    )
    assert (placed is not None) == could


@given(spaces(), st.integers(1, 60), st.integers(1, 4), st.integers(1, 7))
def test_streams_are_dealt_out_evenly_but_past_full_servers(
    servers: list[ServerSpace], size: int, count: int, granularity: int
) -> None:
    placed = place(servers, PlacementRequest(size, servers=count), granularity)
    if placed is None:
        return
    free = {server.name: server.free_bytes for server in servers}
    with_room = [size for name, size in shares_of(placed).items() if size + granularity <= free[name]]
    full = [size for name, size in shares_of(placed).items() if size + granularity > free[name]]
    assert not with_room or max(with_room) - min(with_room) <= granularity
    assert not with_room or all(size <= min(with_room) + granularity for size in full)


def test_the_emptiest_servers_are_taken_and_homes_spread() -> None:
    servers = [ServerSpace("a", 10, 7), ServerSpace("b", 10, 9, homes=5), ServerSpace("c", 10, 9, homes=4)]
    placed = place(servers, PlacementRequest(4, servers=2), 1)
    assert placed == Placement("c", placed.shares if placed else ())
    assert placed is not None
    assert shares_of(placed) == {"c": 2, "b": 2}
    one = place(servers, PlacementRequest(8), 1)
    assert one is not None
    assert one.home == "c"


def test_equal_reservations_fill_equal_servers_equally() -> None:
    servers = [ServerSpace(f"node{number}", 100, 100) for number in range(5)]
    homes: Counter[str] = Counter()
    for _ in range(50):
        placed = place(servers, PlacementRequest(10), 10)
        assert placed is not None
        homes[placed.home] += 1
        servers = [
            ServerSpace(one.name, 100, one.free_bytes - shares_of(placed).get(one.name, 0), "", homes[one.name])
            for one in servers
        ]
    assert set(homes.values()) == {10}
    assert place(servers, PlacementRequest(1), 1) is None
    assert place(emptied(servers), PlacementRequest(100), 1) is not None


def admit_on(known: list[ServerSpace], size: int, **more: object) -> Placement:
    settings = PoolSettings()
    request = Ask("", "", size, ADA, **more)  # type: ignore[arg-type]
    return admit(request, settings=settings, holdings=Holdings(settings, []), servers=known, before=[])


def test_admission_says_whether_waiting_helps_and_names_the_server() -> None:
    servers = [ServerSpace("a", 60, 30), ServerSpace("b", 60, 20), ServerSpace("c", 60, 60, "server c is drained")]
    assert admit_on(servers, 30).home == "a"
    assert set(shares_of(admit_on(servers, 50, servers=2))) == {"a", "b"}
    assert admit_on(servers, 10, on=("b",)).home == "b"
    with pytest.raises(FullError, match="no single server has room for that now"):
        admit_on(servers, 40)
    with pytest.raises(FullError, match="none of b has room for that now"):
        admit_on(servers, 21, on=("b",))
    with pytest.raises(FullError, match="server c is drained; try again when it takes some again"):
        admit_on(servers, 10, on=("c",))
    with pytest.raises(FullError, match="server c is drained"):
        admit_on(servers, 30, servers=3)
    for size, told in ((61, "the largest server has 60 B"), (181, "the whole pool default has 180 B")):
        with pytest.raises(NoSpaceError, match=told) as refused:
            admit_on(servers, size)
        assert not isinstance(refused.value, FullError)
    with pytest.raises(InvalidArgumentError, match="there is no server d; there are a, b, c"):
        admit_on(servers, 10, on=("d",))
    with pytest.raises(InvalidArgumentError, match="4 servers are asked for, and there are 3"):
        admit_on(servers, 10, servers=4)


def test_servers_stay_even_while_reservations_come_and_go() -> None:
    outcome = placement_at_scale.run(1, 40, 400)
    assert outcome.refused_ever == 0
    assert outcome.used_most - outcome.used_least < 0.3
    assert outcome.homes_most <= 3 * outcome.homes_mean
