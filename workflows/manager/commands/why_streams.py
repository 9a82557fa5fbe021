# SPDX-License-Identifier: Apache-2.0
"""What a stream's writers and readers wait for, as `forebay why` tells it. The server knows, and judges who may see."""

from __future__ import annotations

from forebay.admin import Admin
from forebay.errors import DisconnectedError, NotFoundError
from forebay.instance import Instance
from forebay.manager.records import Answer
from forebay.records import StreamInfo, StreamWait, WaitKind

__all__ = ["answer_of", "of_reservation", "of_stream"]

_ENDS = {
    WaitKind.SPACE: "space: steps that retention drops, that a consumer passes or that are staged out, or "
    "`forebay drop`; else its deadline",
    WaitKind.READERS: "the reader, when it has caught up or gone",
    WaitKind.DURABLE: "the next sync of the disk",
    WaitKind.GROUP: "the missing ranks or readers, or its deadline",
    WaitKind.WRITER: "a writer group, or its deadline",
    WaitKind.STEP: "the writer, with the next step or the end of the stream",
    WaitKind.SERVER: "the server, when it is back (`forebay up` on its node), or the reader's deadline",
    WaitKind.STREAM: "somebody who makes the stream, or its deadline",
}


def of_stream(instance: Instance, path: str) -> list[Answer]:
    """About the stream RESERVATION/STREAM: one answer for each rank or reader that waits, else one for the stream.

    Raises
    ------
    NotFoundError, PermissionDeniedError
        There is none, or the caller may not see it.
    """
    with Admin(instance) as admin:
        info = admin.stream(path)
    waits = [answer_of(path, wait) for wait in info.waits]
    return waits or [_of_idle(path, info)]


def of_reservation(instance: Instance, name: str) -> list[Answer]:
    """About all that waits in the reservation; nothing if there is none yet, or the server is away."""
    try:
        with Admin(instance) as admin:
            waits = [(stream.name, wait) for stream in admin.streams(name) for wait in stream.waits]
            waits += [(stream.name, wait) for stream in admin.awaited_streams(name) for wait in stream.waits]
    except (NotFoundError, DisconnectedError):
        return []
    return [answer_of(f"{name}/{stream}", wait) for stream, wait in waits]


def answer_of(path: str, wait: StreamWait) -> Answer:
    """About one who waits in the stream RESERVATION/STREAM."""
    return Answer(f"stream {path}", f"{wait.who} waits", wait.since_ns, wait.waits_for, ends=_ENDS.get(wait.kind, ""))


def _of_idle(path: str, info: StreamInfo) -> Answer:
    state = f"{info.status.value}: {info.status_text}" if info.status_text else info.status.value
    return Answer(f"stream {path}", state, None, "nothing")
