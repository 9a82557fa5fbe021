# SPDX-License-Identifier: Apache-2.0
"""Errors stay short whatever there is to tell: the largest few and a count, sizes in units, long names cut."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

import forebay

MIB = np.zeros(1 << 20, np.uint8)


def write_until_full(stream: forebay.WritableStream) -> None:
    while True:
        stream.write("x", MIB)


def test_full_reservation_names_the_largest_holders_and_a_count(reservation: str) -> None:
    for number in range(12):
        retention = (
            "consumers:" + "+".join(f"consumer-with-a-long-name-{i}" for i in range(40)) if number == 5 else "all"
        )
        with forebay.open(f"{reservation}/stream{number}", "w", retention=retention) as stream:
            for _ in range(1 + (number % 6)):
                stream.write("x", MIB)
    for number in range(20):
        with forebay.open(f"{reservation}/stream5") as source, source.follow(f"c{number}", timeout=10) as follower:
            next(follower)
    with ExitStack() as stack:
        full = stack.enter_context(forebay.open(f"{reservation}/full", "w", when_full="error"))
        with pytest.raises(forebay.NoSpaceError) as raised:
            write_until_full(full)
        full.abandon()
        text = raised.value.what
    assert len(text) < 1000, text
    assert "MiB asked for" in text
    assert "bytes" not in text
    named = [part.split(":")[0] for part in text.partition("Held by")[2].split("[")[1:]]
    assert named[0] == "full", "the largest comes first"
    assert set(named[1:3]) <= {"stream5", "stream11"}
    assert "and 10 more streams with" in text
    assert "and 17 more consumers behind" in text


def test_name_that_is_too_long_is_told_so(reservation: str) -> None:
    long = "n" * 70
    told = r"the name \"nnn.*\.\.\.\" is too long: it has 70 bytes, and 64 are the most"
    with pytest.raises(forebay.InvalidArgumentError, match=told):
        forebay.open(f"{reservation}/{long}", "w")
    with forebay.Admin() as admin:
        with pytest.raises(forebay.InvalidArgumentError, match=told):
            admin.create(long, "64MiB")
        with pytest.raises(forebay.InvalidArgumentError, match="names begin with a letter"):
            admin.create("7up", "64MiB")
    with pytest.raises(forebay.InvalidArgumentError) as raised:
        forebay.open(f"{reservation}/{'x' * 100_000}")
    assert len(str(raised.value)) < 500
