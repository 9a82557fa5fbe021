# SPDX-License-Identifier: Apache-2.0
"""What followers do about a step with a part on a server that is away: OnUnavailable=wait, skip and error."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.workflows.manager.commands.why_streams import answer_of
from tests.servers.three_servers import be_far, three_servers, wait_until_away, wait_until_present
from tests.support.load import until
from tests.support.processes import PythonProcess
from tests.support.server_pool import ServerPool
from tests.support.time_limits import seconds

pytestmark = [pytest.mark.timeout(60)]

#: Elements of an array that is spread over all three servers.
LENGTH = 1_000_000
#: What is said of step 1 while server 2 is away.
AWAY = r"step 1 has a part on member 2 of the reservation: server server2 is away since \d{4}-\d\d-\d\d \d\d:"

#: A rank of a reader group, or a reader alone, which takes a turn for each line: its timeout.
READER = """
    import sys, forebay
    stream = forebay.open("run1/flow", **eval(sys.argv[1]))
    follower = stream.follow(on_notice=lambda notice: print("notice", notice.text, flush=True))
    print("open", flush=True)
    for line in sys.stdin:
        follower.timeout = float(line)
        try:
            step = next(follower)
        except StopIteration:
            print("end", flush=True)
        except forebay.ForebayError as error:
            print(type(error).__name__, error, flush=True)
        else:
            print("step", step.number, step.skipped, flush=True)
"""

#: The same with ADIOS2, which prints notices to standard error.
ADIOS2_READER = """
    import os, sys, adios2, forebay.adios2
    os.dup2(1, 2)
    io = adios2.Adios().declare_io("reader")
    forebay.adios2.configure(io, "run1/flow", RandomAccess="false", OnUnavailable=sys.argv[1])
    stream = adios2.Stream(io, "flow", "r")
    print("open", flush=True)
    for line in sys.stdin:
        try:
            status = stream.begin_step(timeout=float(line))
        except RuntimeError as error:
            print("error", error, flush=True)
            continue
        if status != adios2.bindings.StepStatus.OK:
            print(str(status).rpartition(".")[2], flush=True)
            continue
        print("step", stream.current_step(), int(stream.read("n")), flush=True)
        stream.end_step()
    stream.close()
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerPool]:
    """Three servers, and this process on another node."""
    with three_servers(tmp_path) as made:
        be_far(made, tmp_path, monkeypatch)
        yield made


def write(stream: forebay.WritableStream, number: int, *, large: bool = False) -> None:
    """The stream's next step, which lies on the home, or on all servers."""
    try:
        with stream.step() as step:
            step["n"] = number
            if large:
                step["T"] = np.full(LENGTH, float(number))
    except forebay.UnavailableError:
        # What was granted on a server before it went is refused once.
        assert not large
        write(stream, number)


def write_three(**options: Any) -> None:
    """A stream that has ended. Server 2 has a part of step 1 alone."""
    with forebay.open("run1/flow", "w", **options) as stream:
        write(stream, 0)
        write(stream, 1, large=True)
        write(stream, 2)


def take_away(pool: ServerPool) -> None:
    pool.servers[2].kill()
    wait_until_away(pool)


def bring_back(pool: ServerPool) -> None:
    present = pool.servers[0].log().count("is there")
    pool.servers[2].start()
    wait_until_present(pool, present + 1)


class Later:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._outcome: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue()
        self._call = call
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._outcome.put((self._call(), None))
        except BaseException as error:
            self._outcome.put((None, error))

    def is_done(self) -> bool:
        return not self._outcome.empty()

    def result(self) -> Any:
        value, error = self._outcome.get(timeout=seconds(30))
        if error is not None:
            raise error
        return value


def check(step: forebay.Step) -> None:
    """All of step 1 is there."""
    assert step.number == 1
    assert np.array_equal(step["T"][...], np.full(LENGTH, 1.0))


def test_a_follower_waits_until_the_server_is_back_and_later_steps_do_not_overtake(pool: ServerPool) -> None:
    with forebay.open("run1/flow", "w", lag_limit=10) as writer, forebay.open("run1/flow") as stream:
        notices: list[forebay.Notice] = []
        follower = stream.follow(on_notice=notices.append)
        write(writer, 0)
        write(writer, 1, large=True)
        assert next(follower).number == 0
        take_away(pool)
        waiting = Later(lambda: next(follower))
        until(lambda: bool(notices), "the follower is told what it waits for")
        write(writer, 2)
        until(lambda: bool(stream.info.waits), "the follower waits on")
        (wait,) = stream.info.waits
        assert "step 1 has a part on member 2" in wait.waits_for
        assert wait.kind is forebay.WaitKind.SERVER
        # As `forebay why` says it.
        assert answer_of("run1/flow", wait).ends.startswith("the server, when it is back")
        assert not waiting.is_done()
        bring_back(pool)
        step = waiting.result()
        check(step)
        assert step.skipped == 0
        assert next(follower).number == 2
        assert [notice.text for notice in notices] == [f"waiting for a server that is away: {wait.waits_for}"]


