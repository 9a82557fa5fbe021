# SPDX-License-Identifier: Apache-2.0
"""Reservations over several servers, beside the same work with one server.

Each server and the client off the pool have a node of their own (network namespaces). All of them share this machine's
processors, so disks and links are limited where bandwidth is compared: they have to be what a server runs out of first.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Sequence

from tests.bench.measure import Case, Figures, Row, Suite
from tests.bench.pool_bench import BenchPool, Place, bench_pool
from tests.bench.programs import Program, Timeline, rate_together, run_alone, run_pair, run_together
from tests.bench.remote_bench import live_figures
from tests.bench.workbench import GIB, KIB, MIB, RESERVATION, Workbench

__all__ = [
    "durable_over_servers",
    "read_from_servers",
    "readers_on_members",
    "small_steps_over_servers",
    "write_to_servers",
    "writers_on_members",
]

_SERVERS = 4
_RATE = "run_bytes_per_second"
_BLOCK = 64 * MIB
_WARMUP = 2
_DISK_BYTES_PER_SECOND = 200_000_000
_DISK = ("--write-bytes-per-second", str(_DISK_BYTES_PER_SECOND))
#: Two frames of a data path: a server receives one while its disk takes the other.
_DISK_CACHE = ("--cache-bytes", str(2 * MIB))
_LINK = "1gbit"
_SYNC_MS = 50


def _over(servers: int, capacity_bytes: int, pool: BenchPool) -> Place:
    """A reservation over the first servers; where its client off the pool runs."""
    pool.reserve(range(servers), capacity_bytes // servers)
    return pool.off_the_pool(0)


def _write(servers: int, bench: Workbench) -> Figures:
    steps = bench.steps(16, 6) + _WARMUP
    capacity = 8 * _BLOCK
    with bench_pool(bench, servers, capacity // servers, disk=(*_DISK, *_DISK_CACHE)) as pool:
        client = _over(servers, capacity, pool)
        with client.native("write", "--bytes", str(_BLOCK), "--steps", str(steps), "--retention", "last:2") as writer:
            return {_RATE: run_alone(writer).rate(_BLOCK, _WARMUP)}


def write_to_servers() -> Suite:
    """One writer off the pool; what each server's disk takes is limited."""
    return Suite(
        name="servers-write",
        cases=[Case(f"{servers}", functools.partial(_write, servers)) for servers in (_SERVERS, 1)],
        rows=[
            Row(
                "one writer off the pool, 64 MiB blocks, 4 servers of 200 MB/s",
                "one such server",
                f"{_SERVERS}",
                "1",
                _RATE,
                3.5,
            )
        ],
        repetitions=3,
        repetitions_quick=2,
        best_of=1,
    )


