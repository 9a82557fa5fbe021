# SPDX-License-Identifier: Apache-2.0
"""What a Darshan log says about a run, as far as advice depends on it. Bytes and seconds; a call is a read or a write.

The rules (`log_rules`) see these facts alone, so that a test can state any run in a few lines.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["LogFacts", "OneWriter", "SharedFile", "SlowRank", "SlowTarget", "StepFiles", "TinyFile"]


@dataclass(frozen=True)
class SharedFile:
    """A file that several ranks read or wrote."""

    path: str
    ranks: int
    size: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    reads: int = 0
    writes: int = 0
    #: Calls that went forward and left a gap.
    strided_calls: int = 0
    #: Of MPI-IO, above the calls that the file system saw; 0 without MPI-IO.
    independent_calls: int = 0
    collective_calls: int = 0
    requested_bytes_read: int = 0
    requested_bytes_written: int = 0
    #: What the fastest and the slowest rank moved; None: unknown.
    fastest_rank_bytes: int | None = None
    slowest_rank_bytes: int | None = None
    #: On Lustre; None elsewhere.
    stripe_count: int | None = None

    @property
    def calls(self) -> int:
        """Reads and writes that the file system saw."""
        return self.reads + self.writes


@dataclass(frozen=True)
class TinyFile:
    """A file below 1 MiB that every rank opened and read: the one that cost most."""

    path: str
    size: int
    #: Of all ranks together.
    seconds: float


@dataclass(frozen=True)
class StepFiles:
    """Files that come again with each step: numbered (`chk00010`), renamed into place, or rewritten."""

    #: One of them.
    path: str
    steps: int
    #: Of the largest step.
    step_bytes: int
    #: `numbered`, `renamed` or `rewritten`.
    how: str


@dataclass(frozen=True)
class OneWriter:
    """The rank that wrote nearly everything."""

    rank: int
    bytes_written: int


@dataclass(frozen=True)
class SlowTarget:
    """A storage target of Lustre (OST) that took much longer for a byte than the others."""

    ost: int
    #: Seconds for a byte, as a multiple of the median of all targets.
    times_slower: float
    targets: int


@dataclass(frozen=True)
class SlowRank:
    """A rank that took much longer for its own files than the others."""

    rank: int
    seconds: float
    median_seconds: float


@dataclass(frozen=True)
class LogFacts:
    """One run."""

    #: Its command line.
    program: str
    processes: int
    run_seconds: float
    #: Reads, writes and metadata, of all ranks together.
    busy_seconds: float
    #: The same of the rank that spent most.
    slowest_rank_seconds: float
    #: Metadata alone, of the rank that spent most.
    metadata_seconds_max: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0
    reads: int = 0
    writes: int = 0
    #: Below 1 MiB.
    small_reads: int = 0
    small_writes: int = 0
    unaligned_calls: int = 0
    #: What they were not aligned to.
    alignment: int = 0
    #: Reads that went backwards.
    random_reads: int = 0
    #: Files that one rank alone read or wrote, and how many ranks have such files.
    own_files: int = 0
    ranks_with_own_files: int = 0
    own_bytes: int = 0
    #: Folder of the largest of them.
    own_folder: str = ""
    #: The largest first; at most `SHARED_FILES_MAX`.
    shared_files: tuple[SharedFile, ...] = ()
    tiny_file: TinyFile | None = None
    step_files: StepFiles | None = None
    one_writer: OneWriter | None = None
    slow_target: SlowTarget | None = None
    slow_rank: SlowRank | None = None
    uses_hdf5: bool = False
    reads_root_files: bool = False
    #: Modules whose records Darshan could not keep all: counts and times are too low.
    partial_modules: tuple[str, ...] = ()

    SHARED_FILES_MAX = 16

    @property
    def calls(self) -> int:
        """Reads and writes."""
        return self.reads + self.writes

    @property
    def busy_share(self) -> float:
        """Share of the processes' time that input and output took: 0 to 1."""
        return min(1.0, self.busy_seconds / (self.processes * self.run_seconds))

    @property
    def slowest_rank_share(self) -> float:
        """The same of the slowest rank, for which the others may have waited: what a run can gain at most."""
        return max(self.busy_share, min(1.0, self.slowest_rank_seconds / self.run_seconds))

    def as_json(self) -> dict[str, Any]:
        """A document of JSON."""
        return asdict(self)

    @classmethod
    def of_json(cls, document: dict[str, Any]) -> LogFacts:
        """What `as_json` gave.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is something else.
        """
        values = dict(document)
        parts = {
            "tiny_file": TinyFile,
            "step_files": StepFiles,
            "one_writer": OneWriter,
            "slow_target": SlowTarget,
            "slow_rank": SlowRank,
        }
        for name, kind in parts.items():
            values[name] = None if values[name] is None else kind(**values[name])
        values["shared_files"] = tuple(SharedFile(**file) for file in values["shared_files"])
        values["partial_modules"] = tuple(values["partial_modules"])
        if missing := {field.name for field in fields(cls)} - values.keys():
            raise KeyError(*missing)
        return cls(**values)