@pytest.mark.parametrize("timeout", [0.0, 0.3])
def test_a_wait_that_ends_names_the_server_and_leaves_the_step_next(pool: ServerPool, timeout: float) -> None:
    write_three()
    with forebay.open("run1/flow") as stream:
        follower = stream.follow(timeout=seconds(20))
        assert next(follower).number == 0
        take_away(pool)
        follower.timeout = timeout
        for _ in range(2):
            with pytest.raises(forebay.StepTimeoutError, match=AWAY):
                next(follower)
        assert follower.position == 1
        # It can be had by its number, and what lies at home be read.
        assert stream[1]["n"] == 1
        bring_back(pool)
        follower.timeout = seconds(20)
        check(next(follower))
        assert [step.number for step in follower] == [2]


def test_a_follower_passes_over_the_step_with_notice(pool: ServerPool) -> None:
    write_three()
    notices: list[forebay.Notice] = []
    with forebay.open("run1/flow", on_unavailable="skip", reconnect_timeout=0) as stream:
        take_away(pool)
        steps = list(stream.follow(on_notice=notices.append, timeout=seconds(20)))
        assert [(step.number, step.skipped) for step in steps] == [(0, 0), (2, 1)]
        assert [notice.text.startswith("step 1 is passed over: step 1 has a part on") for notice in notices] == [True]
        bring_back(pool)
        check(stream[1])


def test_the_newest_step_is_one_that_is_there(pool: ServerPool) -> None:
    with forebay.open("run1/flow", "w") as writer:
        write(writer, 0)
        write(writer, 1, large=True)
        take_away(pool)
        with forebay.open("run1/flow", on_unavailable="skip") as stream:
            follower = stream.follow(latest_only=True, timeout=seconds(20))
            assert next(follower).number == 0
            write(writer, 2)
            step = next(follower)
            assert (step.number, step.skipped) == (2, 1)


def test_an_error_names_the_server_and_the_next_call_looks_again(pool: ServerPool) -> None:
    write_three()
    with forebay.open("run1/flow", on_unavailable="error") as stream:
        follower = stream.follow("render", timeout=seconds(20))
        assert next(follower).number == 0
        take_away(pool)
        for _ in range(2):
            with pytest.raises(forebay.UnavailableError, match=AWAY):
                next(follower)
        bring_back(pool)
        check(next(follower))
        assert [step.number for step in follower] == [2]


def test_a_step_that_is_lost_is_waited_for_no_longer(pool: ServerPool) -> None:
    with forebay.open("run1/flow", "w") as writer, forebay.open("run1/flow") as stream:
        notices: list[forebay.Notice] = []
        follower = stream.follow(on_notice=notices.append)
        write(writer, 0)
        write(writer, 1, large=True)
        write(writer, 2)
        assert next(follower).number == 0
        take_away(pool)
        waiting = Later(lambda: next(follower))
        until(lambda: bool(notices), "the follower is told what it waits for")
        # Another boot: what was not synced may be gone.
        (pool.servers[2].root / "boot-id").write_text("another boot\n")
        bring_back(pool)
        step = waiting.result()
        assert (step.number, step.skipped) == (2, 1)


def test_a_step_that_is_dropped_is_waited_for_no_longer(pool: ServerPool) -> None:
    write_three()
    with forebay.open("run1/flow") as stream, pool.admin(0) as admin:
        notices: list[forebay.Notice] = []
        take_away(pool)
        follower = stream.follow(on_notice=notices.append, start=1)
        waiting = Later(lambda: next(follower))
        until(lambda: bool(notices), "the follower is told what it waits for")
        until(lambda: bool(stream.info.waits), "the follower waits on")
        admin.drop_steps("run1/flow", [1])
        step = waiting.result()
        assert (step.number, step.skipped) == (2, 1)


def test_a_home_that_was_just_started_makes_nobody_skip_what_is_there(pool: ServerPool) -> None:
    write_three()
    with forebay.open("run1/flow", on_unavailable="skip") as stream:
        follower = stream.follow(timeout=seconds(20))
        assert next(follower).number == 0
        pool.servers[0].kill()
        pool.servers[0].start()
        pool.tell()
        check(next(follower))
        assert [step.number for step in follower] == [2]


def test_a_home_that_was_started_without_the_server_says_so(pool: ServerPool) -> None:
    write_three()
    pool.servers[2].kill()
    pool.servers[0].kill()
    pool.servers[0].start()
    pool.tell()
    with forebay.open("run1/flow", on_unavailable="error") as stream:
        follower = stream.follow(timeout=seconds(20), start=1)
        with pytest.raises(forebay.UnavailableError, match=AWAY):
            next(follower)


