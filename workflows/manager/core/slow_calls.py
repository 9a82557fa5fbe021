# SPDX-License-Identifier: Apache-2.0
"""Threads for calls that may take long, such as the creation of a large reservation: so many for each user, so that
one user's keep nobody else waiting.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from forebay.workflows.manager.core.used_by_key import UsedByKey

__all__ = ["SlowCalls"]

_T = TypeVar("_T")

_THREADS = 64
_OF_EACH_USER = 2


class SlowCalls:
    """Belongs to the event loop's thread. More calls of one user wait, in order, without a thread."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="slow")
        self._places: UsedByKey[int, asyncio.Semaphore] = UsedByKey(lambda: asyncio.Semaphore(_OF_EACH_USER))

    async def run(self, uid: int, call: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        """Calls it in a thread, on behalf of this user."""
        with self._places.use(uid) as places:
            async with places:
                work = functools.partial(call, *arguments, **options)
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Waits for what is under way."""
        self._threads.shutdown()
