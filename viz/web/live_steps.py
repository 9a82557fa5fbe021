# SPDX-License-Identifier: Apache-2.0
"""Which step of a running stream is the newest, for a drawing loop that takes that one and skips the others."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from forebay import Notice, Stream
from forebay.errors import ForebayError

__all__ = ["LiveSteps"]


class LiveSteps:
    """Follows a stream in a thread of its own that only remembers.

    Parameters
    ----------
    stream : Stream
        What is followed.
    changed : callable
        Called from the thread when there is a newer step or the stream has ended.
    on_notice : callable, optional
        Called from the thread with each notice of what the stream waits for, or passes over.
    """

    def __init__(
        self, stream: Stream, changed: Callable[[], object], on_notice: Callable[[Notice], object] | None = None
    ) -> None:
        self.newest: int | None = None
        self.epoch = 0  #: of the newest step: another step of the same number has another epoch
        #: Why there are no newer steps; empty while the stream runs.
        self.ended = ""
        self._changed = changed
        self._follower = stream.follow(start="latest", latest_only=True, on_notice=on_notice)
        self._thread = Thread(target=self._run, name="forebay-live-steps", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops following; idempotent."""
        self._follower.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            for step in self._follower:
                with step:
                    self.newest, self.epoch = step.number, step.epoch
                self._changed()
            self.ended = "the stream has ended"
        except (ForebayError, ValueError) as error:
            self.ended = str(error)
        self._changed()
