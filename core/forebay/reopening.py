# SPDX-License-Identifier: Apache-2.0
"""Streams and steps from pickles: opened again by address, and refused if another has taken their place."""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakValueDictionary

from forebay import _core
from forebay.errors import NotFoundError, StepGoneError, StepNotFoundError, StreamNotFoundError
from forebay.instance import server_place
from forebay.records import Address
from forebay.step import Step
from forebay.stream import Stream

__all__ = ["step_of_pickle", "stream_of_pickle"]

# Streams that pickles of steps brought here: the steps of one stream share one connection.
_reopened: WeakValueDictionary[tuple[Any, ...], Stream] = WeakValueDictionary()


def stream_of_pickle(path: str, reader_options: dict[str, Any], instance: str | None, uuid: str) -> Stream:
    """The stream that a pickle names.

    Raises
    ------
    StreamNotFoundError
        It was removed, also if there is another one at its address now.
    """
    server = server_place(instance)
    # A forked child inherits its parent's streams, which do not work there.
    key = (os.getpid(), server.text, path, uuid, *sorted(reader_options.items()))
    stream = _reopened.get(key)
    if stream is None or stream._closed:
        try:
            # The stream existed: one that is made later is another, and not to be waited for.
            native = _core.Reader.open(path, server=server, **reader_options | {"open_timeout_ms": 0})
        except NotFoundError as error:
            raise StreamNotFoundError(error.what, error.where) from None
        if native.stream_uuid != uuid:
            native.close()
            raise StreamNotFoundError(
                "the stream was removed and created again since it was pickled: open it again for the new one",
                f"stream {path}",
            )
        stream = Stream(Address.parse(path), reader_options, server, instance, native)
        _reopened[key] = stream
    return stream


def step_of_pickle(
    path: str, reader_options: dict[str, Any], instance: str | None, uuid: str, number: int, epoch: int
) -> Step:
    """The step that a pickle names, also one that was withdrawn and that another process holds still: the one that made
    the pickle, as a rule. StepGoneError if it is gone.
    """
    try:
        step = stream_of_pickle(path, reader_options, instance, uuid)._step(number, epoch)
    except (StreamNotFoundError, StepNotFoundError) as error:
        raise StepGoneError(error.what, f"{error.where}, step {number}") from None
    if step.epoch != epoch:
        raise StepGoneError(
            f"the step of epoch {epoch} was withdrawn or replaced; the stream now has one of epoch {step.epoch}",
            str(step.address),
        )
    return step
