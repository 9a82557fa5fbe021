# SPDX-License-Identifier: Apache-2.0
"""Drives admission and placement from a seed, at a size that no test machine has: how even the servers are, how long
one admission takes. The code is the manager's; only servers and requests are drawn.

Run ``python -m tests.bench.placement_at_scale --servers 1000 --reservations 10000 --seed 1``.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass, replace

from forebay.errors import NoSpaceError
from forebay.workflows.manager.core.database.database import Held
from forebay.workflows.manager.core.pools.admission import Ask, FullError, Holdings, admit
from forebay.workflows.manager.core.pools.placement import Placement, ServerSpace
from forebay.workflows.manager.core.pools.pool_settings import Pool, PoolSettings, Who

__all__ = ["Outcome", "run"]

_GIB = 1 << 30
_USERS = 200
_DRAINED_SHARE = 0.02
#: Once so much of the capacity is held, the oldest reservation ends before the next one is asked for.
_HELD_SHARE_MAX = 0.7
_SERVERS_OF_ONE_MAX = 64
_SERVERS_OF_LARGE = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has found."""

    servers: int
    reservations: int  #: asked for
    refused: int  #: not now, although the pool as a whole had the room
    refused_ever: int
    held_share: float  #: of the capacity, at the end
    used_least: float  #: the used share of servers that take something: the 5th percentile
    used_most: float  #: the 95th
    homes_mean: float  #: of each server that takes something
    homes_most: int
    median_ms: float  #: of one admission
    slowest_ms: float  #: the 99th percentile
    books_ms: float  #: of the median: adding up what is held


def run(seed: int, server_count: int, reservation_count: int, *, mixed: bool = False) -> Outcome:
    """Asks for reservations one after another. The same seed draws the same ones. `mixed`: servers of three sizes."""
    draw = random.Random(seed)
    pool = Pool("default", granularity_bytes=_GIB)
    settings = PoolSettings({"": pool})
    servers = {}
    for number in range(server_count):
        capacity = (draw.choice((1600, 3200, 6400)) if mixed else 3200) * _GIB
        refuses = "it is drained" if draw.random() < _DRAINED_SHARE else ""
        name = f"node{number:04}"
        servers[name] = ServerSpace(name, capacity, capacity, refuses)
    capacity_bytes = sum(server.capacity_bytes for server in servers.values())
    living: deque[tuple[Held, Placement]] = deque()
    used_bytes = refused = refused_ever = 0
    whole_ms, books_ms = [], []
    for _ in range(reservation_count):
        while used_bytes > _HELD_SHARE_MAX * capacity_bytes:
            held, placement = living.popleft()
            used_bytes -= held.size_bytes
            _give(servers, placement, -1)
        ask = _drawn_ask(draw, server_count)
        begun = time.perf_counter()
        holdings = Holdings(settings, (held for held, _ in living))
        added_up = time.perf_counter()
        try:
            placement = admit(ask, settings=settings, holdings=holdings, servers=[*servers.values()], before=[])
        except FullError:
            refused += 1
            continue
        except NoSpaceError:
            refused_ever += 1
            continue
        finally:
            whole_ms.append(1000 * (time.perf_counter() - begun))
            books_ms.append(1000 * (added_up - begun))
        living.append((Held("", "", ask.who.uid, sum(share.size_bytes for share in placement.shares)), placement))
        used_bytes += living[-1][0].size_bytes
        _give(servers, placement, 1)
    taking = [server for server in servers.values() if not server.refuses]
    used = [1 - server.free_bytes / server.capacity_bytes for server in taking]
    homes = Counter({server.name: server.homes for server in taking})
    return Outcome(
        servers=server_count,
        reservations=reservation_count,
        refused=refused,
        refused_ever=refused_ever,
        held_share=round(used_bytes / capacity_bytes, 3),
        used_least=round(statistics.quantiles(used, n=20)[0], 3),
        used_most=round(statistics.quantiles(used, n=20)[-1], 3),
        homes_mean=round(statistics.mean(homes.values()), 1),
        homes_most=max(homes.values()),
        median_ms=round(statistics.median(whole_ms), 2),
        slowest_ms=round(statistics.quantiles(whole_ms, n=100)[-1], 2),
        books_ms=round(statistics.median(books_ms), 2),
    )


def _drawn_ask(draw: random.Random, server_count: int) -> Ask:
    """From 1 GiB to 1 TiB on one server, which half of them take, or to 8 TiB on several. Small ones are as frequent as
    large ones.
    """
    several = draw.random() < 0.5 and server_count > 1
    count = min(_SERVERS_OF_ONE_MAX, server_count, int(2 ** draw.uniform(1, 6))) if several else 1
    size = int(_GIB * 2 ** draw.uniform(0, 13 if count >= _SERVERS_OF_LARGE else 10))
    files = int(size * draw.random() / 8) if draw.random() < 0.3 else 0
    uid = draw.randrange(_USERS)
    return Ask("", "", size, Who(uid, str(uid), frozenset()), files, count)


def _give(servers: dict[str, ServerSpace], placement: Placement, sign: int) -> None:
    for share in placement.shares:
        server = servers[share.server]
        homes = server.homes + (sign if share.server == placement.home else 0)
        servers[share.server] = replace(server, free_bytes=server.free_bytes - sign * share.size_bytes, homes=homes)


def main() -> None:
    """Prints the outcome as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--reservations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mixed", action="store_true", help="servers of 1.6, 3.2 and 6.4 TiB instead of 3.2 TiB")
    arguments = parser.parse_args()
    outcome = run(arguments.seed, arguments.servers, arguments.reservations, mixed=arguments.mixed)
    print(json.dumps(asdict(outcome), indent=1))


if __name__ == "__main__":
    main()
