# SPDX-License-Identifier: Apache-2.0
"""Sizes in words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forebay
from forebay.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        (4096, 4096),
        ("0", 0),
        ("17", 17),
        ("17B", 17),
        ("2GiB", 2 << 30),
        ("2 gib", 2 << 30),
        (" 1.5 MiB ", 3 << 19),
        ("1TiB", 1 << 40),
        ("500MB", 500_000_000),
        ("1kB", 1000),
        ("3KiB", 3072),
        ("2TB", 2 * 10**12),
    ],
)
def test_size_is_parsed(text: int | str, size_bytes: int) -> None:
    assert forebay.parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "-1", "2G", "2 G iB", "1e9", "0x10", "1.3B", "nan", "9EiB", "16777216TiB", -1, 2**63, True, 1.5]
)
def test_anything_else_is_a_clear_error(text: object) -> None:
    with pytest.raises(forebay.InvalidArgumentError) as caught:
        forebay.parse_size(text)  # type: ignore[arg-type]
    assert str(text) in str(caught.value)


def test_ambiguous_unit_names_both_meanings() -> None:
    with pytest.raises(ValueError, match=r"2GiB .* or 2GB"):
        forebay.parse_size("2G")


@given(st.integers(0, 2**62))
def test_formatted_size_is_near_and_parses(size_bytes: int) -> None:
    text = forebay.format_size(size_bytes)
    number, _, unit = text.partition(" ")
    factor = forebay.parse_size(f"1{unit}")
    assert abs(float(number) * factor - size_bytes) <= 0.0051 * factor


def test_formatted_size_uses_the_largest_unit() -> None:
    assert [forebay.format_size(size) for size in (0, 1023, 1024, 1536, 2 << 30)] == [
        "0 B",
        "1023 B",
        "1 KiB",
        "1.5 KiB",
        "2 GiB",
    ]


def test_a_text_of_any_length_is_refused_at_once() -> None:
    """The manager reads sizes of all users, and nobody else is served meanwhile."""
    began = time.monotonic()
    for text in ("1" + " " * 30_000 + "!", "1" * 30_000 + "!", " " * 30_000):
        with pytest.raises(InvalidArgumentError) as caught:
            forebay.parse_size(text)
        assert len(str(caught.value)) < 300
    assert time.monotonic() - began < 1
