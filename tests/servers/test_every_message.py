# SPDX-License-Identifier: Apache-2.0
"""A home, a member, a writer's rank or a reader dies at each message between them, while steps are written, withdrawn,
written again and read over several servers.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import forebay
from tests.servers.three_servers import SHARE, far_environment, problems, wait_until_present
from tests.support.load import Event, LoadProcess, check, follow, until, write
from tests.support.processes import is_stopped
from tests.support.server_pool import ServerPool
from tests.support.staging_server import StartError
from tests.support.sweeps import Sweep

pytestmark = [pytest.mark.timeout(1800)]

ADDRESS = "run1/flow"
#: Steps of the first group, and after which of them the second goes on with so many.
FIRST, KEPT, SECOND = 4, 1, 3
#: More than what goes to the home.
OPTIONS: dict[str, Any] = {"elements": 40_000, "variables": 1, "durability": "durable", "mode": "a"}
#: Of each kind, one run passes at least so many.
POINTS_MIN = 8
HOME, MEMBER = 0, 1
#: So many messages are a client's greeting.
GREETING = 2


class Programs:
    """Two writers and a reader of a pool: one writer on the member's node, the others on a node of their own."""

    def __init__(self, pool: ServerPool, folder: Path) -> None:
        self._far = far_environment(pool, folder)
        self._near = {**self._far, "FOREBAY_TRANSPORT": "auto", "FOREBAY_SERVER": "", "FOREBAY_TOKEN_FILE": ""}
        self._near["FOREBAY_ROOT"] = str(pool.servers[MEMBER].root)
        self._running: list[LoadProcess] = []

    def group(self, name: str, steps: int, fail_point: str = "", **options: Any) -> list[LoadProcess]:
        """Rank 0, which may die, is on the member's node."""
        return [self._rank(rank, name, steps, fail_point, options) for rank in range(2)]

    def _rank(self, rank: int, name: str, steps: int, fail_point: str, options: dict[str, Any]) -> LoadProcess:
        armed = {"FOREBAY_FAIL_POINT": fail_point} if fail_point and rank == 0 else {}
        environment = (self._near, self._far)[rank] | armed
        process = write(environment, ADDRESS, rank=rank, ranks=2, group=name, steps=steps, **OPTIONS, **options)
        self._running.append(process)
        return process

    def write(self, name: str, steps: int, **options: Any) -> None:
        """A group writes so many steps, whatever becomes of servers meanwhile."""
        options |= {"attempts": 200, "pause_us": 20_000}
        self._succeed([partial(self._rank, rank, name, steps, "", options) for rank in range(2)])

    def follow(self) -> list[Event]:
        """A follower comes to the end of the stream, likewise. What it tells."""
        return self._succeed([self.follower])

    @staticmethod
    def _succeed(starts: list[Callable[[], LoadProcess]]) -> list[Event]:
        """Whoever has not been greeted by a server yet waits for none, and is started again."""
        running = [start() for start in starts]

        def all_have_ended() -> bool:
            ended = True
            for place, process in enumerate(running):
                if process.running():
                    ended = False
                elif process.finish() != 0 and _was_not_greeted(process):
                    running[place] = starts[place]()
                    ended = False
            return ended

        until(all_have_ended, "the programs have ended")
        return [event for process in running for event in process.succeed()]

    def alone(self, fail_point: str, **options: Any) -> LoadProcess:
        """A group of one rank on a node without a server, which may stop."""
        environment = self._far | {"FOREBAY_FAIL_POINT": fail_point}
        rank = write(environment, ADDRESS, steps=FIRST, **OPTIONS, retention="last:8", **options)
        self._running.append(rank)
        return rank

    def follower(self, fail_point: str = "", **options: Any) -> LoadProcess:
        """Gets each step once, and acknowledges it."""
        armed = {"FOREBAY_FAIL_POINT": fail_point} if fail_point else {}
        reader = follow(self._far | armed, ADDRESS, consumer="render", ack=True, **options)
        self._running.append(reader)
        return reader

    def read_all(self) -> list[tuple[int, int]]:
        """Number and epoch of each kept step, all bytes of which are right."""
        return [(step["step"], step["epoch"]) for step in check(self._far, ADDRESS)]

    def end(self) -> None:
        for process in self._running:
            with process:
                pass


