# SPDX-License-Identifier: Apache-2.0
"""From Darshan's counters to facts, where the counters mislead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forebay.workflows.advice.log_counters import LogRecords, ModuleRecords, Striping, facts_of
from forebay.workflows.advice.log_facts import LogFacts, OneWriter, SlowRank, SlowTarget, StepFiles, TinyFile
from forebay.workflows.advice.log_rules import advice_of

_MIB = 1 << 20


def records(*rows: dict[str, Any]) -> ModuleRecords:
    """Records with `id`, `rank` and the counters that are not 0."""
    names = sorted({name for row in rows for name in row} - {"id", "rank"})
    return ModuleRecords(
        np.array([row["id"] for row in rows], np.uint64),
        np.array([row["rank"] for row in rows], np.int64),
        {name: np.array([row.get(name, 0) for row in rows]) for name in names},
    )


def facts(posix: ModuleRecords, **log: Any) -> LogFacts:
    """Of a run of four processes for 100 s."""
    log = {"processes": 4, "names": {}, **log}
    return facts_of(LogRecords(program="run", run_seconds=100.0, posix=posix, **log))


def test_calls_of_exactly_1_mib_are_not_small() -> None:
    """They count in SIZE_WRITE_100K_1M."""
    row = {"id": 1, "rank": -1, "WRITES": 5010, "SIZE_WRITE_100K_1M": 5000, "SIZE_WRITE_0_100": 10}
    exact = facts(records(row | {"ACCESS1_ACCESS": _MIB, "ACCESS1_COUNT": 5000}))
    assert exact.small_writes == 10
    assert 1 not in advice_of(exact).rules
    below = facts(records(row | {"ACCESS1_ACCESS": _MIB - 1, "ACCESS1_COUNT": 5000}))
    assert below.small_writes == 5010
    assert 1 in advice_of(below).rules
    mixed = facts(
        records(
            {"id": 1, "rank": -1, "SIZE_WRITE_100K_1M": 30, "SIZE_READ_100K_1M": 10}
            | {"ACCESS2_ACCESS": _MIB, "ACCESS2_COUNT": 20}
        )
    )
    assert (mixed.small_reads, mixed.small_writes) == (5, 15)


def test_what_is_unknown_counts_as_nothing() -> None:
    seen = facts(records({"id": 1, "rank": 0, "WRITES": -1, "BYTES_WRITTEN": -1, "F_WRITE_TIME": -1.0}))
    assert (seen.writes, seen.bytes_written, seen.busy_seconds) == (0, 0, 0.0)
    assert facts(records({"id": 1, "rank": 0, "F_META_TIME": float("nan")})).busy_seconds == 0.0


def test_with_one_process_no_file_is_shared() -> None:
    row = {"id": 1, "rank": -1, "WRITES": 9, "BYTES_WRITTEN": 900, "F_WRITE_TIME": 60.0, "OPENS": 1}
    alone = facts(records(row), processes=1)
    assert alone.shared_files == ()
    assert (alone.own_files, alone.one_writer) == (1, None)
    assert alone.slowest_rank_seconds == 60.0
    assert len(facts(records(row)).shared_files) == 1


def test_mpi_io_contains_posix() -> None:
    """A file counts once, with the module that saw more time, rank by rank."""
    posix = records(
        {"id": 1, "rank": 0, "F_WRITE_TIME": 5.0, "BYTES_WRITTEN": 9},
        {"id": 2, "rank": 1, "F_WRITE_TIME": 8.0, "BYTES_WRITTEN": 9},
    )
    mpiio = records({"id": 1, "rank": -1, "F_WRITE_TIME": 40.0, "F_SLOWEST_RANK_TIME": 12.0})
    seen = facts(posix, mpiio=mpiio)
    assert seen.busy_seconds == 48.0
    assert seen.slowest_rank_seconds == 8.0 + 12.0


def test_standard_streams_cost_nothing_and_other_files_of_stdio_count() -> None:
    stdio = records(
        {"id": 7, "rank": 0, "F_WRITE_TIME": 50.0}, {"id": 8, "rank": 0, "F_WRITE_TIME": 2.0, "BYTES_WRITTEN": 5}
    )
    seen = facts(records({"id": 1, "rank": 0}), stdio=stdio, names={7: "<STDOUT>", 8: "/l/log"})
    assert (seen.busy_seconds, seen.bytes_written) == (2.0, 5)


def test_the_first_read_of_each_rank_is_not_random() -> None:
    one = {"id": 1, "rank": 0, "READS": 10, "SEQ_READS": 9}
    every = {"id": 2, "rank": -1, "READS": 100, "SEQ_READS": 90}
    assert facts(records(one)).random_reads == 0
    assert facts(records(every)).random_reads == 6


def test_a_file_of_some_ranks_is_shared_and_a_rank_that_only_opened_it_does_not_count() -> None:
    rows = [{"id": 1, "rank": rank, "BYTES_WRITTEN": 10, "WRITES": 2, "MAX_BYTE_WRITTEN": 39} for rank in (0, 2)]
    (shared,) = facts(records(*rows, {"id": 1, "rank": 1, "OPENS": 1})).shared_files
    assert (shared.ranks, shared.size, shared.writes, shared.bytes_written) == (3, 40, 4, 20)
    alone = facts(records(rows[0], {"id": 1, "rank": 1, "OPENS": 1}))
    assert (alone.shared_files, alone.own_files) == ((), 1)


def test_aggregators_are_not_unequal_ranks() -> None:
    """With MPI-IO, what ranks asked for counts, not what the aggregators wrote for them."""
    row = {"id": 1, "rank": -1, "BYTES_WRITTEN": 400, "WRITES": 4}
    posix = records(row | {"FASTEST_RANK_BYTES": 0, "SLOWEST_RANK_BYTES": 400})
    mpiio = records({"id": 1, "rank": -1, "FASTEST_RANK_BYTES": 100, "SLOWEST_RANK_BYTES": 100, "COLL_WRITES": 4})
    (shared,) = facts(posix, mpiio=mpiio).shared_files
    assert (shared.fastest_rank_bytes, shared.slowest_rank_bytes) == (100, 100)
    assert facts(posix).one_writer == OneWriter(0, 400)


def test_a_tiny_file_is_one_that_all_ranks_read_and_nobody_writes() -> None:
    row = {"id": 1, "rank": -1, "OPENS": 4, "BYTES_READ": 400, "MAX_BYTE_READ": 99, "F_META_TIME": 3.0}
    names = {1: "/l/input"}
    assert facts(records(row), names=names).tiny_file == TinyFile("/l/input", 100, 3.0)
    assert facts(records(row | {"MAX_BYTE_READ": _MIB}), names=names).tiny_file is None
    assert facts(records(row | {"BYTES_WRITTEN": 1}), names=names).tiny_file is None
    assert facts(records(row | {"OPENS": 3}), names=names).tiny_file is None


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["/l/chk00000/Level_0/Cell", "/l/chk00000/Header", "/l/chk00010/Header"], ("/l/chk00000", 2, 2 * _MIB)),
        (["/l/run_plt0001.h5", "/l/run_plt0002.h5"], ("/l/run_plt0001.h5", 2, _MIB)),
        (["/l/chk00010/Header", "/l/chk00010/Cell"], None),
        (["/l/plt0001.h5", "/l/plt0002.h5"], ("/l/plt0001.h5", 2, _MIB)),
        (["/l/out.00000000", "/l/out.00000001"], None),
    ],
)
def test_numbered_steps_are_found_by_their_names(names: list[str], found: tuple[str, int, int] | None) -> None:
    """A file for each rank has a number, too, and is no step."""
    rows = [{"id": number, "rank": 0, "BYTES_WRITTEN": _MIB, "MAX_BYTE_WRITTEN": _MIB} for number in range(len(names))]
    seen = facts(records(*rows), names=dict(enumerate(names))).step_files
    assert seen == (None if found is None else StepFiles(*found, "numbered"))


@pytest.mark.timeout(10)
def test_a_path_of_any_length_is_looked_at_once() -> None:
    """Names in a log are whatever somebody has written into it."""
    names = dict.fromkeys((1, 2), "plt" * 100000)
    rows = [{"id": number, "rank": 0, "BYTES_WRITTEN": _MIB, "MAX_BYTE_WRITTEN": _MIB} for number in names]
    assert facts(records(*rows), names=names).step_files is None


def test_files_that_are_renamed_or_rewritten_are_steps() -> None:
    row = {"rank": 0, "BYTES_WRITTEN": 2 * _MIB, "MAX_BYTE_WRITTEN": 2 * _MIB - 1, "RENAME_SOURCES": 1}
    names = {1: "/l/a.tmp", 2: "/l/b.tmp"}
    renamed = facts(records(row | {"id": 1}, row | {"id": 2}), names=names).step_files
    assert renamed == StepFiles("/l/a.tmp", 2, 2 * _MIB, "renamed")
    again = {"id": 1, "rank": 0, "BYTES_WRITTEN": 30 * _MIB, "MAX_BYTE_WRITTEN": 10 * _MIB - 1}
    assert facts(records(again), names=names).step_files == StepFiles("/l/a.tmp", 3, 10 * _MIB, "rewritten")


def test_one_slow_target_is_named() -> None:
    rows = [{"id": n, "rank": n % 4, "BYTES_WRITTEN": 100, "F_WRITE_TIME": 10.0 if n == 3 else 1.0} for n in range(8)]
    alone = {n: Striping(1, (n % 4,)) for n in range(8)}
    seen = facts(records(*rows), stripings=alone)
    assert seen.slow_target == SlowTarget(3, 5.5, 4)
    assert facts(records(*rows), stripings={n: Striping(2, (n % 4, 9)) for n in range(8)}).slow_target is None
    even = [row | {"F_WRITE_TIME": 1.0 + 0.1 * row["id"]} for row in rows]
    assert facts(records(*even), stripings=alone).slow_target is None


def test_one_slow_rank_is_named() -> None:
    rows = [{"id": n, "rank": n, "BYTES_WRITTEN": 100, "F_WRITE_TIME": 50.0 if n == 2 else 5.0} for n in range(4)]
    assert facts(records(*rows)).slow_rank == SlowRank(2, 50.0, 5.0)
    assert facts(records(*(row | {"F_WRITE_TIME": 0.001 * row["F_WRITE_TIME"]} for row in rows))).slow_rank is None


def test_metadata_of_shared_files_is_shared_out() -> None:
    rows = [{"id": 1, "rank": -1, "F_META_TIME": 40.0}, {"id": 2, "rank": 3, "F_META_TIME": 7.0}]
    assert facts(records(*rows)).metadata_seconds_max == 17.0


def test_a_log_without_a_record_has_facts() -> None:
    seen = facts(ModuleRecords.none())
    assert (seen.calls, seen.busy_seconds, seen.shared_files) == (0, 0.0, ())
