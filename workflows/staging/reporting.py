# SPDX-License-Identifier: Apache-2.0
"""What a stage reports while it runs: plan, progress, notes, the files that it has verified, and how it ended; one JSON
document per line. No line is longer than MESSAGE_BYTES_MAX: who reads it, the manager, takes no longer one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from forebay.errors import ForebayError, StreamFailedError, StreamInterruptedError, description_of

__all__ = ["MESSAGE_BYTES_MAX", "Json", "JsonReporter", "Progress", "Reporter", "describe_failure", "notes_of_waits"]

Json = dict[str, Any]

#: Of one line with its line feed.
MESSAGE_BYTES_MAX = 64 << 10

_INTERVAL_SECONDS = 0.1
_FILES_BYTES_MAX = MESSAGE_BYTES_MAX // 2
_TEXT_CHARACTERS_MAX = 2000
_LISTED_MAX = 1000  #: numbers of steps in a result that would be too long

#: Failures that may pass by themselves: the manager tries such a stage again.
_PASSING_CODES = frozenset({"disconnected", "timeout", "busy", "protocol"})


@dataclass(slots=True)
class Progress:
    """How far a stage has come. Totals are None while they are not known, as when following a stream."""

    items_done: int = 0
    items_total: int | None = None
    items_kept: int = 0  #: of the done ones: found finished by an earlier run
    bytes_done: int = 0
    bytes_total: int | None = None
    item: str = ""  #: what is being worked on
    stream_ended: bool = False  #: no further step is followed: what is on its way is finished


class Reporter(Protocol):
    """Where a stage reports to."""

    progress: Progress

    def update(self, *, at_once: bool = False) -> None:
        """`progress` has changed. `at_once`: what follows may be a long wait, so this must be seen before it."""

    def note(self, text: str) -> None:
        """Something that the user should know, but that is no failure."""

    def files(self, rows: Iterable[Json]) -> None:
        """These files lie at the destination, verified: `path`, `size_bytes`, `crc32c`, and what else the receipt is
        to have of them. They count once the stage has succeeded.
        """


class JsonReporter:
    """Writes events to a text stream, progress at most ten times a second unless it is to be seen at once."""

    def __init__(self, out: TextIO) -> None:
        self.progress = Progress()
        self._out = out
        self._written_at = float("-inf")

    def update(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self._written_at >= _INTERVAL_SECONDS:
            self._written_at = now
            self._write_progress()

    def note(self, text: str) -> None:
        self._write({"event": "note", "text": text[:_TEXT_CHARACTERS_MAX]})

    def files(self, rows: Iterable[Json]) -> None:
        batch: list[Json] = []
        size_bytes = 0
        for row in rows:
            length = len(json.dumps(row)) + 2
            if batch and size_bytes + length > _FILES_BYTES_MAX:
                self._write({"event": "files", "files": batch})
                batch, size_bytes = [], 0
            batch.append(row)
            size_bytes += length
        if batch:
            self._write({"event": "files", "files": batch})

    def done(self, result: Json) -> None:
        """The stage has succeeded. Of a result that is too long, the lists are cut, and `cut` has their lengths."""
        self._write_progress()
        if len(json.dumps(result)) > _FILES_BYTES_MAX:
            lists = {name: value for name, value in result.items() if isinstance(value, list)}
            result = {
                **result,
                **{name: value[:_LISTED_MAX] for name, value in lists.items()},
                "cut": {name: len(value) for name, value in lists.items() if len(value) > _LISTED_MAX},
            }
        self._write({"event": "done", "result": result})

    def failed(self, failure: Json) -> None:
        """The stage has failed."""
        self._write_progress()
        cut = {name: value[:_TEXT_CHARACTERS_MAX] for name, value in failure.items() if isinstance(value, str)}
        self._write({"event": "failed", "failure": failure | cut})

    def _write_progress(self) -> None:
        progress = self.progress
        self._write(
            {
                "event": "progress",
                "items_done": progress.items_done,
                "items_total": progress.items_total,
                "items_kept": progress.items_kept,
                "bytes_done": progress.bytes_done,
                "bytes_total": progress.bytes_total,
                "item": progress.item[:_TEXT_CHARACTERS_MAX],
                "stream_ended": progress.stream_ended,
            }
        )

    def _write(self, event: Json) -> None:
        self._out.write(json.dumps(event) + "\n")
        self._out.flush()


@contextlib.contextmanager
def notes_of_waits(reporter: Reporter) -> Iterator[None]:
    """What the library says of a long wait becomes a note of the stage."""

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            reporter.note(record.getMessage())

    logger = logging.getLogger("forebay.waiting")
    handler = Noting()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def describe_failure(error: BaseException) -> Json:
    """Code, text and place of an error, whether trying again may help, and whether the stream was the cause."""
    if isinstance(error, (ForebayError, OSError)):
        code, what, where = description_of(error)
    else:
        code, what, where = "internal", f"unexpected {type(error).__name__}: {error}", ""
    return {
        "code": code,
        "what": what,
        "where": where,
        "may_pass": code in _PASSING_CODES,
        "stream_broken": isinstance(error, (StreamInterruptedError, StreamFailedError)),
    }
