# SPDX-License-Identifier: Apache-2.0
"""The stream that a connector is given: open already, or named by its address and the instance that has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import forebay
from forebay import Address, Stream
from forebay.errors import InvalidArgumentError
from forebay.instance import InstanceLike

__all__ = ["followed_stream", "kept_stream"]


def kept_stream(address: str | Address | Stream, instance: InstanceLike | None) -> Stream:
    """The stream, to read the steps that it has now: one that does not exist is not waited for.

    Raises
    ------
    StreamNotFoundError
        There is no such stream.
    InvalidArgumentError
        An instance is named beside an open stream.
    """
    if isinstance(address, Stream):
        return _checked(address, instance)
    return forebay.open(address, instance=instance, timeout=0)


@contextmanager
def followed_stream(address: str | Address | Stream, instance: InstanceLike | None) -> Iterator[Stream]:
    """The stream, to follow it. At the end it is closed, unless it was given open."""
    if isinstance(address, Stream):
        yield _checked(address, instance)
        return
    with forebay.open(address, instance=instance) as stream:
        yield stream


def _checked(stream: Stream, instance: InstanceLike | None) -> Stream:
    if instance is not None:
        raise InvalidArgumentError(
            "an open stream has its instance already: leave out instance, or give the stream's address",
            f"stream {stream.address}",
        )
    return stream
