# SPDX-License-Identifier: Apache-2.0
"""A range of steps is held while it is worked on, and no more than readers may hold."""

from __future__ import annotations

import gc
import signal

import numpy as np
import pytest

import forebay
from tests.support.processes import PythonProcess

HOLDER = """
import sys, forebay
stream = forebay.open(sys.argv[1])
held = stream.hold(0, 2)
print("holds", *held.numbers, flush=True)
sys.stdin.readline()
"""


def write(stream: forebay.WritableStream, *numbers: int, size: int = 10) -> None:
    """One step for each number."""
    for number in numbers:
        with stream.step() as step:
            step["T"] = np.full(size, float(number))


def test_held_steps_stay_for_everybody(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w", retention="last:3") as writer:
        write(writer, 0, 1, 2)
        stream = forebay.open(address)
        with stream.hold(0, 1) as held:
            assert (held.numbers, len(held), held.closed) == ([0, 1], 2, False)
            assert repr(held) == f"<Hold of {address}: 2 steps, 0 to 1>"
            write(writer, *range(3, 9))
            assert stream.steps().numbers == [0, 1, 6, 7, 8]
            assert [float(step["T"][0]) for step in held] == [0, 1]
            assert forebay.open(address)[1]["T"][0] == 1
        assert held.closed
        assert list(held) == []
        write(writer, 9)
        assert stream.steps().numbers == [7, 8, 9]


def test_view_outlives_the_hold(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:1") as stream:
        write(stream, 0, size=100_000)
        with stream.hold() as held:
            [view] = [step["T"][...] for step in held]
        write(stream, *range(1, 30), size=100_000)
        assert np.all(view == 0)
        assert stream.steps().numbers == [0, 29]
        del view
        gc.collect()
        write(stream, 30)
        assert stream.steps().numbers == [30]


def test_bounds_count_back_and_are_what_is_kept_without_numbers(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:4,precious:5") as stream:
        write(stream, *range(12))
        for bounds, numbers in (
            ((), [0, 5, 8, 9, 10, 11]),
            ((-2,), [10, 11]),
            ((5, 9), [5, 8, 9]),
            ((None, 5), [0, 5]),
            ((-3, -2), [9, 10]),
        ):
            with stream.hold(*bounds) as held:
                assert held.numbers == numbers


def test_hold_of_what_is_not_there_is_refused(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:3") as stream:
        with pytest.raises(forebay.StepNotFoundError, match="nothing to hold"):
            stream.hold()
        write(stream, *range(6))
        with pytest.raises(forebay.StepGoneError, match=r"step 1 was dropped before .*retention is 'last:3'.*flow@1"):
            stream.hold(1, 4)
        with pytest.raises(forebay.StepNotFoundError, match="there is no step 9 yet: the newest is 5"):
            stream.hold(4, 9)
        with pytest.raises(forebay.StepNotFoundError, match="3 steps are kept: there is no step -4"):
            stream.hold(-4)
        with pytest.raises(forebay.InvalidArgumentError, match="oldest is step 5, after newest, step 4"):
            stream.hold(5, 4)
        with pytest.raises(forebay.ArgumentTypeError, match="oldest, the number of a step, is a whole number, not '3'"):
            stream.hold("3")  # type: ignore[arg-type]
        assert all(summary.pins == 0 for summary in stream.steps())


def test_hold_is_bounded_and_leaves_nothing_behind_where_it_fails(reservation: str) -> None:
    """Of 64 MiB readers without a name hold 16; the writer goes on beside what they hold."""
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:5", when_full="error") as stream:
        write(stream, *range(5), size=(4 << 20) // 8)
        with pytest.raises(forebay.NoSpaceError, match=r"only \d of the 5 steps can be held, which have 20.* MiB: "):
            stream.hold()
        assert all(summary.pins == 0 for summary in stream.steps())
        with stream.hold(0, 2):
            write(stream, *range(5, 25), size=(4 << 20) // 8)
            assert stream.steps().numbers[:3] == [0, 1, 2]


# crash-matrix: holding steps | a reader, killed while it holds a range of steps | nothing is held any more; retention goes on
def test_killed_holder_holds_nothing(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w", retention="last:3") as stream:
        write(stream, 0, 1, 2)
        with PythonProcess(HOLDER, address) as holder:
            assert holder.line() == "holds 0 1 2"
            write(stream, 3, 4, 5)
            assert stream.steps().numbers == [0, 1, 2, 3, 4, 5]
            holder.send(signal.SIGKILL)
            holder.finish()
        while any(summary.pins for summary in stream.steps()):
            pass  # until the server has seen its end; the test's timeout bounds it
        write(stream, 6)
        assert stream.steps().numbers == [4, 5, 6]
