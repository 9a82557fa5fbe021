# SPDX-License-Identifier: Apache-2.0
"""``async for step in stream.follow()``: the loop stays free, cancelling loses nothing, no thread is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest

import forebay
from tests.support.processes import PythonProcess
from tests.support.time_limits import seconds


@pytest.fixture
def producer(reservation: str) -> Iterator[forebay.WritableStream]:
    """A stream that is being written."""
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        yield stream


def write(stream: forebay.WritableStream, value: int) -> None:
    with stream.step() as step:
        step["n"] = value


def waiting_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "forebay-follow"]


async def until_it_waits(waiting: asyncio.Future[forebay.Step] | None = None) -> None:
    """Until a thread waits for a step, or the step is there already."""
    while not waiting_threads() and not (waiting is not None and waiting.done()):
        await asyncio.sleep(0)


def test_async_for_gives_every_step_and_leaves_the_loop_free(producer: forebay.WritableStream) -> None:
    async def follow() -> list[int]:
        return [int(step["n"]) async for step in forebay.open(producer.address).follow("analysis", timeout=seconds(60))]

    async def produce() -> None:
        # In the same loop: while the other task waits, this one goes on.
        for value in range(20):
            await until_it_waits()
            write(producer, value)
        producer.close()

    async def both() -> list[int]:
        values, _ = await asyncio.gather(follow(), produce())
        return values

    assert asyncio.run(both()) == list(range(20))
    assert not waiting_threads()


def test_cancelled_wait_ends_its_thread_and_loses_no_step(producer: forebay.WritableStream) -> None:
    async def run() -> list[int]:
        follower = forebay.open(producer.address).follow("analysis")
        seen: list[int] = []
        for value in range(20):
            waiting = asyncio.ensure_future(anext(follower))
            await until_it_waits(waiting)
            if value % 2:
                write(producer, value)  # It may come just before the wait is given up, or not.
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                seen.append(int((await waiting)["n"]))
            assert not waiting_threads()
        producer.close()
        return seen + [int(step["n"]) async for step in follower]

    assert asyncio.run(run()) == list(range(1, 20, 2))


def test_step_that_came_to_a_cancelled_wait_is_not_acknowledged_before_it_is_taken(
    producer: forebay.WritableStream,
) -> None:
    async def run() -> None:
        stream = forebay.open(producer.address)
        follower = stream.follow("analysis")
        waiting = asyncio.ensure_future(anext(follower))
        await until_it_waits()
        write(producer, 7)
        # The loop has not looked at it yet when the thread has it.
        for thread in waiting_threads():
            thread.join(60)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert int((await anext(follower))["n"]) == 7
        assert stream.lag("analysis") == 1
        follower.close()

    asyncio.run(run())


def test_timeout_of_asyncio_ends_a_wait(producer: forebay.WritableStream) -> None:
    async def run() -> None:
        follower = forebay.open(producer.address).follow()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(follower)
        assert not waiting_threads()
        follower.timeout = 0.01
        with pytest.raises(forebay.StepTimeoutError):
            await anext(follower)
        write(producer, 1)
        follower.timeout = 60
        assert int((await anext(follower))["n"]) == 1

    asyncio.run(run())


def test_close_ends_a_wait(producer: forebay.WritableStream) -> None:
    async def run() -> None:
        follower = forebay.open(producer.address).follow()
        waiting = asyncio.ensure_future(anext(follower, None))
        await until_it_waits()
        follower.close()
        assert await waiting is None
        assert not waiting_threads()

    asyncio.run(run())


def test_second_task_on_one_follower_is_refused(producer: forebay.WritableStream) -> None:
    async def run() -> None:
        with forebay.open(producer.address).follow() as follower:
            waiting = asyncio.ensure_future(anext(follower))
            await until_it_waits()
            with pytest.raises(RuntimeError, match="at once"):
                await anext(follower)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting

    asyncio.run(run())


def test_notices_come_in_the_loop_s_thread(reservation: str) -> None:
    stream = forebay.open(f"{reservation}/flow", mode="w", grace=0.1)
    write(stream, 1)
    told: list[tuple[threading.Thread, str]] = []

    async def run() -> None:
        follower = forebay.open(stream.address).follow(
            on_notice=lambda notice: told.append((threading.current_thread(), notice.status.value))
        )
        assert int((await anext(follower))["n"]) == 1
        stream.abandon()
        with pytest.raises(forebay.StreamInterruptedError):
            await anext(follower)

    asyncio.run(run())
    assert told == [(threading.current_thread(), "interrupted")]


def test_ctrl_c_ends_a_program_that_waits(producer: forebay.WritableStream) -> None:
    program = """
        import asyncio, sys, forebay
        async def main():
            waiting = asyncio.ensure_future(anext(forebay.open(sys.argv[1]).follow()))
            await asyncio.sleep(0)
            print("waits")
            await waiting
        asyncio.run(main())
    """
    with PythonProcess(program, str(producer.address)) as process:
        assert process.line() == "waits"
        process.send(signal.SIGINT)
        status, _, errors = process.finish()
    assert status == -signal.SIGINT, errors
    assert "KeyboardInterrupt" in errors
