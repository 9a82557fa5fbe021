# SPDX-License-Identifier: Apache-2.0
"""What a server says of a stream while others work on it, for the history."""

from __future__ import annotations

import time
from typing import Any

import forebay
from tests.soak.history import HistoryLog

__all__ = ["tell_look"]


def tell_look(log: HistoryLog, admin: forebay.Admin, address: str) -> None:
    """Tells the watermarks and the kept steps, and since when they may have been so."""

    def tell(event: str, since_ns: int, **found: Any) -> None:
        log.tell("director", event, stream=address, since_ns=since_ns, **found)

    since = time.monotonic_ns()
    found = admin.stream(address)
    marks = {"committed": found.committed, "durable": found.durable, "staged": found.staged}
    tell("sampled", since, epoch=found.epoch, **marks)
    since = time.monotonic_ns()
    steps = [[step.number, step.epoch, step.incarnation] for step in admin.steps(address)]
    tell("kept", since, steps=steps)