def _was_not_greeted(process: LoadProcess) -> bool:
    last = process.events[-1]
    return not process.named("opened") and (last["event"], last.get("code")) == ("error", "disconnected")


@contextmanager
def pool_of_three(folder: Path) -> Iterator[tuple[ServerPool, Programs]]:
    """The reservation run1 on all of them, and who works on it."""
    folder.mkdir()
    with ServerPool(folder / "pool", 3, options=("--restart-grace-ms", "30000")) as pool:
        pool.create("run1", [(0, SHARE), (1, SHARE), (2, SHARE)])
        wait_until_present(pool, 2)
        programs = Programs(pool, folder)
        try:
            yield pool, programs
        finally:
            programs.end()


def expect_nothing_wrong(pool: ServerPool, programs: Programs, before: str) -> None:
    """What is there is whole, is all durable, is held by nobody, and can be ended."""

    def steps() -> list[Any]:
        with pool.admin(HOME) as admin:
            return list(admin.steps(ADDRESS))

    until(lambda: all(step.durable and not step.pins for step in steps()), f"{before}: all is durable, nothing held")
    until(lambda: not problems(pool), f"{before}: audits find nothing")
    with pool.admin(HOME) as admin:
        admin.remove_stream(ADDRESS, force=True)
    until(lambda: used_bytes(pool) == 0, f"{before}: all space is free")
    pool.destroy("run1", [0, 1, 2])
    until(lambda: not left(pool), f"{before}: nothing is left on any server")


def used_bytes(pool: ServerPool) -> int:
    """Of segments."""
    with pool.admin(HOME) as admin:
        return sum(stream.size_bytes for stream in admin.streams("run1"))


def left(pool: ServerPool) -> list[Path]:
    folders = [server.root / folder for server in pool.servers for folder in ("reservations", "quarantine")]
    return [path for folder in folders for path in folder.iterdir()]


