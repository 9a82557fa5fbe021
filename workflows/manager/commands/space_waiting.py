# SPDX-License-Identifier: Apache-2.0
"""`forebay create --wait`: keeps a place in the queue for space until there is room."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from forebay.cli.output import error_console
from forebay.durations import format_duration
from forebay.errors import DisconnectedError, ForebayError, NoSpaceError
from forebay.instance import Instance
from forebay.manager.client import ManagerClient
from forebay.manager.records import QueuePlace
from forebay.records import ReservationInfo

__all__ = ["create_when_there_is_room"]

_ASK_SECONDS = 1.0
_RECONNECT_SECONDS = 60.0


def create_when_there_is_room(
    instance: Instance, name: str, request: dict[str, Any], seconds_max: float | None
) -> ReservationInfo:
    """The reservation, when it is made. Shows meanwhile how many came before, and until when it may take.

    Raises
    ------
    NoSpaceError
        There was no room within `seconds_max`, or never will be.
    DisconnectedError
        The manager is away for longer than a restart takes.
    """
    deadline = None if seconds_max is None else time.monotonic() + seconds_max
    try:
        return _ask_again_and_again(instance, name, request, deadline)
    except BaseException:
        # Nobody else waits for a place that is not wanted any more.
        with contextlib.suppress(ForebayError), ManagerClient(instance) as manager:
            manager.leave_queue(name)
        raise


def _ask_again_and_again(
    instance: Instance, name: str, request: dict[str, Any], deadline: float | None
) -> ReservationInfo:
    lost_at: float | None = None
    shown = ""
    while True:
        try:
            with ManagerClient(instance) as manager:
                answer = manager.create_or_wait(name, **request)
            lost_at = None
        except DisconnectedError:
            lost_at = lost_at or time.monotonic()
            if time.monotonic() - lost_at > _RECONNECT_SECONDS:
                raise
        else:
            if isinstance(answer, ReservationInfo):
                return answer
            text = _text(answer)
            if text != shown:
                shown = text
                error_console().print(f"{name}: {text}", markup=False, soft_wrap=True)
        if deadline is not None and time.monotonic() > deadline:
            raise NoSpaceError(f"there was no room for it in the given time: {shown or 'the manager was away'}", name)
        time.sleep(_ASK_SECONDS)


def _text(place: QueuePlace) -> str:
    if place.estimate_ns is None:
        until = "nobody knows until when: what is held has no known end"
    else:
        left = (place.estimate_ns - time.time_ns()) / 1e9
        until = f"at the latest in {format_duration(max(60.0, left // 60 * 60))}"
    return f"waits for space, {place.ahead} before it; {until}"
