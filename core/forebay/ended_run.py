# SPDX-License-Identifier: Apache-2.0
"""Who follows a stream by its name, and comes before the writer, reads what an earlier run left: this says so."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forebay.records import StreamStatus

if TYPE_CHECKING:
    from forebay.stream import Stream

__all__ = ["NEXT_WRITER_ADVICE", "tell_ended_run"]

_log = logging.getLogger("forebay.waiting")

#: How to wait for the next writer, for messages.
NEXT_WRITER_ADVICE = (
    "to wait for the next run, open it with wait_for_writer=True or run=NAME (--wait-for-writer, --run)"
)


def tell_ended_run(stream: Stream, opening: Mapping[str, Any]) -> None:
    """Says by the logger ``forebay.waiting`` which run is read, if no writer writes the stream now.

    Parameters
    ----------
    opening : mapping
        What the stream was opened with: whoever asked for a run, or for a writer, is told nothing.
    """
    if opening.get("run") or opening.get("wait_for_writer"):
        return
    info = stream.info
    if info.status not in (StreamStatus.ENDED, StreamStatus.INTERRUPTED):
        return
    run = f"run {info.run!r}" if info.run else "the last run"
    steps = f"steps {info.oldest} to {info.committed}" if info.steps else "no steps"
    _log.warning(
        "stream %s: its writer has gone (%s); reading %s, %s. %s",
        stream.address.path,
        info.status.value,
        run,
        steps,
        NEXT_WRITER_ADVICE[0].upper() + NEXT_WRITER_ADVICE[1:],
    )
