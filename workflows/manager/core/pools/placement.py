# SPDX-License-Identifier: Apache-2.0
"""On which servers a reservation lies: a function of the servers and the request, without clock or I/O.

The emptiest servers are taken, one of which can be the home, and units are dealt out to them round robin. If any choice
of servers has the room, so has this one: the emptiest have the most together, and the emptiest of those that can be the
home has the most room for files.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

__all__ = ["Placement", "PlacementRequest", "Reach", "ServerSpace", "Share", "dealt_bytes", "emptied", "place"]


@dataclass(frozen=True, slots=True)
class ServerSpace:
    """A staging server, as placement sees it."""

    name: str
    capacity_bytes: int
    free_bytes: int
    refuses: str = ""  #: why it takes nothing new, for people: it is drained, away; "": it takes something
    homes: int = 0  #: how many reservations have their home there
    reservations: int = 0  #: how many have something there, homes too
    is_away: bool = False
    is_retired: bool = False  #: it will never take anything again: it leaves the pool


@dataclass(frozen=True, slots=True)
class Reach:
    """Where something may lie, whatever is free there."""

    on: tuple[str, ...] = ()  #: only on these servers; empty: on any
    home_on: tuple[str, ...] = ()  #: its files and its journal only on one of these; empty: on any
    without: Mapping[str, str] = field(default_factory=dict)  #: servers that cannot have it now, and why, for people

    def of(self, servers: Iterable[ServerSpace]) -> list[ServerSpace]:
        """The same servers: those refuse, too, that cannot have it now."""
        return [replace(server, refuses=server.refuses or self.without.get(server.name, "")) for server in servers]

    def allows(self, server: str) -> bool:
        """It may have its home there, now or later."""
        return (not self.on or server in self.on) and (not self.home_on or server in self.home_on)


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What is to be placed."""

    size_bytes: int  #: for streams and files together
    files_bytes: int = 0  #: of these, what has to lie on one server, the home
    servers: int = 0  #: on how many; 0: as many as `on` names, else one
    on: tuple[str, ...] = ()  #: only on these; empty: on any
    home_on: tuple[str, ...] = ()  #: the home only on one of these; empty: on any
    share_bytes_min: int = 0  #: for streams, from each of several servers; 0: a unit from each, for streams or files

    @property
    def server_count(self) -> int:
        """On how many servers it is to lie."""
        return self.servers or len(set(self.on)) or 1


@dataclass(frozen=True, slots=True)
class Share:
    """What one server gives."""

    server: str
    size_bytes: int  #: a multiple of the granularity
    files_bytes: int = 0  #: of these, on the home, what files/ takes


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a reservation is to lie."""

    home: str  #: has its journal and its files
    shares: tuple[Share, ...]  #: the emptiest server first; the home is one of them


def emptied(servers: Iterable[ServerSpace]) -> list[ServerSpace]:
    """The servers as they would be if nothing lay there and all of them took something."""
    return [replace(server, free_bytes=server.capacity_bytes, refuses="", homes=0) for server in servers]


def dealt_bytes(request: PlacementRequest, granularity_bytes: int) -> int:
    """What its servers give together for streams: whole units, and the least from each."""
    return _dealt_units(request, granularity_bytes) * granularity_bytes


def _dealt_units(request: PlacementRequest, granularity_bytes: int) -> int:
    count = request.server_count
    files_units = -(-request.files_bytes // granularity_bytes)
    whole_units = -(-request.size_bytes // granularity_bytes)
    least = _least_units(request, granularity_bytes)
    return max(whole_units - files_units, count * least if least else count - (files_units > 0))


def _least_units(request: PlacementRequest, granularity_bytes: int) -> int:
    """What each server gives for streams at least."""
    return -(-request.share_bytes_min // granularity_bytes) if request.server_count > 1 else 0


def place(servers: Iterable[ServerSpace], request: PlacementRequest, granularity_bytes: int) -> Placement | None:
    """Where to make it; None if there is no room.

    Every chosen server gives at least one unit, so more servers may take more space than was asked for. Their shares
    differ by one unit at most, unless one of them is full or has the files, too.

    Parameters
    ----------
    granularity_bytes : int
        The unit of the shares.
    """
    count = request.server_count
    allowed = set(request.on)
    least = _least_units(request, granularity_bytes)
    free_bytes_min = max(1, least) * granularity_bytes
    candidates = [
        server
        for server in servers
        if not server.refuses and server.free_bytes >= free_bytes_min and (not allowed or server.name in allowed)
    ]
    if len(candidates) < count:
        return None
    can_be_home = {server.name for server in candidates if not request.home_on or server.name in request.home_on}
    if not can_be_home:
        return None
    chosen = heapq.nsmallest(count, candidates, key=_emptiest_first)
    if not any(server.name in can_be_home for server in chosen):
        chosen[-1] = min((server for server in candidates if server.name in can_be_home), key=_emptiest_first)
    files_units = -(-request.files_bytes // granularity_bytes)
    dealt_units = _dealt_units(request, granularity_bytes)
    free = [server.free_bytes // granularity_bytes for server in chosen]
    if sum(free) < files_units + dealt_units:
        return None
    homes = [
        number
        for number, server in enumerate(chosen)
        if server.name in can_be_home and free[number] >= max(1, files_units + least)
    ]
    if not homes:
        return None
    home = min(homes, key=lambda number: (chosen[number].homes, number))
    given = [least] * count
    given[home] += files_units
    _deal(given, free, dealt_units - count * least)
    shares = (
        Share(server.name, units * granularity_bytes, files_units * granularity_bytes if number == home else 0)
        for number, (server, units) in enumerate(zip(chosen, given, strict=True))
    )
    return Placement(chosen[home].name, tuple(shares))


def _emptiest_first(server: ServerSpace) -> tuple[int, int, str]:
    return -server.free_bytes, server.homes, server.name


def _deal(given: list[int], free: list[int], units: int) -> None:
    """Deals units out round robin, past servers that are full. First to those that have nothing yet."""
    for number in range(len(given)):
        if units and not given[number]:
            given[number] = 1
            units -= 1
    while units:
        open_to_more = [number for number in range(len(given)) if given[number] < free[number]]
        each = min(units // len(open_to_more), *(free[number] - given[number] for number in open_to_more), units)
        for number in open_to_more if each else open_to_more[:units]:
            given[number] += max(each, 1)
            units -= max(each, 1)
