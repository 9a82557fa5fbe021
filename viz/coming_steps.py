# SPDX-License-Identifier: Apache-2.0
"""Which step to draw next while a stream runs: the newest, and those that were skipped when there is time.

A thread follows the stream and only remembers. So a step is drawn as soon as the picture in hand is done, however many
have committed meanwhile, and what is shown is at most two drawing times old.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread

from forebay import Follower, Step, Stream
from forebay.closing import Closing
from forebay.errors import StepGoneError, StepNotFoundError
from forebay.withdrawal import was_withdrawn

__all__ = ["ComingSteps"]


@dataclass(frozen=True)
class _Known:
    """A step that came and is not done yet."""

    number: int
    epoch: int


class ComingSteps(Closing):
    """The steps of a stream in the order in which they should be drawn. :meth:`take` belongs to one thread.

    Parameters
    ----------
    follower : Follower
        Gives the steps; closed at the end. With a consumer's name it acknowledges by hand.
    latest : bool
        The newest step first, then the oldest of those that were skipped. False: one after another.
    whole : bool
        Also give those that were skipped. False: only the newest; ``latest`` is taken as True.
    on_withdrawn : callable, optional
        Called by :meth:`take` with the number of a step before which all others stay: it and all after it were
        withdrawn, or are given again.
    on_gone : callable, optional
        Called by :meth:`take` with what is said of a step that was dropped before it could be drawn.
    """

    def __init__(
        self,
        follower: Follower,
        *,
        latest: bool,
        whole: bool = True,
        on_withdrawn: Callable[[int], object] | None = None,
        on_gone: Callable[[str], object] | None = None,
    ) -> None:
        self._follower = follower
        self._stream = follower.stream
        self._latest, self._whole = latest or not whole, whole
        self._on_withdrawn, self._on_gone = on_withdrawn, on_gone
        self._changed = Condition()  # guards what follows
        self._waiting: dict[int, _Known] = {}  # by number, in order; the one in hand stays until it is done
        self._newest: Step | None = None  # pinned, until it is taken or a newer one comes
        self._in_hand: _Known | None = None
        self._last: int | None = None  # number of the step that came last
        self._withdrawn_from: int | None = None
        self._ending: BaseException | None = None
        self._thread = Thread(target=self._follow, name="forebay-coming-steps", daemon=True)
        self._thread.start()

    def take(self) -> Step | None:
        """The step to draw next, pinned as far as readers' pins go; None when the stream has ended and all are done.

        Waits for one. Tell :meth:`done` before the next.

        Raises
        ------
        ForebayError
            What ended following, once all steps before it are done.
        """
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._waiting or self._withdrawn_from is not None or self._ending is not None
                )
                withdrawn, self._withdrawn_from = self._withdrawn_from, None
                step, known = self._choose() if withdrawn is None else (None, None)
                ending = self._ending
            if withdrawn is not None:
                if self._on_withdrawn is not None:
                    self._on_withdrawn(withdrawn)
                continue
            if known is None:
                first = self._withdrawn_at_the_end()
                if first is not None and self._on_withdrawn is not None:
                    self._on_withdrawn(first)
                if ending is None or isinstance(ending, StopIteration):
                    return None
                raise ending
            if step is None:
                step = self._open(known)
            if step is not None:
                return step

    def gone(self, step: Step, reason: str) -> None:
        """The step in hand cannot be drawn, as it is not there any more: instead of :meth:`done`.

        Where a restart of the writer withdrew it, another one takes its place, perhaps much later; where it was dropped
        ``on_gone`` is called.
        """
        with self._changed:
            known, self._in_hand = self._in_hand, None
        if known is not None:
            self._lose(known, reason)

    def done(self, step: Step) -> bool:
        """The step is drawn, and its handle not needed any more; False if it was withdrawn meanwhile."""
        with self._changed:
            known, self._in_hand = self._in_hand, None
            current = known is not None and self._waiting.get(step.number) is known
            if current:
                del self._waiting[step.number]
        return current

    @property
    def stream(self) -> Stream:
        """What is followed."""
        return self._stream

    @property
    def newest_known(self) -> int | None:
        """Number of the step that came last; None before the first."""
        with self._changed:
            return self._last

    @property
    def oldest_waiting(self) -> int | None:
        """Number of the oldest step that came and is not done; None: all are."""
        with self._changed:
            return next(iter(self._waiting), None)

    def acknowledge(self, step: Step) -> None:
        """Moves the consumer's cursor behind a step, which must not be released; without a name there is no cursor."""
        if self._follower.consumer:
            self._follower.ack(step)

    def close(self) -> None:
        """Stops following. Idempotent."""
        self._follower.close()
        self._thread.join()
        with self._changed:
            if self._newest is not None:
                self._newest.release()
                self._newest = None

    def _follow(self) -> None:
        try:
            while True:
                self._put(next(self._follower))
        except BaseException as error:  # raised where steps are taken
            with self._changed:
                self._ending = error
                self._changed.notify_all()

    def _put(self, step: Step) -> None:
        with self._changed:
            if step.rewound or (self._last is not None and step.number <= self._last):
                self._waiting = {number: known for number, known in self._waiting.items() if number < step.number}
                first = self._withdrawn_from
                self._withdrawn_from = step.number if first is None else min(first, step.number)
            elif self._last is None:
                # After a crash steps may be given again that are drawn already.
                self._withdrawn_from = step.number
            if not self._whole:
                self._waiting.clear()
            known = _Known(step.number, step.epoch)
            self._waiting[step.number] = known
            self._last = step.number
            before, self._newest = self._newest, step if self._latest else None
            self._changed.notify_all()
        if before is not None:
            before.release()
        if not self._latest:
            step.release()

    def _choose(self) -> tuple[Step | None, _Known | None]:
        if not self._waiting:
            return None, None
        step, self._newest = self._newest, None
        if step is not None and step.number in self._waiting:
            self._in_hand = self._waiting[step.number]
            return step, self._in_hand
        self._in_hand = next(iter(self._waiting.values()))
        return None, self._in_hand

    def _open(self, known: _Known) -> Step | None:
        try:
            step = self._stream[known.number]
            if step.epoch == known.epoch:
                return step
            reason = f"step {known.number} was withdrawn"
        except (StepGoneError, StepNotFoundError) as error:
            reason = str(error)
        with self._changed:
            self._in_hand = None
        self._lose(known, reason)
        return None

    def _lose(self, known: _Known, reason: str) -> None:
        with self._changed:
            still_wanted = self._waiting.get(known.number) is known
            if still_wanted:
                del self._waiting[known.number]
        if still_wanted and not was_withdrawn(self._stream, known.number, known.epoch) and self._on_gone is not None:
            self._on_gone(reason)

    def _withdrawn_at_the_end(self) -> int | None:
        """The first step that was withdrawn without another in its place, when the stream has ended; None: none was."""
        with self._changed:
            last, self._last = self._last, None
        if last is None:
            return None
        committed = self._stream.info.committed
        first = 0 if committed is None else committed + 1
        return first if first <= last else None
