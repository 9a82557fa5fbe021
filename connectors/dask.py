# SPDX-License-Identifier: Apache-2.0
"""A function for each step of a stream on a Dask cluster, with a cursor: ``map_steps(client, address, func)``.

Arrays over many steps come through :mod:`forebay.connectors.xarray`. Needs the extra ``forebay[dask]``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from dask.tokenize import tokenize
from distributed import Client, Future

from forebay import Address, Step, Stream
from forebay.connectors.opening import followed_stream, opening_options
from forebay.errors import InvalidArgumentError, StepGoneError, StepNotFoundError
from forebay.follower import StartText
from forebay.instance import InstanceLike
from forebay.withdrawal import was_withdrawn

__all__ = ["map_steps"]


def map_steps(
    client: Client,
    address: str | Address | Stream,
    function: Callable[..., Any],
    *arguments: Any,
    instance: InstanceLike | None = None,
    consumer: str = "",
    ahead: int = 16,
    timeout: float | None = None,
    start: StartText | int = "cursor",
    **options: Any,
) -> Iterator[Future]:
    """Submits ``function(step, *arguments)`` for each step as it commits, and yields its future.

    The step travels as its address and identity; the worker opens it for itself, through ``instance``, else the one
    that the worker's environment names.

    Parameters
    ----------
    client : distributed.Client
        The cluster.
    address : str, Address or Stream
        ``"RES/STREAM"``, or an open stream.
    function : callable
        Takes a :class:`forebay.Step`. What it returns travels back, so return results, not the step.
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    consumer : str
        Name that the position is kept under. The cursor passes a step when its function has returned and so have those
        of all steps before it: after a crash, or after a function that failed, the same call goes on there. Steps may
        be computed twice, none is left out. A step that a restart of the writer withdraws does not hold the cursor up:
        the one that takes its place is given.
    ahead : int
        Steps under way at most; each is pinned until its function has ended.
    timeout : float, optional
        Seconds that one wait for the next step may take; None: for ever.
    start : {"cursor", "oldest", "latest", "next"} or int
        Where to begin, as in :meth:`forebay.Stream.follow`.
    **options
        Of ``Client.submit``, for example ``retries=2`` or ``resources={"GPU": 1}``, and of :func:`forebay.open`, for
        example ``run`` and ``wait_for_writer``. If no writer is there, the logger ``forebay.waiting`` says which run is
        read.

    Yields
    ------
    Future
        In the order of the steps.
    """
    if ahead < 1:
        raise InvalidArgumentError(f"ahead is how many steps may be under way, at least 1, not {ahead}")
    opening = opening_options(options)
    with followed_stream(address, instance, opening, timeout=timeout) as stream:
        uuid = stream.info.uuid
        under_way: deque[tuple[Step, Future]] = deque()
        with stream.follow(consumer, timeout=timeout, start=start, ack="manual") as follower:
            acknowledges = bool(consumer)
            for step in follower:
                name = getattr(function, "__name__", "function")
                key = f"{name}-{tokenize(function, arguments, uuid, step.epoch, step.number)}"
                future = client.submit(function, step, *arguments, key=key, **options)
                if future.status == "error":
                    future.retry()  # somebody still holds what came of an earlier call
                under_way.append((step, future))
                yield future
                while under_way and (len(under_way) >= ahead or under_way[0][1].done()):
                    acknowledges = _finish(stream, *under_way.popleft(), acknowledges)
            while under_way:
                acknowledges = _finish(stream, *under_way.popleft(), acknowledges)


def _finish(stream: Stream, step: Step, future: Future, acknowledges: bool) -> bool:
    """Waits for a step's function and lets the step go; returns if steps after it may be acknowledged."""
    with step:
        error = future.exception()  # waits; the caller sees it through the future
        if isinstance(error, (StepGoneError, StepNotFoundError)) and was_withdrawn(stream, step.number, step.epoch):
            return acknowledges
        succeeded = bool(future.status == "finished")
        if acknowledges and succeeded:
            step.ack()
    return acknowledges and succeeded
