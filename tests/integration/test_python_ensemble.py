# SPDX-License-Identifier: Apache-2.0
"""`forebay.follow_all` and `forebay follow 'RES/PATTERN'`: who joins, when it ends, what a lost member changes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import defaultdict
from typing import Any

import pytest

import forebay
from forebay.follower import Follower
from tests.support.follow_command import follow
from tests.support.load import until
from tests.support.time_limits import seconds


def write(address: str, steps: int, first: int = 0) -> None:
    with forebay.open(address, "w") as stream:
        for number in range(steps):
            stream.write("n", first + number)


def lose(address: str, grace: float = 0.1) -> None:
    """A writer that is killed after a step."""
    code = (
        f"import os, forebay; stream = forebay.open('{address}', 'w', grace={grace}); stream.write('n', 0); "
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False, timeout=seconds(100))


def numbers(steps: forebay.EnsembleFollower) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for step in steps:
        found[step.address.stream].append(int(step["n"]))
    return dict(found)


def test_all_streams_that_match_are_followed_and_no_other(reservation: str) -> None:
    for member in range(3):
        write(f"{reservation}/member-{member}", 4, 10 * member)
    write(f"{reservation}/other", 1)
    with forebay.follow_all(f"forebay://{reservation}/member-*", timeout=seconds(60)) as steps:
        assert numbers(steps) == {f"member-{member}": list(range(10 * member, 10 * member + 4)) for member in range(3)}
        assert sorted(address.stream for address in steps.addresses) == ["member-0", "member-1", "member-2"]


def test_streams_join_while_it_runs(reservation: str) -> None:
    write(f"{reservation}/member-0", 2)
    with forebay.follow_all(f"{reservation}/member-*", members=3, timeout=seconds(60)) as steps:
        found = [int(next(steps)["n"]), int(next(steps)["n"])]
        write(f"{reservation}/member-1", 1, 10)
        found.append(int(next(steps)["n"]))
        write(f"{reservation}/member-2", 1, 20)
        found += [int(step["n"]) for step in steps]
    assert found == [0, 1, 10, 20]


def test_a_fast_stream_leaves_the_others_their_turn(reservation: str) -> None:
    for member in range(2):
        write(f"{reservation}/member-{member}", 50)
    with forebay.follow_all(f"{reservation}/member-*", timeout=seconds(60)) as steps:
        order = []
        for _ in range(20):
            order.append(next(steps).address.stream)
            until(lambda: len(steps._arrived) == 1, "the other stream's next step to be there as well")
    first, second = order[:2]
    assert {first, second} == {"member-0", "member-1"}
    assert order == [first, second] * 10


def test_each_stream_keeps_the_position_of_the_consumer(reservation: str) -> None:
    pattern = f"{reservation}/member-*"
    for member in range(2):
        write(f"{reservation}/member-{member}", 3)
    seen: list[tuple[str, int]] = []
    with forebay.follow_all(pattern, "mean", timeout=seconds(60)) as steps:
        for step in steps:
            seen.append((step.address.stream, step.number))
            if len(seen) == 3:
                break  # the third is not acknowledged
    with forebay.follow_all(pattern, "mean", timeout=seconds(60)) as steps:
        again = [(step.address.stream, step.number) for step in steps]
    assert seen[2] in again
    assert sorted(seen[:2] + again) == [(f"member-{m}", n) for m in range(2) for n in range(3)]
    with forebay.follow_all(pattern, "mean", timeout=seconds(60)) as steps:
        assert list(steps) == []


def test_what_the_loop_has_done_is_not_given_again_however_slow_the_threads_are(
    reservation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that ends early: its last step comes again, those before it do not."""
    for member in range(2):
        write(f"{reservation}/member-{member}", 3)
    ended, wait = threading.Event(), Follower._next
    begun: set[int] = set()

    def after_the_end(follower: Follower, on_notice: Any) -> forebay.Step:
        if id(follower) in begun:
            ended.wait(60)
        begun.add(id(follower))
        return wait(follower, on_notice)

    with monkeypatch.context() as patched:
        patched.setattr(Follower, "_next", after_the_end)
        with forebay.follow_all(f"{reservation}/member-*", "mean", timeout=seconds(60)) as steps:
            done, in_hand = ((step.address.stream, step.number) for step in (next(steps), next(steps)))
        ended.set()
    with forebay.follow_all(f"{reservation}/member-*", "mean", timeout=seconds(60)) as steps:
        again = [(step.address.stream, step.number) for step in steps]
    assert done not in again
    assert in_hand in again
    assert len(again) == 5


def test_a_lost_stream_is_told_after_the_steps_of_all_others(reservation: str) -> None:
    lose(f"{reservation}/member-0")
    write(f"{reservation}/member-1", 3)
    with forebay.follow_all(f"{reservation}/member-*", timeout=seconds(60)) as steps:
        found = [next(steps).address.stream for _ in range(4)]
        with pytest.raises(forebay.StreamInterruptedError, match=f"{reservation}/member-0"):
            next(steps)
    assert sorted(found) == ["member-0", "member-1", "member-1", "member-1"]


