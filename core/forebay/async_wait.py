# SPDX-License-Identifier: Apache-2.0
"""Lets a task wait for a follower's next step: a thread waits, and ends with the wait, however that ends."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay import _core

if TYPE_CHECKING:
    from forebay.follower import Follower
    from forebay.records import Notice
    from forebay.step import Step

__all__ = ["next_step"]


async def next_step(follower: Follower) -> Step:
    """The follower's next step; StopAsyncIteration where the stream has ended.

    Where the task is cancelled, the thread is told and waited for, about a tenth of a second at most; a step that came
    in that time is kept for the next call.
    """
    if follower._untaken is not None:
        return follower._next(None)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Step] = loop.create_future()
    cancellation = _core.Cancellation()
    thread = threading.Thread(
        target=_wait, args=(follower, loop, done, cancellation), name="forebay-follow", daemon=True
    )
    thread.start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        cancellation.cancel()
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        if done.exception() is None:
            follower._untaken = done.result()
        raise
    finally:
        # Mostly it has told its result and is about to end; where the loop itself ends, it still waits.
        cancellation.cancel()
        thread.join()


def _wait(
    follower: Follower,
    loop: asyncio.AbstractEventLoop,
    done: asyncio.Future[Step],
    cancellation: _core.Cancellation,
) -> None:
    settle: Callable[[], object]
    cancellation.enter()
    try:
        step = follower._next(_in_loop(loop, follower._on_notice))
    except StopIteration:
        # A future takes no StopIteration.
        settle = lambda: done.set_exception(StopAsyncIteration())  # noqa: E731
    except BaseException as failure:
        reason = failure
        settle = lambda: done.set_exception(reason)  # noqa: E731
    else:
        settle = lambda: done.set_result(step)  # noqa: E731
    finally:
        cancellation.exit()
    with contextlib.suppress(RuntimeError):  # The loop was closed while this waited; nobody wants it any more.
        loop.call_soon_threadsafe(settle)


def _in_loop(
    loop: asyncio.AbstractEventLoop, on_notice: Callable[[Notice], object] | None
) -> Callable[[Notice], object] | None:
    if on_notice is None:
        return None
    return lambda notice: loop.call_soon_threadsafe(on_notice, notice)