def play(pool: ServerPool, mortal: int, fail_point: str, work: Callable[[], None]) -> bool:
    """Does the work in a thread, and starts that server again when it has died; tells whether it has."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    server = pool.servers[mortal]
    server.stop()
    # It may die before anybody has come.
    with contextlib.suppress(StartError, forebay.ForebayError):
        server.start(fail_point)
        pool.tell()
    worker = threading.Thread(target=run)
    worker.start()
    died = False
    while worker.is_alive():
        if not server.running():
            assert not died, "it died twice"
            died = True
            server.kill()
            server.start()
            pool.tell()
        worker.join(0.01)
    if failures:
        raise failures[0]
    return died


@pytest.mark.parametrize(
    ("mortal", "place"),
    [
        (HOME, "server.message.received"),
        (HOME, "server.message.before_send"),
        (HOME, "server.call.before_send"),
        (HOME, "server.call.after_send"),
        (HOME, "server.call.answered"),
        (MEMBER, "server.message.received"),
        (MEMBER, "server.message.before_send"),
    ],
)
# crash-matrix: every message between home and member | the home, before it asks, when it has asked, or when it has the answer, at `server.call.before_send`, `server.call.after_send`, `server.call.answered` | the outcome is that of a run without accident
# crash-matrix: every message of clients of a reservation over several servers | the home or a member, at `server.message.received` or `server.message.before_send` | the outcome is that of a run without accident
def test_the_outcome_is_the_same_wherever_a_server_of_the_pool_dies(
    sweep: Sweep, mortal: int, place: str, tmp_path: Path
) -> None:
    for number in sweep.numbers(POINTS_MIN):
        before = f"{place}:{number} on server {mortal}"
        print(before)
        with pool_of_three(tmp_path / str(number)) as (pool, programs):

            def work(programs: Programs = programs) -> None:
                programs.write("g1", FIRST)
                programs.follow()
                programs.write("g2", SECOND, append_after=KEPT, force=True)
                told = programs.follow()
                assert [event["status"] for event in told if event["event"] == "end"] == ["ended"]

            died = play(pool, mortal, f"{place}:{number}=kill", work)
            if not died:
                pool.servers[mortal].stop()
                pool.servers[mortal].start()
                pool.tell()
            first = [(step, 1) for step in range(KEPT + 1)]
            assert programs.read_all() == [*first, *((step, 2) for step in range(KEPT + 1, KEPT + 1 + SECOND))], before
            expect_nothing_wrong(pool, programs, before)
        if not died:
            sweep.ends_at(number)
            return


@pytest.mark.parametrize(
    "place", ["client.message.before_send", "client.message.after_send", "client.message.received"]
)
# crash-matrix: every message of clients of a reservation over several servers | a writer's rank on a member's node, at `client.message.before_send`, `client.message.after_send` or `client.message.received` | all committed steps, in order; a new group goes on after them, and gets all space
def test_a_rank_that_dies_anywhere_leaves_what_had_committed(sweep: Sweep, place: str, tmp_path: Path) -> None:
    for number in sweep.numbers(POINTS_MIN):
        before = f"{place}:{number} of a rank"
        print(before)
        with pool_of_three(tmp_path / str(number)) as (pool, programs):
            options = {"attempts": 200, "pause_us": 20_000, "open_timeout_ms": 3000}
            mortal, other = programs.group("g1", FIRST, f"{place}:{number}=kill", **options)
            status = mortal.finish()
            assert status in (0, -signal.SIGKILL), before
            other.finish()
            told = max((each["step"] for rank in (mortal, other) for each in rank.named("committed")), default=-1)
            programs.write("g2", SECOND)
            steps = programs.read_all()
            assert [step for step, _ in steps] == list(range(len(steps))), before
            assert len(steps) >= told + 1 + SECOND, before
            expect_nothing_wrong(pool, programs, before)
        if status == 0:
            sweep.ends_at(number)
            return


# crash-matrix: every message of clients of a reservation over several servers | the home, before a writer's rank sends it, at `client.message.before_send` | the rank goes on with the home that is back
def test_a_home_that_is_restarted_before_any_message_of_a_rank(sweep: Sweep, tmp_path: Path) -> None:
    with pool_of_three(tmp_path / "pool") as (pool, programs):
        for number in sweep.numbers(POINTS_MIN):
            # Whoever has not been greeted yet waits for no server.
            place = f"client.message.before_send:{number + GREETING}=stop"
            rank = programs.alone(place, attempts=200, pause_us=20_000)
            until(lambda: not rank.running() or is_stopped(rank.pid), "the rank stands still, or has ended")  # noqa: B023
            if stopped := rank.running():
                pool.servers[HOME].kill()
                pool.servers[HOME].start()
                pool.tell()
                rank.send(signal.SIGCONT)
            rank.succeed()
            if not stopped:
                sweep.ends_at(number)
                break
        expect_nothing_wrong(pool, programs, "in the end")


@pytest.mark.parametrize(
    "place", ["client.message.before_send", "client.message.after_send", "client.message.received"]
)
# crash-matrix: every message of clients of a reservation over several servers | a reader with a name, at `client.message.before_send`, `client.message.after_send` or `client.message.received` | its cursor: the next one goes on there, with at most one step again
def test_a_reader_that_dies_anywhere_is_gone_on_with(sweep: Sweep, place: str, tmp_path: Path) -> None:
    for number in sweep.numbers(POINTS_MIN):
        before = f"{place}:{number} of a reader"
        print(before)
        with pool_of_three(tmp_path / str(number)) as (pool, programs):
            programs.write("g1", FIRST)
            mortal = programs.follower(f"{place}:{number}=kill")
            status = mortal.finish()
            assert status in (0, -signal.SIGKILL), before
            seen = [each["step"] for each in mortal.named("step")]
            acknowledged = [each["step"] for each in mortal.named("acknowledged")]
            again = [each["step"] for each in programs.follower().succeed() if each["event"] == "step"]
            assert sorted({*seen, *again}) == list(range(FIRST)), before
            assert not set(again) & set(acknowledged), before
            assert len(set(again) & set(seen)) <= 1, before
            expect_nothing_wrong(pool, programs, before)
        if status == 0:
            sweep.ends_at(number)
            return
