# SPDX-License-Identifier: Apache-2.0
"""The stream that a connector is given: open already, or named by its address and what `forebay.open` takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import forebay
from forebay import Address, Stream
from forebay.ended_run import tell_ended_run
from forebay.errors import InvalidArgumentError
from forebay.instance import InstanceLike

__all__ = ["followed_stream", "kept_stream", "opening_options"]

#: What forebay.open takes of whoever reads, beside the address. `timeout` means another thing to who follows.
_OPENING = frozenset(inspect.signature(forebay.open).parameters) - {"address", "mode", "instance", "timeout", "options"}


def opening_options(options: dict[str, Any]) -> dict[str, Any]:
    """Takes out of a connector's options those of :func:`forebay.open`."""
    return {name: options.pop(name) for name in list(options) if name in _OPENING}


def kept_stream(
    address: str | Address | Stream, instance: InstanceLike | None = None, opening: dict[str, Any] | None = None
) -> Stream:
    """The stream, to read the steps that it has now: one that does not exist is not waited for, unless asked to.

    Parameters
    ----------
    opening : dict
        Options of :func:`forebay.open`.

    Raises
    ------
    StreamNotFoundError
        There is no such stream.
    InvalidArgumentError
        An instance, or an option of opening, is given beside an open stream.
    """
    opening = opening or {}
    if isinstance(address, Stream):
        return _checked(address, instance, opening)
    waits = opening.get("run") or opening.get("wait_for_writer")
    return forebay.open(address, instance=instance, **({} if waits else {"timeout": 0}) | opening)


@contextmanager
def followed_stream(
    address: str | Address | Stream,
    instance: InstanceLike | None = None,
    opening: dict[str, Any] | None = None,
    *,
    timeout: float | None = None,
) -> Iterator[Stream]:
    """The stream, to follow it. At the end it is closed, unless it was given open.

    If its writer has ended, the logger ``forebay.waiting`` says which run is read.

    Parameters
    ----------
    timeout : float, optional
        Of each wait for a step, and so also of the wait for the stream; None: as long as :func:`forebay.open` waits.
    """
    opening = opening or {}
    if isinstance(address, Stream):
        yield _checked(address, instance, opening)
        return
    if timeout is not None:
        opening = {"timeout": timeout} | opening
    with forebay.open(address, instance=instance, **opening) as stream:
        tell_ended_run(stream, opening)
        yield stream


def _checked(stream: Stream, instance: InstanceLike | None, opening: dict[str, Any]) -> Stream:
    given = [*(["instance"] if instance is not None else []), *opening]
    if given:
        raise InvalidArgumentError(
            f"an open stream has its {', '.join(given)} already: leave that out, or give the stream's address",
            f"stream {stream.address}",
        )
    return stream
