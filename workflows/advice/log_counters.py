# SPDX-License-Identifier: Apache-2.0
"""From Darshan's counters to the facts of a run.

What the counters mean, and where they mislead, is from Darshan's runtime documentation and was checked with real logs:

- -1 is "unknown", in any counter and timer.
- Rank -1 is "all ranks", reduced into one record; but with one process it is that process.
- A call of exactly 1 MiB counts in SIZE_..._100K_1M. The four most common sizes tell how many of those there are.
- The first read of each rank in a file is neither sequential nor consecutive, wherever it begins.
- MPI-IO's times contain those of POSIX below them. A file counts with the module that saw more time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.workflows.advice.log_facts import (
    LogFacts,
    OneWriter,
    SharedFile,
    SlowRank,
    SlowTarget,
    StepFiles,
    TinyFile,
)

__all__ = ["LogRecords", "ModuleRecords", "Striping", "facts_of"]

_MIB = 1 << 20
_SMALL_SIZES = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M")
_STANDARD_STREAMS = ("<STDIN>", "<STDOUT>", "<STDERR>")

#: A target or a rank is slow if it takes this many times as long as the median, of at least so many.
_SLOW_TIMES = 2.0
_COMPARED_MIN = 4

#: A file is rewritten if this many times its size were written.
_REWRITTEN_TIMES = 1.9

#: A path up to the end of the name of a step.
_NUMBERED = re.compile(
    r".*?(?<![a-z])(chk|plt|checkpoint|ckpt|restart|rst|dump)[-_.]?(?P<number>[0-9]+)[^/]*", re.IGNORECASE | re.DOTALL
)


@dataclass
class ModuleRecords:
    """All records of one module: a row for each rank and file, or for each file that all ranks had open."""

    #: Of the file names, uint64 (N).
    ids: NDArray[np.uint64]
    #: int64 (N); -1: all ranks.
    ranks: NDArray[np.int64]
    #: Counters and timers by name, without the module's prefix: (N) each.
    values: Mapping[str, NDArray[Any]]

    def count(self, name: str) -> NDArray[np.int64]:
        """A counter, 0 where it is unknown or the log is older than it: int64 (N)."""
        known = self.values.get(name)
        return np.zeros(len(self.ids), np.int64) if known is None else np.maximum(known.astype(np.int64), 0)

    def seconds(self, name: str) -> NDArray[np.float64]:
        """A timer, 0 where it is unknown: float64 (N)."""
        known = self.values.get(name)
        return np.zeros(len(self.ids)) if known is None else np.maximum(np.nan_to_num(known.astype(np.float64)), 0.0)

    def busy(self) -> NDArray[np.float64]:
        """Seconds of reads, writes and metadata, of all ranks of a record: float64 (N)."""
        return self.seconds("F_READ_TIME") + self.seconds("F_WRITE_TIME") + self.seconds("F_META_TIME")

    def chosen(self, rows: NDArray[np.bool_]) -> ModuleRecords:
        """Some of the rows."""
        return ModuleRecords(
            self.ids[rows], self.ranks[rows], {name: values[rows] for name, values in self.values.items()}
        )

    @classmethod
    def none(cls) -> ModuleRecords:
        """Of a module that the log does not have."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64), {})


@dataclass(frozen=True)
class Striping:
    """Where a file lies on Lustre."""

    count: int
    osts: tuple[int, ...]


@dataclass
class LogRecords:
    """What is in a log."""

    program: str
    processes: int
    run_seconds: float
    names: Mapping[int, str]
    posix: ModuleRecords
    mpiio: ModuleRecords = field(default_factory=ModuleRecords.none)
    stdio: ModuleRecords = field(default_factory=ModuleRecords.none)
    stripings: Mapping[int, Striping] = field(default_factory=dict)
    uses_hdf5: bool = False
    partial_modules: tuple[str, ...] = ()


