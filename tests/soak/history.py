# SPDX-License-Identifier: Apache-2.0
"""The history of a soak - what was told to whom, as JSON lines - and its judge: ``python -m tests.soak.history LOG``.

The log is written while the soak runs and judged from the file alone. Each line has ``who`` told it, ``told_ns`` by the
machine's monotonic clock, and an ``event``; those of a process that works on a stream follow its ``started`` line.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.soak.reading_rules import reading_breaches
from tests.soak.record_rules import record_breaches
from tests.soak.timeline import Breach, Line, StreamTimeline, timelines
from tests.soak.writing_rules import writing_breaches

__all__ = ["HistoryLog", "judge", "read_history"]


class HistoryLog:
    """The file that a soak appends to. Any thread may tell."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._lock = threading.Lock()
        self._file = path.open("w", encoding="utf-8")
        self.lines = 0

    def tell(self, who: str, event: str, **fields: Any) -> None:
        """Appends one line of the director's own."""
        self.hear(who, {"event": event, "told_ns": time.monotonic_ns(), **fields})

    def hear(self, who: str, event: dict[str, Any]) -> None:
        """Appends what a process has told."""
        line = json.dumps({"who": who, **event})
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")
                self.lines += 1

    def close(self) -> None:
        """Nothing is told any more."""
        with self._lock:
            self._file.close()


def read_history(path: Path) -> Iterator[Line]:
    """The lines of a log; a last one that was cut when the soak was killed is left out."""
    with path.open(encoding="utf-8") as log:
        for text in log:
            if text.endswith("\n"):
                yield json.loads(text)


def judge(lines: Iterator[Line] | list[Line]) -> tuple[dict[str, StreamTimeline], list[Breach]]:
    """The streams of a history, and every promise that it breaks."""
    streams, breaches = timelines(lines)
    for stream in streams.values():
        breaches += writing_breaches(stream)
        breaches += reading_breaches(stream)
        breaches += record_breaches(stream)
    return streams, breaches


def main(arguments: list[str]) -> int:
    """Exit status 0 if the history keeps every promise."""
    if len(arguments) != 1:
        print("usage: python -m tests.soak.history LOG", file=sys.stderr)
        return 2
    streams, breaches = judge(read_history(Path(arguments[0])))
    commits = sum(len(stream.commits) for stream in streams.values())
    seen = sum(len(reader.steps) for stream in streams.values() for reader in stream.readers)
    print(f"{len(streams)} streams, {commits} steps committed, {seen} read: {len(breaches)} breaches")
    for breach in breaches:
        print(f"  {breach}")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
