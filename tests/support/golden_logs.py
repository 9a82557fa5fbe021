# SPDX-License-Identifier: Apache-2.0
"""What the logs in PyDarshan's wheel say, worked out by hand from their counters: the reader must find it in them, and
the rules must judge it."""

from __future__ import annotations

from forebay.workflows.advice.log_facts import LogFacts, SharedFile, SlowRank, SlowTarget, TinyFile

__all__ = ["GOLDEN_LOGS"]

_HOME = "/global/project/projectdirs/m888/glock/tokio-abc-results"
_VPIC = "/scratch2/scratchdirs/glock/tokioabc-s.4478544/vpicio/vpicio.hdf5"

#: VPIC-IO: one shared file of HDF5 on 24 targets, written collectively in pieces of 128 MiB.
VPIC = LogFacts(
    program=f"{_HOME}/bin.edison/vpicio_uni {_VPIC} 32",
    processes=2048,
    run_seconds=117.0,
    busy_seconds=100_446.918,
    slowest_rank_seconds=85.492,
    metadata_seconds_max=0.0055,
    bytes_written=2_199_023_259_968,
    writes=16_402,
    small_writes=18,
    unaligned_calls=16_401,
    alignment=1 << 20,
    shared_files=(
        SharedFile(
            path=_VPIC,
            ranks=2048,
            size=2_199_023_261_832,
            bytes_written=2_199_023_259_968,
            writes=16_402,
            strided_calls=16_384,
            independent_calls=18,
            collective_calls=16_384,
            requested_bytes_written=2_199_023_259_968,
            fastest_rank_bytes=1 << 30,
            slowest_rank_bytes=1 << 30,
            stripe_count=24,
        ),
    ),
    uses_hdf5=True,
)

#: IOR, a file for each process, on 24 targets of which one is broken.
BAD_TARGET = LogFacts(
    program=f"{_HOME}/bin.edison/ior -H -k -w -o ior-posix.out -s 64 -f {_HOME}/inputs/posix1m2.in",
    processes=2048,
    run_seconds=780.0,
    busy_seconds=70_014.989,
    slowest_rank_seconds=778.695,
    metadata_seconds_max=0.7291,
    bytes_read=1_654_784,
    bytes_written=549_755_813_888,
    writes=131_072,
    own_files=2048,
    ranks_with_own_files=2048,
    own_bytes=549_755_813_888,
    own_folder="/scratch1/scratchdirs/glock/test-scratch1",
    tiny_file=TinyFile(f"{_HOME}/inputs/posix1m2.in", 808, 299.808),
    slow_target=SlowTarget(ost=14, times_slower=49.475, targets=24),
    slow_rank=SlowRank(rank=1507, seconds=778.494, median_seconds=12.0),
)

#: By the name of the file in `darshan/examples/example_logs`.
GOLDEN_LOGS = {"example.darshan": VPIC, "sample-badost.darshan": BAD_TARGET}
