# SPDX-License-Identifier: Apache-2.0
"""One rank writes each element of a variable once a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forebay


def test_block_written_twice_is_refused_and_the_first_stays(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            step.write("T", np.ones((4, 4)), shape=(8, 4), start=(0, 0))
            with pytest.raises(
                forebay.InvalidArgumentError,
                match=r"block at start \(3, 0\), count \(4, 4\) shares elements with the one at start \(0, 0\), "
                r"count \(4, 4\), written before by this rank in this step.*variable 'T'",
            ):
                step.write("T", np.zeros((4, 4)), shape=(8, 4), start=(3, 0))
            with pytest.raises(forebay.InvalidArgumentError, match="shares elements"):
                step["T"] = np.zeros((8, 4))
            with pytest.raises(forebay.InvalidArgumentError, match="shares elements"):
                step.allocate("T", (8, 4), start=(0, 0), count=(1, 1))
            step.write("T", np.full((4, 4), 2.0), shape=(8, 4), start=(4, 0))
            step.allocate("U", (3,))[...] = 1
            with pytest.raises(forebay.InvalidArgumentError, match="shares elements"):
                step["U"] = np.zeros(3)
        with stream.step() as step:
            step["T"] = np.zeros((8, 4))  # another step, another write
        assert stream[0]["T"][:, 0].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
        assert np.all(stream[0]["U"] == 1)


@pytest.mark.parametrize(("first", "second"), [(1, 2), ("one", "two"), (np.float32(1), np.float32(1))])
def test_value_written_twice_is_refused(reservation: str, first: Any, second: Any) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            step["n"] = first
            with pytest.raises(forebay.InvalidArgumentError, match=r"was written before in this step.*variable 'n'"):
                step["n"] = second
        assert stream.latest["n"] == first


def test_aborted_step_forgets_what_was_written(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        step = stream.step()
        step["T"] = np.zeros(3)
        step["n"] = 1
        step.abort()
        with stream.step() as step:
            step["T"] = np.ones(3)
            step["n"] = 2
        assert stream.latest["n"] == 2


def test_blocks_without_a_place_may_be_many(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            for _ in range(3):
                step.write("local", np.zeros(2), kind="local_array")
                step.write("joined", np.zeros((1, 2)), kind="joined_array")
                step.write("empty", np.zeros((0, 2)), shape=(4, 2), start=(0, 0))
        assert stream.latest["joined"].shape == (3, 2)


def test_what_is_not_written_does_not_count(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            with pytest.raises(forebay.InvalidArgumentError):
                step.write("T", np.zeros(3), shape=(4,), start=(2,))
            with pytest.raises(forebay.InvalidArgumentError):
                step.write("T", np.zeros(3), shape=(2**64 - 10,), start=(2**64 - 1,))
            step["T"] = np.ones(4)
        assert np.sum(stream.latest["T"]) == 4


@settings(max_examples=60)
@given(data=st.data())
@pytest.mark.filterwarnings("ignore:.*no block covers:forebay.FaultyVariableWarning")
def test_a_block_is_refused_exactly_if_it_shares_elements(reservation: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    written = np.zeros(shape, int)
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            for number in range(1, 1 + data.draw(st.integers(1, 12))):
                start = tuple(data.draw(st.integers(0, extent - 1)) for extent in shape)
                count = tuple(data.draw(st.integers(0, extent - at)) for extent, at in zip(shape, start, strict=True))
                box = tuple(slice(at, at + extent) for at, extent in zip(start, count, strict=True))
                block = np.full(count, number)
                if np.any(written[box]):
                    with pytest.raises(forebay.InvalidArgumentError, match="shares elements"):
                        step.write("T", block, shape=shape, start=start)
                else:
                    step.write("T", block, shape=shape, start=start)
                    written[box] = number
        np.testing.assert_array_equal(stream.latest["T"], written)