def test_a_lost_stream_that_is_written_again_joins_again(reservation: str) -> None:
    lose(f"{reservation}/member-0")
    with (
        forebay.open(f"{reservation}/member-1", "w") as keeps_it_running,
        forebay.follow_all(f"{reservation}/member-*", "mean", members=2, timeout=seconds(60)) as steps,
    ):
        found: list[int] = []
        following = threading.Thread(target=lambda: found.extend(int(step["n"]) for step in steps))
        following.start()
        until(lambda: "1 of 2" in repr(steps), "the loss is noticed", timeout=seconds(60))
        with forebay.open(f"{reservation}/member-0", "a") as stream:
            stream.write("n", 1)
        keeps_it_running.close()
        following.join(60)
        assert found == [0, 1]


def test_a_wait_has_an_end(reservation: str) -> None:
    with forebay.follow_all(f"{reservation}/member-*", timeout=0.2) as steps:
        with pytest.raises(forebay.StepTimeoutError, match="no stream that is written matches"):
            next(steps)
        with forebay.open(f"{reservation}/member-0", "w") as stream:
            stream.write("n", 7)
            until(lambda: bool(steps.addresses), "the stream joins", timeout=seconds(60))
            assert int(next(steps)["n"]) == 7
            with pytest.raises(forebay.StepTimeoutError, match="of 1 streams"):
                next(steps)


def test_it_is_closed_while_another_thread_waits(reservation: str) -> None:
    with forebay.open(f"{reservation}/member-0", "w"):
        steps = forebay.follow_all(f"{reservation}/member-*")
        ended: list[list[forebay.Step]] = []
        waiting = threading.Thread(target=lambda: ended.append(list(steps)))
        waiting.start()
        steps.close()
        waiting.join(60)
        assert ended == [[]]


def test_a_task_waits_for_all_streams(reservation: str) -> None:
    async def follow() -> list[int]:
        with forebay.follow_all(f"{reservation}/member-*", members=2, timeout=seconds(60)) as steps:
            writing = asyncio.create_task(asyncio.to_thread(write, f"{reservation}/member-0", 3))
            found = [int((await anext(steps))["n"])]
            await writing
            await asyncio.to_thread(write, f"{reservation}/member-1", 1, 9)
            found += [int(step["n"]) async for step in steps]
            return found

    assert sorted(asyncio.run(follow())) == [0, 1, 2, 9]


@pytest.mark.parametrize("pattern", ["member-*", "r*/member-1", "{}/member-*@3", "{}/"])
def test_a_pattern_without_one_reservation_is_refused(reservation: str, pattern: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="write RES/PATTERN"):
        forebay.follow_all(pattern.format(reservation))


def test_a_reservation_that_is_not_there_is_told(reservation: str) -> None:
    with pytest.raises(forebay.NotFoundError):
        forebay.follow_all("nowhere/member-*")


def test_a_command_runs_for_each_step_of_each_stream(reservation: str) -> None:
    for member in range(3):
        write(f"{reservation}/member-{member}", 3)
    line = (f"{reservation}/member-*", "--jobs", "3", "--json", "--exec", "echo", "{stream}", "{step}", "{address}")
    status, output, errors = follow(*line)
    assert status == 0, errors
    assert json.loads(output) == {
        "streams": {f"member-{member}": 2 for member in range(3)},
        "consumer": "follow",
        "succeeded": 9,
        "failed": [],
    }
    assert sorted(errors.splitlines()) == [
        f"member-{m} {n} forebay://{reservation}/member-{m}@{n}" for m in range(3) for n in range(3)
    ]


def test_a_command_that_fails_stops_all_streams_and_the_same_line_continues(reservation: str) -> None:
    for member in range(2):
        write(f"{reservation}/member-{member}", 4)
    fails = 'test "$0 $1" != "member-1 2"'
    status, output, errors = follow(
        f"{reservation}/member-*", "--json", "--exec", "sh", "-c", fails, "{stream}", "{step}"
    )
    assert status == 1
    told = json.loads(output)
    assert [(failure["stream"], failure["step"]) for failure in told["failed"]] == [("member-1", 2)]
    assert "error: member-1, step 2: sh ended with status 1" in errors
    status, output, errors = follow(f"{reservation}/member-*", "--json", "--exec", "true")
    assert status == 0, errors
    assert json.loads(output)["succeeded"] + told["succeeded"] == 8


def test_members_that_come_later_are_waited_for(reservation: str) -> None:
    line = [sys.executable, "-m", "forebay", "follow", f"{reservation}/member-*", "--members", "2"]
    with subprocess.Popen([*line, "--exec", "echo", "{stream}"], stdout=subprocess.PIPE, text=True) as follower:
        write(f"{reservation}/member-0", 1)
        assert follower.stdout is not None
        assert follower.stdout.readline() == "member-0\n"
        write(f"{reservation}/member-1", 1)
        assert follower.stdout.readline() == "member-1\n"
        assert follower.wait(60) == 0


def test_a_lost_stream_is_an_exit_status_of_its_own(reservation: str) -> None:
    lose(f"{reservation}/member-0")
    write(f"{reservation}/member-1", 2)
    status, _, errors = follow(f"{reservation}/member-*", "--exec", "true")
    assert status == 3
    assert "writer group was lost" in errors
