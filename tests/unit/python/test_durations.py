# SPDX-License-Identifier: Apache-2.0
"""Durations as people write them."""

from __future__ import annotations

import pytest

from forebay.durations import format_duration, parse_duration
from forebay.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1.5h", 5400), (" 30m ", 1800), ("14d", 14 * 86400), ("0s", 0)]
)
def test_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-1s", "1 h", "1w", "1h30m", "1e9s", "٣s", "nan", "9" * 50 + "s"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is no duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.6, "1 min"), (7500, "2 h 5 min"), (90061, "1 d 1 h"), (-3, "0 s")]
)
def test_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
