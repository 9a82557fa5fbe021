# SPDX-License-Identifier: Apache-2.0
"""What a hostile program writes into its pipe costs the manager neither memory nor time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from forebay.errors import InvalidArgumentError, RefusedError
from forebay.workflows.manager.core.stages.message_pipe import MessagePipe
from forebay.workflows.manager.core.stages.reading_budget import ReadingBudget, ReadingBudgets
from forebay.workflows.manager.core.stages.stage_messages import (
    checked_failure,
    checked_progress,
    checked_row,
    parse_message,
)

MESSAGE_BYTES_MAX = 1024


def with_pipe(work: Callable[[MessagePipe, int], Coroutine[Any, Any, None]]) -> None:
    """Runs the work with a pipe and the end that a program would write to."""

    async def run() -> None:
        reading, writing = os.pipe()
        pipe = MessagePipe(reading, MESSAGE_BYTES_MAX, ReadingBudget(lambda: 1e12))
        try:
            await work(pipe, writing)
        finally:
            pipe.close()

    asyncio.run(run())


def test_messages_come_whole_however_they_are_cut() -> None:
    async def work(pipe: MessagePipe, writing: int) -> None:
        os.write(writing, b"one\ntw")
        assert await pipe.read() == b"one"
        second = asyncio.create_task(pipe.read())
        await asyncio.sleep(0)
        os.write(writing, b"o\n" + b"x" * (MESSAGE_BYTES_MAX - 1) + b"\nrest")
        assert await second == b"two"
        assert await pipe.read() == b"x" * (MESSAGE_BYTES_MAX - 1)
        os.close(writing)
        assert await pipe.read() is None

    with_pipe(work)


def test_a_message_beyond_the_limit_is_refused_by_name_and_no_more_of_it_is_read() -> None:
    async def work(pipe: MessagePipe, writing: int) -> None:
        fill(writing)
        with pytest.raises(RefusedError, match="more than 1 KiB"):
            await pipe.read()
        assert len(pipe._buffer) <= 64 << 10
        os.close(writing)

    with_pipe(work)


def fill(writing: int) -> None:
    """Writes without a line feed until the pipe takes no more."""
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        pass


def test_a_limit_holds_for_a_line_that_ends_too() -> None:
    async def work(pipe: MessagePipe, writing: int) -> None:
        os.write(writing, b"x" * MESSAGE_BYTES_MAX + b"\n")
        with pytest.raises(RefusedError):
            await pipe.read()
        os.close(writing)

    with_pipe(work)


def test_when_the_program_has_ended_nobody_else_can_keep_the_pipe_open() -> None:
    async def work(pipe: MessagePipe, writing: int) -> None:
        os.write(writing, b"last\n")
        pipe.program_ended()
        assert await pipe.read() == b"last"
        assert await pipe.read() is None  # although `writing` is open
        stop = threading.Event()
        others = threading.Thread(target=write_until, args=(writing, stop))
        others.start()
        try:
            assert await pipe.read_rest(10) is not None  # although somebody goes on writing
        finally:
            stop.set()
            pipe.close()  # lets the writer go
            others.join()

    with_pipe(work)


def write_until(writing: int, stop: threading.Event) -> None:
    try:
        while not stop.is_set():
            os.write(writing, b"more\n" * 100)
    except OSError:
        pass
    finally:
        os.close(writing)


def test_of_what_is_read_whole_only_the_end_is_kept() -> None:
    async def work(pipe: MessagePipe, writing: int) -> None:
        def write() -> None:
            for number in range(1000):
                os.write(writing, b"%09d\n" % number * 100)
            os.close(writing)

        writer = threading.Thread(target=write)
        writer.start()
        assert await pipe.read_rest(20) == b"000000999\n" * 2
        assert len(pipe._buffer) == 0
        writer.join()

    with_pipe(work)


def test_reading_is_shared_out_between_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users get half each, and what one reads is not taken from the other."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("forebay.workflows.manager.core.stages.reading_budget.asyncio.sleep", sleep)
    monkeypatch.setattr("forebay.workflows.manager.core.stages.reading_budget.time.monotonic", lambda: 100.0)

    async def run() -> None:
        budgets = ReadingBudgets()
        ada = budgets.begin(1)
        assert budgets.begin(1) is ada  # programs of one user share it
        bob = budgets.begin(2)
        for _ in range(16):
            await ada.take(1 << 20)
        assert sum(pause > 0 for pause in pauses) >= 10
        assert pauses[-1] == pytest.approx(16 / 8, rel=0.3)
        pauses.clear()
        await bob.take(1 << 20)
        assert pauses == []
        for uid in (1, 1, 2):
            budgets.end(uid)
        assert budgets.begin(1) is not ada

    asyncio.run(run())


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"1", b'{"a": NaN}', b'{"a": 1e999}', b"[" * 60000, b'{"a":' * 10000, b"\xff", b"9" * 5000]
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match="no Forebay says"):
        parse_message(line)


ROW = {"path": "a", "size_bytes": 1, "crc32c": "0123abcd"}


@pytest.mark.parametrize(
    "change",
    [
        {"path": 1},
        {"path": "x" * 70000},
        {"size_bytes": -1},
        {"size_bytes": True},
        {"size_bytes": 1 << 63},
        {"size_bytes": 1.0},
        {"crc32c": "0123ABCD"},
        {"crc32c": "0123abcd\n"},
        {"mtime_ns": "now"},
        {"step": -1},
    ],
)
def test_a_row_that_is_none_is_refused(change: dict[str, Any]) -> None:
    assert checked_row({**ROW, "more": "is left out"}) == ROW
    with pytest.raises(InvalidArgumentError, match="no Forebay says"):
        checked_row({**ROW, **change})


def test_progress_and_failures_are_cut_to_what_they_are() -> None:
    told = {"items_done": 1, "items_total": None, "items_kept": 0, "bytes_done": 2, "bytes_total": 3, "x": "y" * 9999}
    progress = checked_progress(told | {"item": "z" * 9999, "stream_ended": 1})
    assert len(progress["item"]) == 2000
    assert (progress["stream_ended"], "x" in progress) == (False, False)
    failure = checked_failure({"code": "io", "what": "w" * 9999, "where": "", "may_pass": 1})
    assert (len(failure["what"]), failure["may_pass"], failure["stream_broken"]) == (2000, False, False)
    for wrong in (None, {"code": 1, "what": "", "where": ""}):
        with pytest.raises(InvalidArgumentError):
            checked_failure(wrong)
