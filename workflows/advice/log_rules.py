# SPDX-License-Identifier: Apache-2.0
"""The rules for a run of which there is a Darshan log. Each is a function of the facts; the numbers never change.

Thresholds are those of Drishti (J. L. Bez et al., "Drishti: Guiding End-Users in the I/O Optimization Journey", PDSW
2022) where the source says so; the others come from the talks of computing centres that are named with each action, and
from runs of a tile program with MPICH on two ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from shlex import quote

from forebay.sizes import format_size
from forebay.workflows.advice.advice import ACTIONS_MAX, Action, Advice
from forebay.workflows.advice.log_facts import LogFacts, SharedFile

__all__ = ["RULES", "advice_of"]

#: Below this share of the run time nothing is worth doing.
_SHARE_MIN = 0.05
#: Drishti: a kind of call matters from this share, and from this many.
_CALLS_SHARE = 0.1
_CALLS_MIN = 1000
_RANDOM_SHARE = 0.2
_UNEQUAL_SHARE = 0.15
_METADATA_SECONDS = 30.0
#: Of one writer.
_MUCH = 1 << 30
_MIB = 1 << 20
_GIB = 1 << 30
_GB = 10**9
#: ROMIO's buffer for collective writes, unless a hint changes it.
_COLLECTIVE_BUFFER = 16 << 20
#: Steps that are kept, of those that come again.
_KEPT_STEPS = 3

_STREAM_XML = (
    '<engine type="Plugin"><parameter key="PluginName" value="forebay"/>'
    '<parameter key="PluginLibrary" value="forebay_adios2"/><parameter key="Stream" value="run1/output"/></engine>'
)


def advice_of(facts: LogFacts) -> Advice:
    """The verdict on a run, and what to do."""
    actions = [action for _, rule in RULES if (action := rule(facts)) is not None]
    bound = facts.slowest_rank_share
    worthwhile = bound >= _SHARE_MIN or bool(facts.partial_modules)
    took = f"input and output take {_percent(facts.busy_share)} of the processes' time"
    if bound > 2 * facts.busy_share:
        took += f", and {_percent(bound)} of the run time on the slowest rank"
    gain = f"at most {_percent(bound)} of the run time can be gained"
    if bound < 0.9:  # Above that, something else would soon be the limit.
        gain += f" (a run {1 / (1 - bound):.2f} times as fast)"
    if not worthwhile:
        verdict = f"Do not bother: {took}; {gain}."
    elif actions:
        verdict = f"Worth doing: {took}; {gain}."
    else:
        verdict = f"Nothing to change: {took}, and no rule found a flaw; {gain}."
    remarks = []
    if facts.partial_modules:
        remarks.append(
            f"The log is incomplete: Darshan ran out of memory for {' and '.join(facts.partial_modules)}. Counts and "
            "times are too low. Run again with a larger DARSHAN_MODMEM"
        )
    return Advice(
        worthwhile,
        verdict,
        bound,
        tuple(sorted(action.rule for action in actions)),
        tuple(actions[:ACTIONS_MAX]) if worthwhile else (),
        tuple(remarks),
    )


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %" if share < 0.1 else f"{share * 100:.0f} %"


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _capacity(size: int) -> str:
    """As commands take it, in whole GiB."""
    return f"{max(1, -(-size // _GIB))}GiB"


def _create(size: int) -> str:
    return f"forebay create run1 --capacity {_capacity(size)}"


def _directive(size: int, access_mode: str = "striped") -> str:
    return f"#DW jobdw capacity={_capacity(size)} access_mode={access_mode} type=scratch"


def _shared(facts: LogFacts, holds: Callable[[SharedFile], bool]) -> SharedFile | None:
    """The largest shared file for which it holds."""
    return next((file for file in facts.shared_files if holds(file)), None)


def _mostly_collective(file: SharedFile) -> bool:
    return file.collective_calls > file.independent_calls


def _small_calls(facts: LogFacts) -> Action | None:
    small = facts.small_reads + facts.small_writes
    if small <= _CALLS_MIN or _share(small, facts.calls) <= _CALLS_SHARE:
        return None
    because = f"{small} of {facts.calls} calls are smaller than 1 MiB"
    larger = max(1, (facts.bytes_read + facts.bytes_written) // (4 * _MIB))
    effect = f"the same bytes are about {larger} calls of 4 MiB"
    if facts.small_reads > facts.small_writes:
        if facts.reads_root_files:
            return Action(
                1,
                "Write the ROOT files with baskets of 512 kB, and read them through a cache of 100 MB",
                because,
                "60 000 events of 60 branches: 30 006 reads with 2 kB baskets, 125 with 512 kB, 9 with the cache",
                "ATLAS on burst buffers; measured",
                ("TTree::SetCacheSize(100000000)", "tree.SetBasketSize(512000)"),
            )
        return Action(
            1,
            "Read in larger pieces, or read a stream's steps, whose blocks come whole",
            because,
            effect,
            "Drishti: more than 10 % and 1000 calls",
        )
    return Action(
        1,
        "Gather the writes: a stream packs small blocks and writes a rank's step in large pieces",
        because,
        effect,
        "Drishti: more than 10 % and 1000 calls; Nyx on burst buffers",
        (_create(facts.bytes_written), _STREAM_XML),
    )


def _unaligned(facts: LogFacts) -> Action | None:
    if _share(facts.unaligned_calls, facts.calls) <= _CALLS_SHARE:
        return None
    alignment = facts.alignment or _MIB
    stripe = format_size(alignment)
    action = Action(
        2,
        f"Begin each piece at a multiple of {stripe}; streams do so by themselves",
        f"{_percent(_share(facts.unaligned_calls, facts.calls))} of the calls are not aligned to {stripe}",
        "fewer locks change hands between ranks, and no block is read before it is written; how much, only a run tells",
        "Drishti: more than 10 %",
    )
    if not facts.uses_hdf5:
        return action
    line = f"H5Pset_alignment(access_properties, {alignment}, {alignment});"
    return Action(action.rule, action.what, action.because, action.effect, action.source, (line,))


def _independent_and_strided(facts: LogFacts) -> Action | None:
    file = _shared(
        facts,
        lambda file: (
            file.calls > _CALLS_MIN and not _mostly_collective(file) and _share(file.strided_calls, file.calls) > 0.5
        ),
    )
    if file is None:
        return None
    pieces = max(1, -(-(file.bytes_read + file.bytes_written) // _COLLECTIVE_BUFFER))
    how = "MPI_File_write_at_all(file, offset, buffer, count, type, MPI_STATUS_IGNORE);"
    if facts.uses_hdf5:
        how = "H5Pset_dxpl_mpio(transfer_properties, H5FD_MPIO_COLLECTIVE);"
    return Action(
        3,
        "Write collectively, or write a stream, where each rank has files of its own",
        f"{file.ranks} ranks write {file.path} in turns: {file.strided_calls} of {file.calls} calls leave gaps",
        f"about {pieces} calls of up to 16 MiB in place of {file.calls}",
        "tile runs of two ranks with MPICH: 5120 writes of 2 KiB became 5 to 20 of 0.5 to 2 MiB",
        (how, _create(facts.bytes_written), _STREAM_XML),
    )


def _sieving(facts: LogFacts) -> Action | None:
    file = _shared(
        facts,
        lambda file: (
            file.requested_bytes_written > 0
            and file.bytes_read > 0.5 * file.requested_bytes_written
            and file.requested_bytes_read < 0.1 * file.bytes_read
            and file.bytes_read + file.bytes_written >= 2 * file.requested_bytes_written
        ),
    )
    if file is None:
        return None
    moved = format_size(file.bytes_read + file.bytes_written)
    asked = format_size(file.requested_bytes_written)
    return Action(
        4,
        "Switch data sieving off for writes, or write collectively",
        f"MPI-IO reads {file.path} while it writes it: {moved} are moved for {asked}",
        f"{format_size(file.bytes_read)} need not be read, and ranks no longer lock each other's bytes",
        "tile runs of two ranks with MPICH: twice the bytes",
        hints=((file.path, "romio_ds_write=disable"),),
    )


def _collective(facts: LogFacts) -> Action | None:
    file = _shared(facts, _mostly_collective)
    if file is None:
        return None
    what = "Choose the number of aggregators: 2 to 16 for each server, a divisor of the number of ranks"
    effect = "by measurement only: in the tile runs, 5, 10 and 20 writes with 1, 2 and 4 aggregators"
    source = "KAUST: MPI-IO on burst buffers and Lustre"
    because = f"{file.collective_calls} collective calls on {file.path}"
    if file.stripe_count is None:
        return Action(
            5,
            what,
            f"{because}; the log does not say on how many servers it lies",
            effect,
            source,
            hints=((file.path, "cb_nodes=SERVERS_TIMES_2"),),
        )
    servers = file.stripe_count
    dividing = [times * servers for times in range(2, 17) if facts.processes % (times * servers) == 0]
    nodes = dividing[0] if dividing else 2 * servers
    because += f", over {servers} storage targets"
    if not dividing:
        because += f"; no multiple of {servers} divides {facts.processes} ranks"
    return Action(5, what, because, effect, source, hints=((file.path, f"cb_nodes={nodes}"),))


def _file_for_each_process(facts: LogFacts) -> Action | None:
    everywhere = facts.ranks_with_own_files >= 0.8 * facts.processes
    if facts.processes == 1 or not everywhere or facts.own_bytes < 0.5 * (facts.bytes_read + facts.bytes_written):
        return None
    return Action(
        6,
        "Give each file one stripe, and each rank a scratch of its own",
        f"{facts.own_files} files of {facts.ranks_with_own_files} ranks, one rank each",
        "a file on one target is opened and removed with one message; a private scratch shares no metadata",
        "NERSC: Lustre striping",
        (
            f"lfs setstripe -c 1 {quote(facts.own_folder)}",
            _directive(facts.bytes_written, "private"),
        ),
    )


def _stripes_for(size: int) -> tuple[int, int]:
    """The least and the most stripes for a shared file."""
    if size < 10 * _GB:
        return 1, 1
    return (4, 20) if size <= 1000 * _GB else (20, 2**31)


def _stripes(facts: LogFacts) -> Action | None:
    file = _shared(
        facts,
        lambda file: (
            file.stripe_count is not None
            and not _stripes_for(file.size)[0] <= file.stripe_count <= _stripes_for(file.size)[1]
        ),
    )
    if file is None:
        return None
    least, most = _stripes_for(file.size)
    wanted = least if (file.stripe_count or 0) < least else most
    return Action(
        7,
        f"Give the file {wanted} stripe{'s' if wanted > 1 else ''}",
        f"{file.path} has {format_size(file.size)} on {file.stripe_count} stripes",
        "the bandwidth of as many targets, or fewer messages for a small file",
        "NERSC: 1 stripe below 10 GB, 4 to 20 below 1 TB, 20 and more above",
        (f"lfs setstripe -c {wanted} {quote(str(PurePath(file.path).parent))}",),
    )


def _tiny_file(facts: LogFacts) -> Action | None:
    tiny = facts.tiny_file
    if tiny is None or tiny.seconds < 0.01 * facts.busy_seconds:
        return None
    return Action(
        8,
        "Let one rank read the file and broadcast it; keep it off the burst buffer",
        f"all {facts.processes} ranks open {tiny.path} of {format_size(tiny.size)}: {tiny.seconds:.1f} s together",
        f"{_percent(tiny.seconds / facts.busy_seconds)} of the time of input and output",
        "KAUST: small files on burst buffers",
        ("MPI_Bcast(buffer, size, MPI_BYTE, 0, MPI_COMM_WORLD);",),
    )


def _random_reads(facts: LogFacts) -> Action | None:
    if facts.random_reads <= _CALLS_MIN or _share(facts.random_reads, facts.reads) <= _RANDOM_SHARE:
        return None
    size = max([file.size for file in facts.shared_files], default=0) or facts.bytes_read
    return Action(
        9,
        "Stage the input in before the run: flash does not mind the order",
        f"{facts.random_reads} of {facts.reads} reads go backwards",
        "a read costs the time of flash, not of a disk's arm or of a network's round trip",
        "Drishti: more than 20 % and 1000 reads",
        (
            f"forebay create run1 --capacity 0 --files {_capacity(size)}",
            "forebay stage-in INPUT run1:INPUT",
            _directive(size),
        ),
    )


def _steps_as_files(facts: LogFacts) -> Action | None:
    steps = facts.step_files
    if steps is None:
        return None
    room = steps.step_bytes * (_KEPT_STEPS + 2)
    return Action(
        10,
        "Write the steps into a reservation and copy one in ten to the file system",
        f"{steps.steps} steps of up to {format_size(steps.step_bytes)}, {steps.how}: {steps.path}",
        f"{format_size(room)} hold {_KEPT_STEPS} steps, the one being written and the one being copied",
        "capacity = bytes of a step times (kept + 2)",
        (f"forebay create run1 --capacity 0 --files {_capacity(room)}", _directive(room)),
    )


def _one_writer(facts: LogFacts) -> Action | None:
    writer = facts.one_writer
    if writer is None or writer.bytes_written < _MUCH:
        return None
    return Action(
        11,
        "Let more ranks write: about 16 for each server",
        f"rank {writer.rank} of {facts.processes} writes {format_size(writer.bytes_written)}, nearly all",
        "one rank writes at the speed of one core; 16 fill a server",
        "Nyx on burst buffers",
        (_create(facts.bytes_written), _STREAM_XML),
    )


def _slow_one(facts: LogFacts) -> Action | None:
    source = "Drishti: stragglers"
    if (target := facts.slow_target) is not None:
        return Action(
            12,
            f"Have storage target OST {target.ost} looked at; leave it out until then",
            f"a byte takes {target.times_slower:.0f} times as long there as on the median of {target.targets} targets",
            "all ranks wait for the slowest: the run gets as fast as the others are",
            source,
            (f"lfs df -v | grep OST{target.ost:04x}",),
        )
    if (rank := facts.slow_rank) is not None:
        return Action(
            12,
            f"Look at rank {rank.rank}: its node, and what it alone writes",
            f"it takes {rank.seconds:.1f} s for its files, the median rank {rank.median_seconds:.1f} s",
            "all ranks wait for the slowest",
            source,
        )
    moved = facts.bytes_read + facts.bytes_written
    file = _shared(
        facts,
        lambda file: (
            not _mostly_collective(file)
            and _share(file.bytes_read + file.bytes_written, moved) > _CALLS_SHARE
            and _inequality(file) > _UNEQUAL_SHARE
        ),
    )
    if file is None:
        return None
    return Action(
        12,
        "Give all ranks the same share of the file",
        f"the slowest rank moves {format_size(file.slowest_rank_bytes or 0)} of {file.path}, "
        f"the fastest {format_size(file.fastest_rank_bytes or 0)}",
        "all ranks wait for the slowest",
        f"{source}, more than 15 %",
    )


def _inequality(file: SharedFile) -> float:
    """How much less one of the fastest and the slowest rank moves than the other: 0 to 1."""
    least, most = sorted((file.fastest_rank_bytes or 0, file.slowest_rank_bytes or 0))
    return _share(most - least, most)


def _metadata(facts: LogFacts) -> Action | None:
    if facts.metadata_seconds_max <= _METADATA_SECONDS:
        return None
    seconds = facts.metadata_seconds_max
    threads = " (its threads together)" if seconds > facts.run_seconds else ""
    return Action(
        13,
        "Open fewer files, and keep them open; a stream is one open for all steps",
        f"a rank spends {seconds:.0f} s{threads} in open, stat, sync and close",
        f"up to {min(seconds, facts.run_seconds):.0f} s of {facts.run_seconds:.0f} s",
        "Drishti: more than 30 s",
        (_create(facts.bytes_written), _STREAM_XML),
    )


#: Numbers and rules, the weightiest first: what is broken, what multiplies bytes or calls, then what tunes.
RULES: tuple[tuple[int, Callable[[LogFacts], Action | None]], ...] = (
    (12, _slow_one),
    (4, _sieving),
    (3, _independent_and_strided),
    (1, _small_calls),
    (11, _one_writer),
    (13, _metadata),
    (8, _tiny_file),
    (9, _random_reads),
    (5, _collective),
    (2, _unaligned),
    (6, _file_for_each_process),
    (7, _stripes),
    (10, _steps_as_files),
)