def facts_of(log: LogRecords) -> LogFacts:
    """The facts of a run."""
    posix, mpiio = log.posix, log.mpiio
    stdio = _files_of(log.stdio, log.names)
    timed = [*_slower_layer(posix, mpiio), stdio]
    own_seconds = sum(_by_rank(part, part.busy(), log.processes) for part in timed)
    metadata = sum(_by_rank(part, part.seconds("F_META_TIME"), log.processes) for part in (posix, stdio))
    small_reads, small_writes = _small_calls(posix)
    own = _own_files(posix, log.processes)
    return LogFacts(
        program=log.program,
        processes=log.processes,
        run_seconds=log.run_seconds,
        busy_seconds=float(sum(part.busy().sum() for part in timed)),
        slowest_rank_seconds=float(np.max(own_seconds)) + sum(_waits_on_shared(part, log.processes) for part in timed),
        metadata_seconds_max=float(np.max(metadata))
        + sum(float(_of_all_ranks(part, part.seconds("F_META_TIME")).sum()) / log.processes for part in (posix, stdio)),
        bytes_read=int(posix.count("BYTES_READ").sum() + stdio.count("BYTES_READ").sum()),
        bytes_written=int(posix.count("BYTES_WRITTEN").sum() + stdio.count("BYTES_WRITTEN").sum()),
        reads=int(posix.count("READS").sum()),
        writes=int(posix.count("WRITES").sum()),
        small_reads=small_reads,
        small_writes=small_writes,
        unaligned_calls=int(posix.count("FILE_NOT_ALIGNED").sum()),
        alignment=_alignment(posix),
        random_reads=_random_reads(posix, log.processes),
        own_files=len(np.unique(own.ids)),
        ranks_with_own_files=len(np.unique(own.ranks)),
        own_bytes=int(_bytes_of(own).sum()),
        own_folder=_folder_of_largest(own, log.names),
        shared_files=_shared_files(log),
        tiny_file=_tiny_file(log, stdio),
        step_files=_step_files(log),
        one_writer=_one_writer(posix, log.processes),
        slow_target=_slow_target(posix, log.stripings),
        slow_rank=_slow_rank(own, log.run_seconds),
        uses_hdf5=log.uses_hdf5 or _any_name(posix, log.names, (".h5", ".hdf5", ".he5", ".nc4")),
        reads_root_files=_any_name(posix.chosen(posix.count("READS") > 0), log.names, (".root",)),
        partial_modules=log.partial_modules,
    )


def _files_of(records: ModuleRecords, names: Mapping[int, str]) -> ModuleRecords:
    """Without the standard streams, which are terminals and pipes."""
    standard = np.array([number for number, name in names.items() if name in _STANDARD_STREAMS], np.uint64)
    return records.chosen(~np.isin(records.ids, standard))


def _slower_layer(posix: ModuleRecords, mpiio: ModuleRecords) -> tuple[ModuleRecords, ModuleRecords]:
    """Of each file the records of the module that saw more time, as those of MPI-IO contain those of POSIX."""
    ids, places = np.unique(np.concatenate([posix.ids, mpiio.ids]), return_inverse=True)
    split = len(posix.ids)
    below = np.bincount(places[:split], posix.busy(), len(ids))
    above = np.bincount(places[split:], mpiio.busy(), len(ids))
    from_posix = below >= above
    return posix.chosen(from_posix[places[:split]]), mpiio.chosen(~from_posix[places[split:]])


def _by_rank(records: ModuleRecords, values: NDArray[np.float64], processes: int) -> NDArray[np.float64]:
    """Sums for each rank, of the records that are one rank's: float64 (processes)."""
    ranks = np.where(records.ranks < 0, 0, records.ranks) if processes == 1 else records.ranks
    one = (ranks >= 0) & (ranks < processes)
    sums = np.zeros(processes)
    np.add.at(sums, ranks[one], values[one])
    return sums


def _of_all_ranks(records: ModuleRecords, values: NDArray[Any]) -> NDArray[Any]:
    """The values of records of all ranks."""
    return values[records.ranks < 0]


def _waits_on_shared(records: ModuleRecords, processes: int) -> float:
    """Seconds of the slowest rank in files of all ranks: those that it may make the others wait for."""
    if processes == 1:
        return 0.0
    slowest = np.maximum(records.seconds("F_SLOWEST_RANK_TIME"), records.busy() / processes)
    return float(_of_all_ranks(records, slowest).sum())


def _small_calls(posix: ModuleRecords) -> tuple[int, int]:
    """Reads and writes below 1 MiB."""
    exactly = np.zeros(len(posix.ids), np.int64)
    for place in range(1, 5):
        exactly += np.where(posix.count(f"ACCESS{place}_ACCESS") == _MIB, posix.count(f"ACCESS{place}_COUNT"), 0)
    largest = posix.count("SIZE_READ_100K_1M") + posix.count("SIZE_WRITE_100K_1M")
    share = np.minimum(exactly, largest) / np.maximum(largest, 1)
    small = []
    for kind in ("READ", "WRITE"):
        counted = sum(posix.count(f"SIZE_{kind}_{size}").sum() for size in _SMALL_SIZES)
        small.append(int(counted - np.round(share * posix.count(f"SIZE_{kind}_100K_1M")).sum()))
    return small[0], small[1]


