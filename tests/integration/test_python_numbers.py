# SPDX-License-Identifier: Apache-2.0
"""A stream by step numbers: one step, slices, the newest, iteration, and a variable over all kept steps."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import basic_indices

import forebay

WHOLE = np.arange(6 * 5 * 4, dtype="float32").reshape(6, 5, 4)


def write(stream: forebay.WritableStream, *values: Any) -> None:
    """One step for each value."""
    for value in values:
        with stream.step() as step:
            step["T"] = value


def test_numbers_stay_when_older_steps_are_dropped(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:4,precious:5") as stream:
        assert (len(stream), bool(stream), list(stream), stream[:], stream.variables) == (0, True, [], [], [])
        with pytest.raises(forebay.StepNotFoundError, match="no steps yet"):
            _ = stream.latest
        with pytest.raises(forebay.StepNotFoundError, match="no steps yet"):
            stream[-1]
        write(stream, *range(12))
        kept = [0, 5, 8, 9, 10, 11]
        assert stream.steps().numbers == kept
        assert len(stream) == 6
        assert [int(step["T"]) for step in stream] == kept
        assert [number in stream for number in (0, 1, 8, 11, 12, -1, 2.0)] == [True, False, True, True] + [False] * 3
        assert np.int64(9) in stream
        assert (stream.latest.number, stream[-1].number, stream[-3].number, stream[-6].number) == (11, 11, 9, 0)
        with pytest.raises(forebay.StepNotFoundError, match="6 steps are kept: there is no step -7"):
            stream[-7]
        assert [step.number for step in stream[5:10]] == [5, 8, 9]
        assert [step.number for step in stream[-2:]] == [10, 11]
        assert [step.number for step in stream[::5]] == [0, 5, 10]
        assert [int(step["T"]) for step in stream[::-1]] == kept[::-1]
        assert all(step.pinned for step in stream[:])
        with pytest.raises(forebay.StepGoneError):
            stream[1]
        assert stream.variables == ["T"]
        assert "T" in stream
        assert "p" not in stream


def test_iteration_is_over_the_steps_of_its_beginning(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:3") as stream:
        write(stream, 0, 1, 2)
        steps = iter(stream)
        assert next(steps).number == 0
        write(stream, 3)
        assert [step.number for step in steps] == [1, 2]
        steps = iter(stream)
        write(stream, 4, 5, 6)
        with pytest.raises(forebay.StepGoneError, match="retention is 'last:3': to keep steps"):
            next(steps)


def pins_of(stream: forebay.Stream) -> int:
    """On all its steps."""
    return sum(summary.pins for summary in stream.steps())


def test_iterating_asks_for_more_and_more_steps_ahead(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, *range(300))
        pins = []
        for place, step in enumerate(stream):
            assert (step.number, int(step["T"])) == (place, place)
            pins.append(pins_of(stream))
            del step
        # Who stops at once has asked for one.
        assert pins[:2] == [1, 1]
        assert max(pins) == 32
        assert pins_of(stream) == 0


def test_iterating_ends_with_the_stream(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as writer:
        write(writer, *range(20))
    stream = forebay.open(f"{reservation}/flow")
    steps = iter(stream)
    assert [next(steps).number for _ in range(5)] == [0, 1, 2, 3, 4]
    stream.close()
    with pytest.raises(ValueError, match="is closed"):
        next(steps)


def test_iterating_leaves_readers_their_share(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, *range(40))
        assert max(pins_of(stream) for _ in stream) == 40 // 8


def test_an_error_is_told_at_its_step(reservation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, *range(40))
        one, many = stream._step, stream._steps_of

        def step(number: int) -> forebay.Step:
            if number == 10:
                raise forebay.CorruptError("the metadata does not match its checksum")
            return one(number)

        def steps_of(numbers: list[int]) -> list[forebay.Step]:
            if 10 in numbers:
                raise forebay.CorruptError("the metadata does not match its checksum")
            return many(numbers)

        monkeypatch.setattr(stream, "_step", step)
        monkeypatch.setattr(stream, "_steps_of", steps_of)
        seen: list[int] = []
        with pytest.raises(forebay.CorruptError):
            seen.extend(found.number for found in stream)
        assert seen == list(range(10))


def test_iterating_holds_few_bytes_ahead(reservation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, *range(20))
        monkeypatch.setattr("forebay.steps_ahead._KEPT_SHARE", 1)
        monkeypatch.setattr("forebay.steps_ahead._BYTES_MAX", 3 * stream.steps()[0].size_bytes)
        numbers, pins = zip(*((step.number, pins_of(stream)) for step in stream), strict=True)
        assert numbers == tuple(range(20))
        assert max(pins) == 3
        # Not even one: each is asked for when the loop comes to it.
        monkeypatch.setattr("forebay.steps_ahead._BYTES_MAX", 1)
        assert [(step.number, pins_of(stream)) for step in stream] == [(number, 1) for number in range(20)]


def test_a_step_that_was_asked_for_ahead_stays_and_a_later_one_is_told_gone(
    reservation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.steps_ahead._KEPT_SHARE", 1)
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:6") as stream:
        write(stream, *range(6))
        steps = iter(stream)
        assert [next(steps).number for _ in range(3)] == [0, 1, 2]
        write(stream, *range(6, 12))
        assert int(next(steps)["T"]) == 3
        with pytest.raises(forebay.StepGoneError, match="retention is 'last:6': to keep steps"):
            next(steps)


@pytest.mark.parametrize("wrong", [1.5, None, [1], True, b"T"])
def test_what_is_no_number_slice_or_name_is_refused(reservation: str, wrong: Any) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, 0)
        with pytest.raises(forebay.ArgumentTypeError, match="a stream takes a step's number, a slice of numbers or"):
            stream[wrong]
        assert wrong not in stream
        with pytest.raises(forebay.ArgumentTypeError, match="a step takes the name of a variable"):
            stream[0][wrong]


@pytest.fixture(scope="module")
def flow(server: object) -> forebay.Stream:
    """Six steps of an array in two blocks, a single value, a text and one value per rank."""
    with forebay.Admin() as admin:
        admin.create("series", "64MiB")
    with forebay.open("series/flow", mode="w") as stream:
        for number, values in enumerate(WHOLE):
            with stream.step() as step:
                step.write("T", values[:2], shape=values.shape, start=(0, 0), dims=("y", "x"))
                step.write("T", values[2:], shape=values.shape, start=(2, 0))
                step["time"] = number / 4
                step["label"] = f"step {number}"
                step.write("seconds", float(number), kind="local_value")
    return forebay.open("series/flow")


def test_variable_of_a_stream_is_a_series_over_its_steps(flow: forebay.Stream) -> None:
    series = flow["T"]
    assert (series.name, series.shape, series.ndim, series.size, len(series)) == ("T", (6, 5, 4), 3, 120, 6)
    assert (series.dtype, series.nbytes, series.dims) == (np.dtype("float32"), 480, ("step", "y", "x"))
    assert series.steps.tolist() == [0, 1, 2, 3, 4, 5]
    assert series.times_ns.tolist() == [summary.time_ns for summary in flow.steps()]
    np.testing.assert_array_equal(np.asarray(series), WHOLE)
    np.testing.assert_array_equal(series * 2 + 1, WHOLE * 2 + 1)
    assert np.max(series) == WHOLE.max()
    assert not series[3, 2:].flags.writeable
    assert (series[3, 2:].base is not None, series[-1, -1, -1]) == (True, 119)
    assert repr(series) == "<Series 'T' of series/flow: float32, shape (6, 5, 4), steps 0 to 5>"
    with pytest.raises(TypeError, match="unhashable"):
        hash(series)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(series)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(series, copy=False)
    with pytest.raises(IndexError, match="axis 0 with size 6"):
        series[6]
    with pytest.raises(IndexError, match="takes integers, slices and Ellipsis"):
        series[[0, 1]]  # type: ignore[index]


def test_single_values_are_a_series_of_numbers_or_texts(flow: forebay.Stream) -> None:
    time = flow["time"]
    assert (time.shape, time[2], time[...].tolist()) == ((6,), 0.5, [0, 0.25, 0.5, 0.75, 1, 1.25])
    assert time[-2:].tolist() == [1, 1.25]
    assert (time > 0.9).tolist() == [False] * 4 + [True] * 2
    assert flow["label"][::-2].tolist() == ["step 5", "step 3", "step 1"]
    assert (flow["label"] == "step 4").tolist() == [False] * 4 + [True, False]
    assert flow["seconds"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]


@given(index=basic_indices((6, 5, 4), allow_newaxis=False, allow_ellipsis=True))
def test_every_basic_index_of_a_series_equals_numpys(flow: forebay.Stream, index: Any) -> None:
    result, expected = flow["T"][index], WHOLE[index]
    assert type(result) is type(expected)
    assert result.shape == expected.shape
    assert np.array_equal(result, expected)


def test_series_pickles_and_reads_the_same_steps(flow: forebay.Stream) -> None:
    series = flow["T"]
    again = pickle.loads(pickle.dumps(series))
    assert again.__dask_tokenize__() == series.__dask_tokenize__()
    np.testing.assert_array_equal(again[1:3], WHOLE[1:3])
    assert pickle.loads(pickle.dumps(flow["label"]))[0] == "step 0"


def test_series_says_which_step_does_not_fit(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with pytest.raises(forebay.StepNotFoundError, match="no steps yet"):
            stream["T"]
        write(stream, np.zeros(3), np.zeros(3))
        assert stream["T"].shape == (2, 3)
        with pytest.raises(forebay.VariableNotFoundError, match="no variable 'p'; the newest step has T"):
            stream["p"]
        write(stream, np.zeros(4))
        with pytest.raises(
            forebay.InvalidArgumentError, match=r"shape \(3,\), but in the newest step .*\(4,\).*flow@1"
        ):
            stream["T"]
        with stream.step() as step:
            step["p"] = 1
            step.write("local", np.zeros(2), kind="local_array")
        with pytest.raises(forebay.VariableNotFoundError, match=r"1 of 4 kept steps have no variable 'T'.*flow@3"):
            stream["T"]
        with pytest.raises(forebay.VariableNotFoundError, match=r"3 of 4 kept steps have no variable 'p'.*flow@0"):
            stream["p"]
    with forebay.open(f"{reservation}/local", mode="w") as stream:
        with stream.step() as step:
            step.write("local", np.zeros(2), kind="local_array")
        with pytest.raises(forebay.InvalidArgumentError, match="a local array has no global shape"):
            stream["local"]


def test_series_whose_steps_went_says_what_keeps_them(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w", retention="last:2") as stream:
        write(stream, np.zeros(3), np.ones(3))
        series = forebay.open(address)["T"]
        write(stream, np.zeros(3))
        assert series[1].tolist() == [1, 1, 1]
        with pytest.raises(forebay.StepGoneError, match="retention is 'last:2': to keep steps"):
            series[0]
    with forebay.open(address, mode="w") as stream:
        write(stream, np.zeros(3), np.full(3, 9.0))
        with pytest.raises(forebay.StepGoneError, match="open the stream again"):
            series[1]
