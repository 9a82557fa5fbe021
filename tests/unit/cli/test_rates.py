# SPDX-License-Identifier: Apache-2.0
"""Rates of streams between two looks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import forebay
from forebay.cli.rates import Rates
from forebay.records import Retention, StreamInfo, StreamStatus


def info(**changes: Any) -> StreamInfo:
    known = StreamInfo(
        name="flow",
        uuid="u",
        epoch=1,
        incarnation=1,
        ranks=1,
        run="",
        original_name="",
        status=StreamStatus.LIVE,
        status_text="",
        oldest=None,
        committed=None,
        durable=None,
        staged=None,
        steps=0,
        size_bytes=0,
        committed_bytes=0,
        step_open=False,
        retention=Retention(),
        consumers=(),
        waits=(),
        epochs=(),
    )
    return replace(known, **changes)


def test_rates_are_what_came_between_two_looks() -> None:
    rates = Rates()
    (first,) = rates.look([info()], 10.0)
    assert (first.steps_per_second, first.bytes_per_second) == (None, None)
    (second,) = rates.look([info(committed=9, committed_bytes=4000)], 12.0)
    assert (second.steps_per_second, second.bytes_per_second) == (5.0, 2000.0)
    (third,) = rates.look([info(committed=9, committed_bytes=4000)], 13.0)
    assert (third.steps_per_second, third.bytes_per_second) == (0.0, 0.0)
    assert third.as_dict()["steps_per_second"] == 0.0


@pytest.mark.parametrize("changes", [{"epoch": 2}, {"uuid": "v"}, {"committed_bytes": 100}])
def test_no_rate_is_told_of_what_cannot_be_compared(changes: dict[str, Any]) -> None:
    """Steps that were withdrawn, a stream made anew, a server that was restarted."""
    rates = Rates()
    rates.look([info(committed=9, committed_bytes=4000)], 10.0)
    (rate,) = rates.look([info(**({"committed": 3, "committed_bytes": 5000} | changes))], 11.0)
    assert (rate.steps_per_second, rate.bytes_per_second) == (None, None)


def test_each_stream_is_compared_with_itself() -> None:
    rates = Rates()
    rates.look([info(name="a", committed=0, committed_bytes=1)], 1.0)
    found = rates.look([info(name="b"), info(name="a", committed=1, committed_bytes=3)], 2.0)
    assert [(rate.info.name, rate.bytes_per_second) for rate in found] == [("b", None), ("a", 2.0)]
    assert isinstance(found[0].info, forebay.StreamInfo)
