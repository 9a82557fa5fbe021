# SPDX-License-Identifier: Apache-2.0
"""Streams by step number: sequences of steps, state, modes, options, aborts, errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from tests.support.staging_server import StagingServer


def write(stream: forebay.WritableStream, *values: Any) -> None:
    """One step for each value."""
    for value in values:
        with stream.step() as step:
            step["T"] = value


def fail_within(context: AbstractContextManager[Any]) -> None:
    """Leaves the context by an exception."""
    with pytest.raises(ZeroDivisionError), context:
        raise ZeroDivisionError


def test_steps_are_a_sequence_in_every_mode(reservation: str) -> None:
    address = f"{reservation}/flow"
    before = time.time()
    with forebay.open(address, mode="w") as stream:
        assert len(stream.steps()) == 0
        write(stream, *range(5))
        assert [summary.number for summary in stream.steps()] == [0, 1, 2, 3, 4]
    for mode in ("r", "a"):
        with forebay.open(address, mode=mode) as stream:
            steps = stream.steps()
            assert isinstance(steps, Sequence)
            assert len(steps) == 5
            assert steps[-1].number == 4
            assert [summary.number for summary in steps[1:4:2]] == [1, 3]
            assert steps[2] in steps
            with pytest.raises(IndexError):
                steps[5]
            assert before - 1 <= steps[0].time <= steps[4].time <= time.time() + 1
            assert all(summary.size_bytes > 0 for summary in steps)
            assert steps[0].as_dict()["number"] == 0
            assert int(stream[3]["T"]) == 3
            assert int(stream[np.int64(3)]["T"]) == 3
            assert stream[3].summary.number == 3


def test_step_that_is_not_there_is_a_key_error(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, 0)
        with pytest.raises(forebay.StepNotFoundError):
            stream[1]
        with pytest.raises(KeyError, match="1 step is kept: there is no step -2"):
            stream[-2]


def test_dropped_step_is_gone(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:2") as stream:
        write(stream, *range(5))
        assert [summary.number for summary in stream.steps()] == [3, 4]
        with pytest.raises(forebay.StepGoneError) as caught:
            stream[0]
        assert isinstance(caught.value, KeyError)
        assert stream.info.retention == forebay.Retention(last=2)


def test_missing_stream_and_reservation_are_key_errors(reservation: str) -> None:
    for address in (f"{reservation}/nothing", "no-such-reservation/flow"):
        with pytest.raises(forebay.StreamNotFoundError) as caught:
            forebay.open(address, timeout=0)
        assert isinstance(caught.value, KeyError)
        assert "flow" in str(caught.value) or "nothing" in str(caught.value) or "no-such" in str(caught.value)
    with pytest.raises(forebay.StreamNotFoundError, match="no-such-reservation"):
        forebay.open("no-such-reservation/flow", mode="w")


def test_mode_w_replaces_and_a_goes_on(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w") as stream:
        first = stream.epoch
        write(stream, 1, 2)
    with forebay.open(address, mode="a") as stream:
        assert stream.next_step == 2
        write(stream, 3)
    reader = forebay.open(address)
    assert [int(reader[summary.number]["T"]) for summary in reader.steps()] == [1, 2, 3]
    kept = reader[0]
    with forebay.open(address, mode="a", append_after=0) as stream:
        assert stream.next_step == 1
        write(stream, 9)
    assert [int(reader[summary.number]["T"]) for summary in reader.steps()] == [1, 9]
    with forebay.open(address, mode="w") as stream:
        assert stream.epoch > first
        write(stream, 7)
    assert [int(reader[summary.number]["T"]) for summary in reader.steps()] == [7]
    assert int(kept["T"]) == 1


def test_mode_a_creates(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="a") as stream:
        write(stream, 1)
        assert stream.next_step == 1


def test_exception_aborts_the_step(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, 0)
        step = stream.step()
        step["T"] = np.zeros(1000)
        fail_within(step)
        assert len(stream.steps()) == 1
        with pytest.raises(ValueError, match="is over"):
            step["T"] = 1
        with stream.step() as step:
            assert step.number == 1
            step["T"] = 1
    assert forebay.open(f"{reservation}/flow").info.status == "ended"


def test_exception_leaves_the_stream_interrupted(reservation: str) -> None:
    stream = forebay.open(f"{reservation}/flow", mode="w")
    write(stream, 0)
    fail_within(stream)
    assert forebay.open(f"{reservation}/flow").info.status == "interrupted"
    with forebay.open(f"{reservation}/flow", mode="a") as stream:
        write(stream, 1)
    assert forebay.open(f"{reservation}/flow").info.status == "ended"


def test_info_tells_watermarks_and_size(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", durability="durable") as stream:
        info = stream.info
        assert (info.status, info.committed, info.durable, info.oldest, info.steps) == ("live", None, None, None, 0)
        write(stream, np.zeros(1000), np.zeros(1000))
        info = stream.info
        assert (info.status, info.committed, info.durable, info.staged) == ("live", 1, 1, None)
        assert (info.oldest, info.steps, info.epoch, info.ranks) == (0, 2, stream.epoch, 1)
        assert info.incarnation == stream.incarnation
        assert info.size_bytes >= 16000
        assert stream.steps()[1].durable


def test_full_reservation_says_who_holds_the_space(reservation: str) -> None:
    megabytes = np.zeros((16, 1 << 17))
    with (
        pytest.raises(forebay.NoSpaceError) as caught,
        forebay.open(f"{reservation}/flow", mode="w", when_full="error") as stream,
    ):
        write(stream, *[megabytes] * 6)
    assert "flow" in str(caught.value)
    assert caught.value.code == "no_space"


def test_oldest_steps_make_room(reservation: str) -> None:
    megabytes = np.zeros((16, 1 << 17))
    with forebay.open(f"{reservation}/flow", mode="w", when_full="drop_oldest") as stream:
        write(stream, *[megabytes] * 8)
        numbers = [summary.number for summary in stream.steps()]
        assert numbers[-1] == 7
        assert numbers[0] > 0


def test_two_groups_do_not_mix(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", group="one") as stream:
        write(stream, 0)
        with pytest.raises(forebay.BusyError):
            forebay.open(f"{reservation}/flow", mode="w", group="two", timeout=0.2)


def test_missing_rank_is_named(reservation: str) -> None:
    with pytest.raises(forebay.DeadlineExceededError, match="1") as caught:
        forebay.open(f"{reservation}/flow", mode="w", rank=0, ranks=2, timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert "rank" in str(caught.value)


def test_precious_steps_are_not_replaced_unless_forced(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", retention="precious:1") as stream:
        write(stream, 0)
    with pytest.raises(forebay.RefusedError):
        forebay.open(f"{reservation}/flow", mode="w")
    with forebay.open(f"{reservation}/flow", mode="w", force=True) as stream:
        assert len(stream.steps()) == 0


def test_bad_options_name_what_is_known(reservation: str) -> None:
    with pytest.raises(
        forebay.InvalidArgumentError, match="when_full='wait': expected one of block, drop_oldest, error"
    ):
        forebay.open(f"{reservation}/flow", mode="w", when_full="wait")  # type: ignore[call-overload]
    with pytest.raises(forebay.InvalidArgumentError, match="not 'x'"):
        forebay.open(f"{reservation}/flow", mode="x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="retain"):
        forebay.open(f"{reservation}/flow", mode="w", retain=3)  # type: ignore[call-overload]


def test_closed_stream_says_so(reservation: str) -> None:
    stream = forebay.open(f"{reservation}/flow", mode="w")
    write(stream, 0)
    held = stream[0]
    stream.close()
    stream.close()
    for use in (stream.steps, stream.step, lambda: stream[0], lambda: stream.info, lambda: stream.follow()):
        with pytest.raises(ValueError, match="is closed"):
            use()
    assert int(held["T"]) == 0


def test_flipped_bits_are_an_error_where_checked(server: StagingServer, reservation: str) -> None:
    address = f"{reservation}/flow"
    needle = b"forebay looks here" * 100
    with forebay.open(address, mode="w") as stream:
        write(stream, np.frombuffer(needle, "S1"))
    [segment] = [
        path
        for path in Path(server.root, "reservations").glob("*/segments/*")
        if path.is_file() and needle in path.read_bytes()
    ]
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(needle))
        file.write(b"F")
    step = forebay.open(address)[0]
    assert step["T"][0] == b"F"
    for check in (step.verify, step["T"].verify):
        with pytest.raises(forebay.CorruptError, match="T") as caught:
            check()
        assert isinstance(caught.value, ValueError)
    with pytest.raises(forebay.CorruptError):
        forebay.open(address, verify="read")[0]["T"].read()
