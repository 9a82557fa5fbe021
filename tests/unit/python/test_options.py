# SPDX-License-Identifier: Apache-2.0
"""Options of a wrong type or name are told with what would be right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import forebay
from forebay import options


@pytest.mark.parametrize(
    ("seconds", "expected"), [(None, -1), (0, 0), (1.5, 1500), (np.float32(2), 2000), (np.int8(3), 3000)]
)
def test_seconds_are_numbers(seconds: Any, expected: int) -> None:
    assert options.milliseconds(seconds) == expected


@pytest.mark.parametrize("wrong", ["5", b"5", True, [5], object()])
def test_seconds_of_another_type_are_refused(wrong: Any) -> None:
    with pytest.raises(forebay.ArgumentTypeError, match="grace is a number of seconds, or None to wait for ever, not"):
        options.milliseconds(wrong, "grace")


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), 1e300])
def test_seconds_out_of_range_are_refused(wrong: float) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="timeout is a number of seconds from 0 on"):
        options.milliseconds(wrong)


def test_types_are_checked() -> None:
    assert options.integer("ranks", np.int16(3)) == 3
    assert options.flag("force", np.bool_(True)) is True
    wrongs: list[tuple[Any, Any]] = [
        (options.integer, 1.0),
        (options.integer, True),
        (options.flag, 1),
        (options.text, 1),
    ]
    for check, wrong in wrongs:
        with pytest.raises(forebay.ArgumentTypeError, match=f"x is .*, not {wrong!r}") as caught:
            check("x", wrong)
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, ValueError)
        assert caught.value.code == "invalid_argument"


def test_unknown_option_names_the_nearest() -> None:
    @options.known_options
    def paint(colour: str, *, line_width: int = 1) -> str:
        return f"{colour} {line_width}"

    assert paint("red", line_width=2) == "red 2"
    with pytest.raises(
        forebay.ArgumentTypeError,
        match=r"paint\(\) has no option 'linewidth'; did you mean 'line_width'\? known are colour, line_width",
    ):
        paint("red", linewidth=2)  # type: ignore[call-arg]
    with pytest.raises(forebay.ArgumentTypeError, match=r"has no option 'x'; known are"):
        paint("red", x=2)  # type: ignore[call-arg]
