# SPDX-License-Identifier: Apache-2.0
"""The rules for a stream, from what Forebay itself saw of it. Each is a function of the facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from shlex import quote

from forebay.durations import format_duration
from forebay.records import ConsumerInfo, StreamStatus, WaitKind
from forebay.sizes import format_size
from forebay.workflows.advice.advice import ACTIONS_MAX, Action, Advice
from forebay.workflows.advice.stream_facts import StreamFacts, WriterWait

__all__ = ["STREAM_RULES", "advice_of_stream"]

_MIB = 1 << 20
_STEPS_MIN = 1000
_BLOCKS_MIN = 1000
_LAG_STEPS = 10
_FILL_SECONDS = 600.0
#: A reservation is too large if this many times of what is needed fit.
_TOO_LARGE_TIMES = 4

_OWN_COUNTERS = "the server's own records"
_DESIGN = "Forebay's promise: readers never slow the writer"


def advice_of_stream(facts: StreamFacts) -> Advice:
    """The verdict on a stream, and what to do."""
    actions = [action for _, rule in STREAM_RULES if (action := rule(facts)) is not None]
    share = facts.waiting_share
    if share:
        verdict = (
            f"Worth doing: in {share * 100:.0f} % of the looks a rank waited; at most so much of its time can be gained"
        )
    elif actions:
        waits = "nobody writes now" if share is None else "no rank waits, so the program gains no time"
        verdict = f"Worth a look: {waits}, but other things can be better"
    elif share is None:
        verdict = "Do not bother: nobody writes now, and what is kept shows no flaw"
    else:
        verdict = "Do not bother: no rank waits, and no rule found a flaw; nothing can be gained"
    return Advice(
        worthwhile=bool(actions),
        verdict=f"{verdict}.",
        gain_max=share,
        rules=tuple(sorted(action.rule for action in actions)),
        actions=tuple(actions[:ACTIONS_MAX]),
    )


def _wait(facts: StreamFacts, kind: WaitKind) -> WriterWait | None:
    return next((wait for wait in facts.waits if wait.kind is kind), None)


def _seen(wait: WriterWait) -> str:
    return f"{wait.who} waits for {wait.waits_for}, since {wait.seconds:.1f} s"


def _behind(facts: StreamFacts) -> ConsumerInfo | None:
    """Of the consumers that the retention waits for, the one that is most behind."""
    held = [known for known in facts.consumers if known.name in facts.retention.consumers and known.lag_steps]
    return max(held, key=lambda known: known.lag_steps, default=None)


def _capacity_for(needed: int) -> str:
    """As commands take it."""
    unit, name = (1 << 30, "GiB") if needed >= 1 << 30 else (_MIB, "MiB")
    return f"{max(1, -(-needed // unit))}{name}"


def _space(facts: StreamFacts) -> Action | None:
    wait = _wait(facts, WaitKind.SPACE)
    return None if wait is None else replace(_room(facts), rule=21, because=_seen(wait))


def _room(facts: StreamFacts) -> Action:
    """How to make room: by what holds most of it. The rule and what was seen are for the caller to say."""
    if facts.precious_bytes > facts.capacity_bytes // 2:
        what = f"Stage out the {facts.precious_steps} precious steps, which hold {format_size(facts.precious_bytes)}"
        return Action(0, what, "", "their space comes back with the receipt", _OWN_COUNTERS, (_stage_out(facts),))
    if (consumer := _behind(facts)) is not None and not consumer.connected:
        return Action(
            0,
            f"Start consumer {consumer.name} again, or remove it: it is away and {consumer.lag_steps} steps behind",
            "",
            "what it has not read need not be kept; if it is removed, its place is forgotten",
            _OWN_COUNTERS,
            (f"forebay consumer remove {facts.path} {quote(consumer.name)}",),
        )
    if facts.retention.last is None:
        what = "Keep the newest steps only"
        if consumer is not None:
            what += f", for consumer {consumer.name} is {consumer.lag_steps} steps behind, or make it faster"
        return Action(
            0,
            what,
            "",
            "the writer never waits for space. Older steps are dropped at once: stage out first what is to stay",
            _OWN_COUNTERS,
            (f"forebay stream retention {facts.path} {_last(facts)}",),
        )
    return Action(
        0,
        f"Take a larger reservation: {facts.retention.last} kept steps and two more do not fit",
        "",
        "the writer never waits for space",
        "capacity = bytes of a step times (kept + 2)",
        (f"forebay create NAME --capacity {_capacity_for(facts.step_bytes_max * (facts.retention.last + 2))}",),
    )


def _stage_out(facts: StreamFacts) -> str:
    every = f" --every {facts.retention.precious_every}" if facts.retention.precious_every else ""
    return f"forebay stage-out {facts.path} DESTINATION{every} --follow"


def _last(facts: StreamFacts) -> str:
    """A retention that fits: the largest number of steps that leaves room for two more."""
    fits = facts.capacity_bytes // facts.step_bytes_max - 2 if facts.step_bytes_max else 1
    precious = f",precious:{facts.retention.precious_every}" if facts.retention.precious_every else ""
    return f"last:{max(1, fits)}{precious}"


def _readers(facts: StreamFacts) -> Action | None:
    wait = _wait(facts, WaitKind.READERS)
    if wait is None:
        return None
    return Action(
        22,
        "Do not let the writer wait for readers, or let them lag further",
        _seen(wait),
        "the writer goes on at its own speed; a reader that lags too far misses steps that retention drops",
        _DESIGN,
        ('<parameter key="LagLimit" value="0"/>',),
    )


def _durable(facts: StreamFacts) -> Action | None:
    wait = _wait(facts, WaitKind.DURABLE)
    if wait is None:
        return None
    return Action(
        23,
        "Let a step end when it is committed, if a loss of power may cost the newest steps",
        _seen(wait),
        "no rank waits for the disk; committed steps survive the death of any process",
        _OWN_COUNTERS,
        ('<parameter key="Durability" value="committed"/>',),
    )


def _small_steps(facts: StreamFacts) -> Action | None:
    if facts.steps_written < _STEPS_MIN or not 0 < facts.step_bytes_median < _MIB:
        return None
    times = max(2, min(100, _MIB // facts.step_bytes_median))
    return Action(
        24,
        f"End a step only every {times} time steps, as one more dimension of its variables",
        f"{facts.steps_written} steps, the middle one of {format_size(facts.step_bytes_median)}",
        f"one commit, one record and one message to each reader in place of {times}",
        f"{_OWN_COUNTERS}; a step below 1 MiB costs more for its commit than for its bytes",
    )


def _small_blocks(facts: StreamFacts) -> Action | None:
    if facts.small_blocks < _BLOCKS_MIN or facts.small_blocks < 0.1 * facts.blocks:
        return None
    return Action(
        25,
        "Put fewer, larger blocks: several variables as one array, or one Put for several boxes",
        f"{facts.small_blocks} of {facts.blocks} blocks of the newest step are smaller than 4 KiB",
        "less metadata: each block has its place, extent, checksum, minimum and maximum",
        _OWN_COUNTERS,
    )


def _lag(facts: StreamFacts) -> Action | None:
    behind = [known for known in facts.consumers if known.lag_steps >= _LAG_STEPS]
    if not behind or _wait(facts, WaitKind.SPACE) is not None or _wait(facts, WaitKind.READERS) is not None:
        return None
    worst = max(behind, key=lambda known: known.lag_steps)
    late = ""
    if facts.step_seconds_median:
        late = f", about {format_duration(worst.lag_steps * facts.step_seconds_median)}"
    because = f"consumer {worst.name} is {worst.lag_steps} of {facts.kept_steps} steps behind{late}"
    if not worst.connected:
        return Action(
            26,
            f"Start consumer {worst.name} again, or remove it",
            f"{because}, and not connected",
            "what it has not read need not be kept; if it is removed, its place is forgotten",
            _OWN_COUNTERS,
            (f"forebay consumer remove {facts.path} {quote(worst.name)}",),
        )
    return Action(
        26,
        f"Let consumer {worst.name} read less or in parallel: parts of arrays, every Nth step, or a reader group",
        because,
        "it keeps up with the writer, which it does not slow either way",
        _DESIGN,
    )


def _verify(facts: StreamFacts) -> Action | None:
    if not facts.blocks_without_checksum:
        return None
    return Action(
        27,
        "Write checksums: without them no reader can check a block, and stage-out refuses unless told to accept it",
        f"{facts.blocks_without_checksum} of {facts.blocks} blocks of the newest step have none",
        "damage is an error in place of wrong data; a checksum costs one pass over bytes that are in the cache",
        _OWN_COUNTERS,
        ('<parameter key="Checksums" value="true"/>',),
    )


def _filling(facts: StreamFacts) -> Action | None:
    """It does not wait yet."""
    keeps_all = facts.retention.last is None and _wait(facts, WaitKind.SPACE) is None
    if not keeps_all or facts.status is not StreamStatus.LIVE or not facts.step_bytes_median:
        return None
    if facts.retention.consumers and _behind(facts) is None:
        return None
    left = max(0, facts.capacity_bytes - facts.used_bytes) // facts.step_bytes_median
    seconds = left * (facts.step_seconds_median or 0.0)
    if facts.step_seconds_median is None or seconds > _FILL_SECONDS:
        return None
    because = (
        f"{format_size(facts.used_bytes)} of {format_size(facts.capacity_bytes)} are used; at this pace the "
        f"reservation is full after {left} more steps, in {format_duration(seconds)}"
    )
    return replace(_room(facts), rule=28, because=because)


def _precious(facts: StreamFacts) -> Action | None:
    if facts.precious_bytes <= facts.capacity_bytes // 4 or _wait(facts, WaitKind.SPACE) is not None:
        return None
    return Action(
        29,
        "Stage the precious steps out while the program runs",
        f"{facts.precious_steps} precious steps hold {format_size(facts.precious_bytes)} of "
        f"{format_size(facts.capacity_bytes)}",
        "their space comes back with the receipt",
        _OWN_COUNTERS,
        (_stage_out(facts),),
    )


def _too_large(facts: StreamFacts) -> Action | None:
    if facts.retention.last is None or facts.steps_written < 2 * facts.retention.last or not facts.step_bytes_max:
        return None
    needed = max(facts.step_bytes_max * (facts.retention.last + 2), facts.used_bytes)
    if facts.capacity_bytes < max(_TOO_LARGE_TIMES * needed, needed + (1 << 30)):
        return None
    return Action(
        30,
        "Ask for less next time",
        f"{facts.retention.last} kept steps and two more are {format_size(needed)} of "
        f"{format_size(facts.capacity_bytes)}",
        "others wait less for room in the pool, and so may you",
        "capacity = bytes of a step times (kept + 2)",
        (f"forebay create {facts.path.partition('/')[0]} --capacity {_capacity_for(needed)}",),
    )


#: Numbers and rules, the weightiest first: who waits, what may be lost, what will wait, then what tunes.
STREAM_RULES: tuple[tuple[int, Callable[[StreamFacts], Action | None]], ...] = (
    (21, _space),
    (22, _readers),
    (23, _durable),
    (27, _verify),
    (28, _filling),
    (29, _precious),
    (26, _lag),
    (24, _small_steps),
    (25, _small_blocks),
    (30, _too_large),
)