def test_reads_of_a_step_that_was_given_wait_as_the_follower_does(pool: ServerPool) -> None:
    write_three()
    with (
        forebay.open("run1/flow") as patient,
        forebay.open("run1/flow", on_unavailable="error", reconnect_timeout=seconds(600)) as hasty,
    ):
        given = [next(stream.follow(start=1, timeout=seconds(20))) for stream in (patient, hasty)]
        take_away(pool)
        with pytest.raises(forebay.UnavailableError, match="server2"):
            given[1]["T"][...]
        reading = Later(lambda: check(given[0]))
        assert not reading.is_done()
        bring_back(pool)
        reading.result()
        check(given[1])


def in_group(rank: int, **options: object) -> PythonProcess:
    return PythonProcess(READER, repr({"rank": rank, "ranks": 2, "group": "job-1", **options}))


def turn(readers: list[PythonProcess], timeout: float) -> str:
    """What one turn brings, the same to all of them."""
    for reader in readers:
        reader.tell(str(timeout))
    lines = [reader.line() for reader in readers]
    assert len(set(lines)) == 1, lines
    return lines[0]


def test_ranks_of_a_group_wait_together(pool: ServerPool) -> None:
    write_three()
    with in_group(0) as first, in_group(1) as second:
        ranks = [first, second]
        assert [rank.line() for rank in ranks] == ["open", "open"]
        assert turn(ranks, seconds(20)) == "step 0 0"
        take_away(pool)
        assert turn(ranks, 0.2).startswith("notice waiting for a server that is away: step 1 has a part on member 2")
        timeouts = [rank.line() for rank in ranks]
        assert all("StepTimeoutError" in line and "server2 is away since" in line for line in timeouts)
        for rank in ranks:
            rank.tell(str(seconds(20)))
            rank.wait_until_asleep()
        bring_back(pool)
        assert [rank.line() for rank in ranks] == ["step 1 0"] * 2
        assert turn(ranks, seconds(20)) == "step 2 0"
        assert turn(ranks, seconds(20)) == "end"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("skip", ["notice step 1 is passed over: ", "step 2 1"]),
        ("error", ["UnavailableError step 1 has a part on ", "UnavailableError step 1 has a part on "]),
    ],
)
def test_ranks_of_a_group_get_the_same_answer(pool: ServerPool, word: str, expected: list[str]) -> None:
    write_three()
    take_away(pool)
    with in_group(0, on_unavailable=word) as first, in_group(1, on_unavailable=word) as second:
        ranks = [first, second]
        assert [rank.line() for rank in ranks] == ["open", "open"]
        assert turn(ranks, seconds(20)) == "step 0 0"
        assert turn(ranks, seconds(20)).startswith(expected[0])
        # A notice does not end the turn of the program.
        last = [rank.line() for rank in ranks] if word == "skip" else [turn(ranks, seconds(20))]
        assert all(line.startswith(expected[1]) for line in last)


def test_ranks_of_a_group_agree_on_it(pool: ServerPool) -> None:
    write_three()
    with in_group(0) as first, in_group(1, on_unavailable="error") as second:
        errors = []
        for rank in (first, second):
            with pytest.raises(AssertionError) as caught:
                rank.line()
            errors.append(str(caught.value))
    assert any("do not agree on OnUnavailable" in error for error in errors)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("wait", ["waiting for a server that is away: step 1 has a part", "NotReady"]),
        ("skip", ["step 1 is passed over: step 1 has a part", "step 2 2"]),
        ("error", ["error ", "error "]),
    ],
)
def test_the_engine_does_what_its_parameter_says(pool: ServerPool, word: str, expected: list[str]) -> None:
    write_three()
    take_away(pool)
    with PythonProcess(ADIOS2_READER, word) as reader:
        assert reader.line() == "open"
        reader.tell(str(seconds(20)))
        assert "had no writer when this reader opened it" in reader.line()
        assert reader.line() == "step 0 0"
        reader.tell("0.3")
        assert expected[0] in reader.line()
        if word == "error":
            reader.tell("0.3")
        line = reader.line()
        assert line.startswith(expected[1])
        if word == "error":
            assert "server server2 is away since" in line
        if word != "skip":
            bring_back(pool)
            reader.tell(str(seconds(20)))
            assert reader.line() == "step 1 1"


@pytest.mark.parametrize(
    ("word", "succeeded", "told"), [("skip", 2, "note: step 1 is passed over: "), ("error", 1, "")]
)
def test_a_command_does_what_it_is_told(pool: ServerPool, word: str, succeeded: int, told: str) -> None:
    write_three()
    take_away(pool)
    command = [sys.executable, "-m", "forebay", "follow", "run1/flow", "--on-unavailable", word]
    followed = subprocess.run(
        [*command, "--exec", "echo", "took"], capture_output=True, text=True, timeout=seconds(50), check=False
    )
    assert (followed.returncode == 0) == (word == "skip"), followed.stderr
    assert followed.stdout.count("took") == succeeded
    assert re.search(told + AWAY, followed.stderr), followed.stderr
