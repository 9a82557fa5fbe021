# SPDX-License-Identifier: Apache-2.0
"""The rules of `forebay advise` for a stream: each fires on what it is for, and on nothing near it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from forebay.records import ConsumerInfo, Retention, StreamStatus, WaitKind
from forebay.workflows.advice.advice import Action
from forebay.workflows.advice.stream_facts import StreamFacts, WriterWait
from forebay.workflows.advice.stream_rules import STREAM_RULES, advice_of_stream

_MIB = 1 << 20
_GIB = 1 << 30

#: A live stream of 64 MiB a second in a reservation of 1 GiB, with which nothing is wrong.
SOUND = StreamFacts(
    path="run1/flow",
    status=StreamStatus.LIVE,
    capacity_bytes=_GIB,
    used_bytes=512 * _MIB,
    retention=Retention(last=5),
    steps_written=100,
    kept_steps=5,
    step_bytes_median=64 * _MIB,
    step_bytes_max=64 * _MIB,
    step_seconds_median=1.0,
    blocks=16,
    consumers=(ConsumerInfo("plot", 98, 2, True, 7),),
    waiting_share=0.0,
)
SPACE = WriterWait(WaitKind.SPACE, "rank 0", "space", 3.0)


def stream(**changes: Any) -> StreamFacts:
    """The sound stream with something about it changed."""
    return replace(SOUND, **changes)


def consumer(lag: int, connected: bool = True) -> tuple[ConsumerInfo, ...]:
    """One that lags."""
    return (ConsumerInfo("plot", 0, lag, connected, 7),)


FIRES = [
    (21, stream(waits=(SPACE,)), SOUND),
    (22, stream(waits=(replace(SPACE, kind=WaitKind.READERS),)), SOUND),
    (23, stream(waits=(replace(SPACE, kind=WaitKind.DURABLE),)), SOUND),
    (
        24,
        stream(steps_written=1000, step_bytes_median=_MIB - 1),
        stream(steps_written=999, step_bytes_median=_MIB - 1),
    ),
    (25, stream(blocks=9000, small_blocks=1000), stream(blocks=10_001, small_blocks=1000)),
    (26, stream(consumers=consumer(10)), stream(consumers=consumer(9))),
    (27, stream(blocks_without_checksum=1), SOUND),
    (28, stream(retention=Retention()), stream(retention=Retention(), step_seconds_median=100.0)),
    (
        28,
        stream(retention=Retention(consumers=("plot",))),
        stream(retention=Retention(consumers=("plot",)), consumers=consumer(0)),
    ),
    (29, stream(precious_steps=5, precious_bytes=_GIB // 4 + 1), stream(precious_steps=5, precious_bytes=_GIB // 4)),
    (30, stream(capacity_bytes=2 * _GIB, step_bytes_max=32 * _MIB), stream(capacity_bytes=2 * _GIB - 1)),
]


@pytest.mark.parametrize(("rule", "fires", "silent"), FIRES, ids=[f"{row[0]}-{n}" for n, row in enumerate(FIRES)])
def test_a_rule_fires_alone_on_its_condition_and_not_just_below_it(
    rule: int, fires: StreamFacts, silent: StreamFacts
) -> None:
    assert advice_of_stream(fires).rules == (rule,)
    assert rule not in advice_of_stream(silent).rules
    action = dict(STREAM_RULES)[rule](fires)
    assert isinstance(action, Action)
    assert all((action.what, action.because, action.effect, action.source))
    assert all(len(text) < 300 for text in (action.what, action.because, action.effect, action.source))


def test_all_rules_are_there_once() -> None:
    assert sorted(number for number, _ in STREAM_RULES) == list(range(21, 31))


@pytest.mark.parametrize(
    ("facts", "begins"),
    [
        (SOUND, "Do not bother: no rank waits"),
        (stream(waiting_share=None, status=StreamStatus.ENDED), "Do not bother: nobody writes now"),
        (stream(blocks_without_checksum=1), "Worth a look: no rank waits, so the program gains no time"),
        (stream(waits=(SPACE,), waiting_share=0.25), "Worth doing: in 25 % of the looks a rank waited"),
    ],
)
def test_the_verdict_says_whether_anybody_waits(facts: StreamFacts, begins: str) -> None:
    advice = advice_of_stream(facts)
    assert advice.verdict.startswith(begins)
    assert advice.gain_max == facts.waiting_share
    assert advice.worthwhile == begins.startswith("Worth")


@pytest.mark.parametrize(
    ("changes", "what", "line"),
    [
        ({"retention": Retention()}, "Keep the newest steps only", "forebay stream retention run1/flow last:14"),
        (
            {"retention": Retention(precious_every=10)},
            "Keep the newest steps only",
            "forebay stream retention run1/flow last:14,precious:10",
        ),
        (
            {"retention": Retention(consumers=("plot",)), "consumers": consumer(12)},
            "Keep the newest steps only, for consumer plot is 12 steps behind, or make it faster",
            "forebay stream retention run1/flow last:14",
        ),
        (
            {"retention": Retention(consumers=("plot",)), "consumers": consumer(12, connected=False)},
            "Start consumer plot again, or remove it: it is away and 12 steps behind",
            "forebay consumer remove run1/flow plot",
        ),
        (
            {"precious_steps": 9, "precious_bytes": 576 * _MIB, "retention": Retention(last=5, precious_every=10)},
            "Stage out the 9 precious steps, which hold 576 MiB",
            "forebay stage-out run1/flow DESTINATION --every 10 --follow",
        ),
        (
            {"retention": Retention(last=20)},
            "Take a larger reservation: 20 kept steps and two more do not fit",
            "forebay create NAME --capacity 2GiB",
        ),
    ],
)
def test_room_is_made_where_most_of_it_is_held(changes: dict[str, Any], what: str, line: str) -> None:
    (action, *_) = advice_of_stream(stream(waits=(SPACE,), waiting_share=1.0, **changes)).actions
    assert (action.rule, action.what, action.lines) == (21, what, (line,))
    assert action.because == "rank 0 waits for space, since 3.0 s"


def test_what_a_line_drops_is_said() -> None:
    action = advice_of_stream(stream(waits=(SPACE,), retention=Retention())).actions[0]
    assert "dropped at once" in action.effect


def test_facts_are_a_document() -> None:
    document = json.loads(json.dumps(stream(waits=(SPACE,)).as_json()))
    assert (document["retention"], document["status"], document["waits"][0]["kind"]) == ("last:5", "live", "space")
    assert document["consumers"][0]["lag_steps"] == 2
