# SPDX-License-Identifier: Apache-2.0
"""Following: cursors, acknowledgement, timeouts, ends, other threads and processes, restarts."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import forebay
from tests.support.load import until
from tests.support.processes import PythonProcess
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds

PRODUCER = """
import sys, forebay
stream = forebay.open(sys.argv[1], mode=sys.argv[2], grace=float(sys.argv[3]))
print("open")
for line in sys.stdin:
    if line == "end\\n":
        break
    with stream.step() as step:
        step["n"] = int(line)
    print("wrote", step.number)
stream.close()
"""


def write(stream: forebay.WritableStream, *values: int) -> None:
    """One step for each value."""
    for value in values:
        with stream.step() as step:
            step["n"] = value


@pytest.fixture
def address(reservation: str) -> str:
    """A stream of steps 0 to 4 that has ended."""
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, *range(5))
    return f"{reservation}/flow"


def test_follow_gives_every_step_and_ends(address: str) -> None:
    steps = list(forebay.open(address).follow())
    assert [step.number for step in steps] == [int(step["n"]) for step in steps] == [0, 1, 2, 3, 4]
    assert all(step.pinned and not step.rewound and step.skipped == 0 for step in steps)
    assert forebay.open(address).info.consumers == ()


def test_finished_follower_stays_finished(address: str) -> None:
    follower = forebay.open(address).follow()
    assert len(list(follower)) == 5
    assert list(follower) == []


@pytest.mark.parametrize(
    ("start", "numbers"),
    [
        ("oldest", [0, 1, 2, 3, 4]),
        ("cursor", [0, 1, 2, 3, 4]),
        ("latest", [4]),
        ("next", []),
        (3, [3, 4]),
        ("3", [3, 4]),
    ],
)
def test_follow_begins_where_it_is_told(address: str, start: int | str, numbers: list[int]) -> None:
    assert [step.number for step in forebay.open(address).follow(start=start)] == numbers  # type: ignore[arg-type]


def test_bad_start_is_refused(address: str) -> None:
    for start in ("newest", -1):
        with pytest.raises(forebay.InvalidArgumentError):
            forebay.open(address).follow(start=start)  # type: ignore[arg-type]
    with pytest.raises(forebay.InvalidArgumentError, match='"auto" or "manual"'):
        forebay.open(address).follow(ack="never")  # type: ignore[arg-type]


def test_latest_only_skips_what_lies_between(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, 0, 1)
        follower = stream.follow(latest_only=True)
        first = next(follower)
        assert (first.number, first.skipped) == (1, 1)
        write(stream, 2, 3, 4)
        newest = next(follower)
        assert (newest.number, newest.skipped) == (4, 2)
        write(stream, 5)
        newest = next(follower)
        assert (newest.number, newest.skipped) == (5, 0)


def test_step_whose_body_failed_comes_again(address: str) -> None:
    stream = forebay.open(address)

    def consume() -> None:
        with stream.follow("render") as follower:
            for step in follower:
                if step.number == 2:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()
    assert stream.lag("render") == 3
    assert [step.number for step in stream.follow("render")] == [2, 3, 4]
    assert stream.lag("render") == 0
    assert list(stream.follow("render")) == []
    with pytest.raises(KeyError, match="no consumer 'post'; known are: render"):
        stream.lag("post")


def test_manual_acknowledgement_moves_the_cursor(address: str) -> None:
    stream = forebay.open(address)
    with stream.follow("render", ack="manual") as follower:
        steps = [next(follower) for _ in range(3)]
        assert stream.lag("render") == 5
        steps[1].ack()
        assert stream.lag("render") == 3
        [consumer] = stream.info.consumers
        assert (consumer.name, consumer.position, consumer.lag_steps, consumer.connected) == ("render", 2, 3, True)
    for step in steps:
        step.release()
    assert [step.number for step in stream.follow("render")] == [2, 3, 4]


def test_only_named_followers_acknowledge(address: str) -> None:
    stream = forebay.open(address)
    follower = stream.follow()
    with pytest.raises(forebay.InvalidArgumentError, match="consumer"):
        next(follower).ack()
    with pytest.raises(forebay.InvalidArgumentError, match="follow"):
        stream[0].ack()


def test_consumer_has_one_holder(address: str) -> None:
    with forebay.open(address).follow("render"):
        with pytest.raises(forebay.BusyError) as caught:
            forebay.open(address).follow("render")
        assert isinstance(caught.value, OSError)
    with forebay.open(address).follow("render"):
        pass


def test_steps_that_are_held_do_not_keep_the_consumer_taken(address: str) -> None:
    stream = forebay.open(address)
    with stream.follow("render", ack="manual") as follower:
        held = next(follower)
    with stream.follow("render", ack="manual") as follower:
        assert next(follower).number == held.number
        assert held.pinned
        assert int(held["n"]) == 0


def test_seek_moves_a_running_follower_and_a_resting_cursor(address: str) -> None:
    stream = forebay.open(address)
    with stream.follow("render") as follower:
        assert next(follower).number == 0
        stream.seek(3, consumer="render")
        assert [step.number for step in follower] == [3, 4]
    stream.seek(1, consumer="render")
    assert stream.lag("render") == 4
    assert [step.number for step in stream.follow("render")] == [1, 2, 3, 4]
    with pytest.raises(forebay.InvalidArgumentError, match="name the consumer"):
        stream.seek(1)


def test_wait_ends_at_its_timeout_and_can_be_repeated(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        follower = stream.follow(timeout=0.05)
        for _ in range(2):
            with pytest.raises(forebay.StepTimeoutError, match=r"0\.05 s") as caught:
                next(follower)
            assert isinstance(caught.value, TimeoutError)
        write(stream, 7)
        assert int(next(follower)["n"]) == 7
        with pytest.raises(forebay.StepTimeoutError):
            next(stream.follow(start="next", timeout=0))


def test_reader_may_come_before_the_stream(reservation: str) -> None:
    address = f"{reservation}/later"
    consumer = """
        import sys, forebay
        print("waits")
        print([int(step["n"]) for step in forebay.open(sys.argv[1]).follow()])
        """
    with PythonProcess(consumer, address) as process:
        assert process.line() == "waits"
        with forebay.open(address, mode="w", rendezvous_readers=1) as stream:
            write(stream, 1, 2)
        assert process.succeed() == "[1, 2]\n"


def test_durable_follower_sees_durable_steps(address: str) -> None:
    for step in forebay.open(address).follow(min_watermark="durable", timeout=seconds(30)):
        durable = forebay.open(address).info.durable
        assert durable is not None
        assert durable >= step.number


def test_retention_waits_for_the_consumer(reservation: str) -> None:
    address = f"{reservation}/flow"
    with forebay.open(address, mode="w", retention="last:1,consumers:render") as stream:
        write(stream, *range(4))
        with stream.follow("render", timeout=seconds(10)) as follower:
            assert [next(follower).number for _ in range(4)] == [0, 1, 2, 3]
        assert [summary.number for summary in stream.steps()] == [3]


def test_dropped_steps_are_counted(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w", retention="last:1") as stream:
        write(stream, 0)
        follower = stream.follow(timeout=seconds(10))
        assert next(follower).number == 0
        write(stream, 1, 2, 3)
        step = next(follower)
        assert (step.number, step.skipped) == (3, 2)


def test_lost_writer_is_told_and_a_restart_goes_on(reservation: str) -> None:
    address = f"{reservation}/flow"
    notices: list[forebay.Notice] = []
    told_of = {"interrupted": threading.Event(), "live": threading.Event()}

    def notice(told: forebay.Notice) -> None:
        notices.append(told)
        told_of[told.status].set()

    with PythonProcess(PRODUCER, address, "w", "30") as producer:
        assert producer.line() == "open"
        producer.tell("10")
        assert producer.line() == "wrote 0"
        steps: list[forebay.Step] = []
        follower = forebay.open(address).follow(on_notice=notice, timeout=seconds(60))
        reader = threading.Thread(target=lambda: steps.extend(follower))
        reader.start()
        producer.send(signal.SIGKILL)
        assert told_of["interrupted"].wait(30)
    with forebay.open(address, mode="a") as stream:
        # A reader that asks late is told of the step alone.
        assert told_of["live"].wait(30)
        write(stream, 11)
    reader.join(30)
    assert not reader.is_alive()
    assert [int(step["n"]) for step in steps] == [10, 11]
    assert [told.status for told in notices] == ["interrupted", "live"]


def test_lost_writer_ends_the_stream_after_its_grace_time(reservation: str) -> None:
    address = f"{reservation}/flow"
    with PythonProcess(PRODUCER, address, "w", "0.1") as producer:
        assert producer.line() == "open"
        producer.tell("10")
        assert producer.line() == "wrote 0"
        producer.send(signal.SIGKILL)
        producer.finish()
    follower = forebay.open(address).follow()
    assert next(follower).number == 0
    with pytest.raises(forebay.StreamInterruptedError):
        next(follower)


def test_rewound_steps_are_marked(address: str) -> None:
    follower = forebay.open(address).follow("render", ack="manual")
    for _ in range(4):
        step = next(follower)
        step.ack()
    with forebay.open(address, mode="a", append_after=1) as stream:
        write(stream, 12)
    again = next(follower)
    assert (again.number, int(again["n"]), again.rewound) == (2, 12, True)
    assert again.epoch == stream.epoch > step.epoch


def test_rewind_is_told_with_the_next_step_where_the_first_one_went_unread(reservation: str) -> None:
    address = f"{reservation}/flow"
    notices: list[str] = []
    with forebay.open(address, mode="w", retention="last:1", grace=60.0) as stream:
        write(stream, 0, 1)
        follower = forebay.open(address).follow(timeout=seconds(30), on_notice=lambda told: notices.append(told.status))
        assert next(follower).number == 1
        follower.timeout = 0
        stream.abandon()

    def wait_for_notice(status: str) -> None:
        while status not in notices:
            with pytest.raises(forebay.StepTimeoutError):
                next(follower)

    wait_for_notice("interrupted")
    with forebay.open(address, mode="w", retention="last:1") as stream:
        wait_for_notice("live")
        # More than a reader without a name may pin: each step goes while the follower has not read it.
        for size in (17, 20, 20, 20, 20, 20, 20, 20):
            with stream.step() as step:
                step["n"] = np.zeros(size << 20, np.uint8)
        follower.timeout = 30
        with pytest.raises(forebay.StepGoneError, match="step 0"):
            next(follower)
        last = next(follower)
        assert (last.number, last.rewound, last.skipped) == (7, True, 6)


def test_other_threads_acknowledge_and_close_during_a_wait(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        write(stream, 0, 1)
        follower = stream.follow("render", ack="manual")
        steps: list[forebay.Step] = []
        both = threading.Event()

        def consume() -> None:
            for step in follower:
                steps.append(step)
                if len(steps) == 2:
                    both.set()

        reader = threading.Thread(target=consume)
        reader.start()
        assert both.wait(30)
        steps[0].ack()
        assert stream.lag("render") == 1
        stream.seek(0, consumer="render")
        while stream.lag("render") != 2:
            pass
        follower.close()
        reader.join(30)
        assert not reader.is_alive()


def test_follower_survives_a_restart_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with StagingServer(tmp_path / "root", capacity="256MiB") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with forebay.Admin() as admin:
            admin.create("run", "64MiB")
        with forebay.open("run/flow", mode="w") as stream:
            follower = stream.follow("render", timeout=seconds(60))
            write(stream, 0)
            held = next(follower)
            view = held["n"]
            server.kill()
            server.start()
            write(stream, 1)
            assert next(follower).number == 1
            assert int(view) == 0
            server.stop()
            server.start()
            write(stream, 2)
            assert [next(follower).number] == [2]
            assert [summary.number for summary in stream.steps()] == [0, 1, 2]
            server.kill()
            told: list[int | None] = []
            asking = threading.Thread(target=lambda: told.extend([stream.info.committed, len(stream.steps())]))
            asking.start()
            server.start()
            asking.join(60)
            assert told == [2, 3]


def test_readers_share_the_steps_in_turns(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        readers = [forebay.open(f"{reservation}/flow") for _ in range(2)]
        followers = [reader.follow(distribution="round_robin", start="next", timeout=seconds(10)) for reader in readers]
        write(stream, *range(6))
    seen = [[int(step["n"]) for step in follower] for follower in followers]
    assert sorted(seen[0] + seen[1]) == [0, 1, 2, 3, 4, 5]
    assert [len(numbers) for numbers in seen] == [3, 3]


def test_a_follower_whose_stream_is_removed_is_told_that_and_of_no_disk(address: str) -> None:
    writer = forebay.open(address, "w")
    write(writer, 1)
    with forebay.open(address) as stream, forebay.Admin() as admin:
        follower = stream.follow()
        assert next(follower).number == 0
        told: list[str] = []

        def wait() -> None:
            with pytest.raises(forebay.StreamFailedError) as failed:
                next(follower)
            told.append(str(failed.value))

        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: bool(admin.stream(address).waits), "the follower waits")
        admin.remove_stream(address, force=True)
        waiting.join(seconds(20))
        assert told == [f"the stream was removed (stream {address})"]
    with pytest.raises(forebay.NotFoundError):
        writer.close()