def _read(servers: int, bench: Workbench) -> Figures:
    steps = bench.steps(12, 5) + _WARMUP
    capacity = (steps + 4) * _BLOCK
    with bench_pool(bench, servers, capacity // servers, rate=_LINK) as pool:
        client = _over(servers, capacity, pool)
        with client.native("write", "--bytes", str(_BLOCK), "--steps", str(steps)) as writer:
            run_alone(writer)
        with client.native("read", "--bytes", str(_BLOCK), "--verify", "read") as reader:
            return {_RATE: run_alone(reader).rate(_BLOCK, _WARMUP)}


def read_from_servers() -> Suite:
    """One reader off the pool; the link of each server's node is limited, the reader's is not."""
    return Suite(
        name="servers-read",
        cases=[Case(f"{servers}", functools.partial(_read, servers)) for servers in (_SERVERS, 1)],
        rows=[
            Row(
                "one reader off the pool, 64 MiB blocks, 4 servers with links of 1 Gbit/s",
                "one such server",
                f"{_SERVERS}",
                "1",
                _RATE,
                3.5,
            )
        ],
        repetitions=3,
        repetitions_quick=2,
        best_of=1,
    )


def _together(places: Sequence[Place], reservations: Sequence[str], command: str, options: Sequence[str]) -> float:
    """What one program in each place moves; of one reservation they are the ranks, of several each is alone."""
    ranks = len(places) if len(set(reservations)) == 1 else 1
    with contextlib.ExitStack() as stack:
        programs: list[Program] = [
            stack.enter_context(
                place.native(
                    command,
                    *options,
                    *("--rank", str(number % ranks), "--ranks", str(ranks)),
                    reservation=reservation,
                )
            )
            for number, (place, reservation) in enumerate(zip(places, reservations, strict=True))
        ]
        timelines: list[Timeline] = run_together(programs)
    step_bytes = int(options[options.index("--bytes") + 1])
    return rate_together(timelines, step_bytes, _WARMUP)


def _own(together: bool, what: str, part_bytes: int, limits: Sequence[str], bench: Workbench) -> Figures:
    """Four programs, each on the node of a server: of one reservation, whose home is a fifth server, or of four."""
    members = range(1, _SERVERS + 1)
    steps = (bench.steps(320, 120) if what == "write" else bench.steps(5, 3)) + _WARMUP
    kept = min(steps, 12) if what == "write" else steps
    share = max(16 * MIB, (kept + 4) * part_bytes)
    with bench_pool(bench, _SERVERS + 1, share) as pool:
        if together:
            pool.reserve([0, *members], share)
            reservations = [RESERVATION] * _SERVERS
        else:
            reservations = [f"{RESERVATION}{member}" for member in members]
            for member, name in zip(members, reservations, strict=True):
                pool.reserve([member], share, name)
        places = [pool.on(member) for member in members]
        common = ["--bytes", str(part_bytes)]
        writing = [*common, "--steps", str(steps), *limits]
        if what == "write":
            return {_RATE: _together(places, reservations, "write", [*writing, "--retention", "last:2"])}
        _together(places, reservations, "write", writing)
        return {_RATE: _together(places, reservations, "read", common)}


def _own_cases(name: str, what: str, part_bytes: int, limits: Sequence[str] = ()) -> list[Case]:
    return [
        Case(f"{name}: one", functools.partial(_own, True, what, part_bytes, limits)),
        Case(f"{name}: four", functools.partial(_own, False, what, part_bytes, limits)),
    ]


def writers_on_members() -> Suite:
    """Four writers of one step, each on the node of the server that takes its part."""
    four = "4 reservations of one server"
    return Suite(
        name="servers-writers",
        cases=[*_own_cases("disk", "write", MIB, _DISK), *_own_cases("no limit", "write", MIB)],
        rows=[
            Row(
                "4 writers on members with disks of 200 MB/s, home elsewhere, one step of 1 MiB parts",
                four,
                "disk: one",
                "disk: four",
                _RATE,
                0.9,
            ),
            Row("the same, the processors are the limit", four, "no limit: one", "no limit: four", _RATE),
        ],
        repetitions=3,
        best_of=2,
    )


def readers_on_members() -> Suite:
    """Four readers of one step, each on the node of the server that has its block."""
    what = "4 readers, each its own member's block of 64 MiB"
    return Suite(
        name="servers-readers",
        cases=_own_cases("read", "read", _BLOCK),
        rows=[Row(what, "4 local readers", "read: one", "read: four", _RATE, 0.95)],
        repetitions=3,
        best_of=2,
    )


def _small(servers: int, bench: Workbench) -> Figures:
    with bench_pool(bench, 3, 32 * MIB) as pool:
        pool.reserve(range(servers), 32 * MIB)
        steps = bench.steps(500, 200)
        common = ["--bytes", str(4 * KIB)]
        writing = [*common, "--steps", str(steps), "--pace-us", "2000", "--readers", "1"]
        with pool.on(1).native("write", *writing) as writer, pool.on(2).native("read", *common) as reader:
            return live_figures(*run_pair(writer, reader), 4 * KIB, 12)


def small_steps_over_servers() -> Suite:
    """4 KiB every 2 ms, from EndStep's call to the data in the reader's memory."""
    return Suite(
        name="servers-small",
        cases=[Case(f"{servers}", functools.partial(_small, servers)) for servers in (3, 1)],
        rows=[
            Row(
                "4 KiB step: writer on a member, reader on another, home on a third",
                "the same with one server",
                "3",
                "1",
                "after_call_seconds",
                1 / 1.3,
            )
        ],
        repetitions=5,
        best_of=2,
    )


def _durable(servers: int, step_bytes: int, bench: Workbench) -> Figures:
    steps = bench.steps(24, 12)
    # So large that segments have 64 MiB.
    capacity = 4 * GIB
    with bench_pool(bench, servers, capacity // servers, disk=("--sync-ms", str(_SYNC_MS))) as pool:
        client = _over(servers, capacity, pool)
        with client.native("write", "--bytes", str(step_bytes), "--steps", str(steps), "--durable") as writer:
            # From when all bytes were handed over: what is compared has fewer of them.
            return {"end_step_seconds": statistics.median(run_alone(writer).seconds(2, 3, _WARMUP))}


def durable_over_servers() -> Suite:
    """Every sync takes 50 ms. What is compared is a step whose data lies in one file: its sync, then the journal's."""
    # Three members have one stripe of 8 MiB each, the home has the rest and the metadata: each has one file to sync.
    over_all, on_one = 25 * MIB, 8 * MIB
    return Suite(
        name="servers-durable",
        cases=[
            Case("4", functools.partial(_durable, _SERVERS, over_all)),
            Case("1", functools.partial(_durable, 1, on_one)),
        ],
        rows=[
            Row(
                "EndStep of a durable step over 4 members, each sync 50 ms",
                "one sync and the journal's",
                "4",
                "1",
                "end_step_seconds",
                1 / 1.2,
            )
        ],
        repetitions=3,
        best_of=2,
    )
