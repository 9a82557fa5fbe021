# SPDX-License-Identifier: Apache-2.0
"""Python processes that read together: one answer for all in each turn, whatever happens between their calls."""

from __future__ import annotations

import signal

import pytest

import forebay
from tests.support.group_reader import GroupReader
from tests.support.processes import PythonProcess


def write(stream: forebay.WritableStream, *values: int) -> None:
    """One step for each value."""
    for value in values:
        with stream.step() as step:
            step["n"] = value


def test_a_hundred_steps_dropped_between_two_calls_mix_nothing(reservation: str) -> None:
    """The steps are dropped while one rank has asked and the other has not."""
    address = f"{reservation}/flow"
    with forebay.open(address, "w", retention="last:1") as stream:
        write(stream, 0)
        with GroupReader(address, 0) as first, GroupReader(address, 1) as second:
            assert first.line() == second.line() == "open [0]"
            for turn in range(1, 4):
                first.ask()
                first.wait_until_asleep()
                write(stream, *range(100 * turn - 99, 100 * turn + 1))
                second.ask()
                number = 100 * turn
                assert first.line() == second.line() == f"step {number} {number}"
                first, second = second, first


def test_a_rank_that_is_killed_ends_the_group_by_name(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        write(stream, 0)
        with GroupReader(address, 0) as first, GroupReader(address, 1) as second:
            assert first.line() == second.line()
            first.ask()
            first.wait_until_asleep()
            second.send(signal.SIGKILL)
            assert first.line().startswith("GroupBrokenError: ")
            first.ask()
            assert "rank 1 of 2" in first.line()


def test_a_group_goes_on_without_a_rank_until_it_is_started_again(reservation: str) -> None:
    address = f"{reservation}/flow"
    goes_on: dict[str, object] = {"on_reader_lost": "continue"}
    with forebay.open(address, "w") as stream:
        write(stream, 0)
        with (
            GroupReader(address, 0, open_options=goes_on) as first,
            GroupReader(address, 1, open_options=goes_on) as second,
        ):
            assert first.line() == second.line()
            second.send(signal.SIGKILL)
            first.ask()
            assert first.line() == "step 0 0"


def test_a_rank_that_does_not_come_fails_the_open_by_name(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, "w"):
        pass
    with pytest.raises(forebay.DeadlineExceededError, match=r"ranks 1, 2 of 3 .* Ranks=1"):
        forebay.open(address, rank=0, ranks=3, group="g", timeout=0.01)


def test_what_is_given_in_the_call_counts(reservation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the environment has only one of the two variables, or both."""
    address = f"{reservation}/flow"
    monkeypatch.setenv("FOREBAY_RANK", "3")
    with forebay.open(address, "w", rank=0, ranks=1) as stream:
        write(stream, 7)
    assert int(forebay.open(address, rank=0, ranks=1)[0]["n"]) == 7
    assert int(forebay.open(address)[0]["n"]) == 7
    with pytest.raises(forebay.InvalidArgumentError, match="FOREBAY_RANKS"):
        forebay.open(address, "w")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0, "ranks": 2}, "share a group id"),
        ({"rank": 0}, "both rank and ranks"),
        ({"group": "g"}, "give rank= and ranks="),
        ({"rank": 0, "ranks": 2, "group": "g", "on_reader_lost": "stop"}, "expected one of end, continue"),
        ({"retention": "last:1"}, "is for writing"),
    ],
)
def test_wrong_options_are_told(reservation: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match=message):
        forebay.open(f"{reservation}/flow", **options)  # type: ignore[call-overload]
    with pytest.raises(forebay.InvalidArgumentError, match="for reading"):
        forebay.open(f"{reservation}/flow", "w", turn_timeout=1)  # type: ignore[call-overload]


LISTING = """
import pickle, sys, forebay
stream = forebay.open(sys.argv[1], rank=int(sys.argv[2]), ranks=2, group="g")
print("open", flush=True)
input()
print(stream.steps().numbers, len(stream), stream.latest.number, [step.number for step in stream], flush=True)
alone = pickle.loads(pickle.dumps(stream))
print(len(alone), flush=True)
try:
    stream.seek(0)
except forebay.UnsupportedError:
    print("unsupported", flush=True)
input()
try:
    list(stream)
except forebay.StepGoneError as error:
    print("gone", flush=True)
"""


def test_the_list_of_steps_is_that_of_the_open(reservation: str) -> None:
    """A step of it that is gone is an error, and so is one that was written anew."""
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        write(stream, 0, 1)
        with PythonProcess(LISTING, address, "0") as first, PythonProcess(LISTING, address, "1") as second:
            assert first.line() == second.line() == "open"
            for value, rank in enumerate((first, second), 2):
                write(stream, value)
                rank.tell()
                assert rank.line() == "[0, 1] 2 1 [0, 1]"
                assert rank.line() == str(value + 1), "a pickle of it reads alone, and sees what there is"
                assert rank.line() == "unsupported"
            stream.close()
            with forebay.open(address, "a", append_after=0) as again:
                write(again, 11)
            for rank in (first, second):
                rank.tell()
                assert rank.line() == "gone"