def _alignment(posix: ModuleRecords) -> int:
    """What the file with most unaligned calls should be aligned to."""
    unaligned = posix.count("FILE_NOT_ALIGNED")
    return int(posix.count("FILE_ALIGNMENT")[unaligned.argmax()]) if unaligned.any() else 0


def _random_reads(posix: ModuleRecords, processes: int) -> int:
    """Reads that did not begin behind the one before."""
    first = np.where(posix.ranks < 0, processes, 1)
    return int(np.maximum(posix.count("READS") - posix.count("SEQ_READS") - first, 0).sum())


def _bytes_of(records: ModuleRecords) -> NDArray[np.int64]:
    return records.count("BYTES_READ") + records.count("BYTES_WRITTEN")


def _ranks_of_files(records: ModuleRecords, processes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each record the place of its file and, for each file, how many ranks moved bytes in it."""
    _, places = np.unique(records.ids, return_inverse=True)
    moved = np.where(_bytes_of(records) > 0, np.where(records.ranks < 0, processes, 1), 0)
    return places, np.bincount(places, moved).astype(np.int64)


def _own_files(posix: ModuleRecords, processes: int) -> ModuleRecords:
    """Records of files that one rank alone moved bytes in."""
    places, ranks = _ranks_of_files(posix, processes)
    return posix.chosen((ranks[places] == 1) & (_bytes_of(posix) > 0))


def _folder_of_largest(records: ModuleRecords, names: Mapping[int, str]) -> str:
    if not len(records.ids):
        return ""
    return str(PurePath(names.get(int(records.ids[_bytes_of(records).argmax()]), "")).parent)


def _shared_files(log: LogRecords) -> tuple[SharedFile, ...]:
    """The largest first."""
    if log.processes == 1:
        return ()
    places, ranks = _ranks_of_files(log.posix, log.processes)
    moved = np.bincount(places, _bytes_of(log.posix))
    shared = [int(place) for place in np.argsort(-moved, kind="stable") if ranks[place] > 1]
    ids = np.unique(log.posix.ids)
    return tuple(_shared_file(log, int(ids[place])) for place in shared[: LogFacts.SHARED_FILES_MAX])


def _shared_file(log: LogRecords, number: int) -> SharedFile:
    below = log.posix.chosen(log.posix.ids == number)
    above = log.mpiio.chosen(log.mpiio.ids == number)
    seen = above if len(above.ids) else below
    reduced = len(seen.ids) == 1 and seen.ranks[0] < 0 and _known(seen, "SLOWEST_RANK_BYTES")

    def total(records: ModuleRecords, *names: str) -> int:
        return int(sum(records.count(name).sum() for name in names))

    striping = log.stripings.get(number)
    return SharedFile(
        path=log.names.get(number, ""),
        ranks=log.processes if (below.ranks < 0).any() else len(np.unique(below.ranks)),
        size=1 + int(max(below.count("MAX_BYTE_READ").max(), below.count("MAX_BYTE_WRITTEN").max())),
        bytes_read=total(below, "BYTES_READ"),
        bytes_written=total(below, "BYTES_WRITTEN"),
        reads=total(below, "READS"),
        writes=total(below, "WRITES"),
        strided_calls=total(below, "SEQ_READS", "SEQ_WRITES") - total(below, "CONSEC_READS", "CONSEC_WRITES"),
        independent_calls=total(above, "INDEP_READS", "INDEP_WRITES", "NB_READS", "NB_WRITES"),
        collective_calls=total(above, "COLL_READS", "COLL_WRITES", "SPLIT_READS", "SPLIT_WRITES"),
        requested_bytes_read=total(above, "BYTES_READ"),
        requested_bytes_written=total(above, "BYTES_WRITTEN"),
        fastest_rank_bytes=int(seen.count("FASTEST_RANK_BYTES")[0]) if reduced else None,
        slowest_rank_bytes=int(seen.count("SLOWEST_RANK_BYTES")[0]) if reduced else None,
        stripe_count=striping.count if striping else None,
    )


def _known(records: ModuleRecords, name: str) -> bool:
    return name in records.values and bool(records.values[name][0] >= 0)


def _tiny_file(log: LogRecords, stdio: ModuleRecords) -> TinyFile | None:
    """The one that cost most of those that all ranks opened and read, and nobody wrote."""
    found = None
    for records in (log.posix, stdio) if log.processes > 1 else ():
        tiny = (records.ranks < 0) & (records.count("OPENS") >= log.processes) & (records.count("BYTES_READ") > 0)
        tiny &= (records.count("MAX_BYTE_READ") < _MIB) & (records.count("BYTES_WRITTEN") == 0)
        for place in np.flatnonzero(tiny):
            seconds = float(records.busy()[place])
            if found is None or seconds > found.seconds:
                size = int(records.count("MAX_BYTE_READ")[place]) + 1
                found = TinyFile(log.names.get(int(records.ids[place]), ""), size, seconds)
    return found


def _step_files(log: LogRecords) -> StepFiles | None:
    """What comes again with each step, where there are at least two."""
    written = log.posix.count("BYTES_WRITTEN")
    steps: dict[str, dict[str, int]] = {}
    paths: dict[str, str] = {}
    for number, size in zip(log.posix.ids[written > 0], written[written > 0], strict=True):
        path = log.names.get(int(number), "")
        if found := _NUMBERED.match(path):
            kind = path[: found.start("number")]
            sizes = steps.setdefault(kind, {})
            sizes[found["number"]] = sizes.get(found["number"], 0) + int(size)
            paths.setdefault(kind, found[0])
    numbered = {kind: sizes for kind, sizes in steps.items() if len(sizes) > 1}
    if numbered:
        kind = max(numbered, key=lambda name: sum(numbered[name].values()))
        return StepFiles(paths[kind], len(numbered[kind]), max(numbered[kind].values()), "numbered")
    large = written >= _MIB
    renamed = large & (log.posix.count("RENAME_SOURCES") > 0)
    if np.count_nonzero(renamed) > 1:
        place = int(np.where(renamed, written, 0).argmax())
        path = log.names.get(int(log.posix.ids[place]), "")
        return StepFiles(path, int(np.count_nonzero(renamed)), int(written[place]), "renamed")
    size = log.posix.count("MAX_BYTE_WRITTEN") + 1
    own = log.posix.ranks >= 0 if log.processes > 1 else np.ones(len(size), np.bool_)
    rewritten = large & own & (written >= _REWRITTEN_TIMES * size)
    if rewritten.any():
        place = int(np.where(rewritten, written, 0).argmax())
        path = log.names.get(int(log.posix.ids[place]), "")
        return StepFiles(path, round(float(written[place] / size[place])), int(size[place]), "rewritten")
    return None


def _one_writer(posix: ModuleRecords, processes: int) -> OneWriter | None:
    """The rank that wrote nine tenths of all, as far as the records tell."""
    written = posix.count("BYTES_WRITTEN")
    if processes == 1 or not written.any():
        return None
    ranks = np.where(
        (posix.ranks < 0) & (posix.count("SLOWEST_RANK_BYTES") >= 0.9 * _bytes_of(posix)),
        posix.count("SLOWEST_RANK"),
        posix.ranks,
    )
    known = (ranks >= 0) & (ranks < processes)
    sums = np.bincount(ranks[known], written[known], processes)
    rank = int(sums.argmax())
    return OneWriter(rank, int(sums[rank])) if sums[rank] >= 0.9 * written.sum() else None


def _slow_target(posix: ModuleRecords, stripings: Mapping[int, Striping]) -> SlowTarget | None:
    """By the files that lie on one target each."""
    targets: dict[int, list[float]] = {}
    seconds = posix.seconds("F_READ_TIME") + posix.seconds("F_WRITE_TIME")
    moved = _bytes_of(posix)
    for number, taken, size in zip(posix.ids, seconds, moved, strict=True):
        striping = stripings.get(int(number))
        if striping is not None and len(striping.osts) == 1 and size > 0 and taken > 0:
            sums = targets.setdefault(striping.osts[0], [0.0, 0.0])
            sums[0] += float(taken)
            sums[1] += float(size)
    if len(targets) < _COMPARED_MIN:
        return None
    costs = {ost: taken / size for ost, (taken, size) in targets.items()}
    slowest = max(costs, key=lambda ost: costs[ost])
    times = costs[slowest] / float(np.median(list(costs.values())))
    return SlowTarget(slowest, times, len(costs)) if times > _SLOW_TIMES else None


def _slow_rank(own: ModuleRecords, run_seconds: float) -> SlowRank | None:
    """By the files that are one rank's."""
    ranks, places = np.unique(own.ranks, return_inverse=True)
    if len(ranks) < _COMPARED_MIN:
        return None
    seconds = np.bincount(places, own.busy())
    slowest, median = int(seconds.argmax()), float(np.median(seconds))
    if seconds[slowest] <= max(_SLOW_TIMES * median, 0.05 * run_seconds):
        return None
    return SlowRank(int(ranks[slowest]), float(seconds[slowest]), median)


def _any_name(records: ModuleRecords, names: Mapping[int, str], suffixes: tuple[str, ...]) -> bool:
    return any(names.get(int(number), "").lower().endswith(suffixes) for number in np.unique(records.ids))
