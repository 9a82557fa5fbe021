# SPDX-License-Identifier: Apache-2.0
"""The durable steps of a stream, one after another: the chosen ones that there are, or all that come until it ends.

Whoever gets a step releases it, and acknowledges it where it follows as a consumer. Chosen steps that were gone before
they could be read are told to `lose`, those whose metadata is damaged to `leave_damaged`. Those that went with a server
before anybody asked for them are known from the stream (`lost_steps`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice

from forebay.errors import CorruptError, DeadlineExceededError, StepGoneError, StepNotFoundError, StepTimeoutError
from forebay.follower import Follower
from forebay.step import Step
from forebay.step_selection import StepSelection
from forebay.stream import Stream

__all__ = ["LeaveDamaged", "Lose", "choose_kept_steps", "followed_steps", "kept_steps", "lost_steps"]

Lose = Callable[[int], None]
LeaveDamaged = Callable[[int, CorruptError], None]

_DURABLE_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.01
_LOST_LOOKED_AT_MAX = 1_000_000  # numbers: a writer may leave out any number of them


def lost_steps(stream: Stream, selection: StepSelection, *, run: str = "", first: int = 0) -> dict[int, int]:
    """Numbers and epochs of the chosen steps, from `first` on, that the stream keeps no longer since they were lost.

    `run` is what the stream was opened for.
    """
    info = stream.info
    kept = set(stream.steps().numbers)
    first = max(first, stream.first_step)
    last = selection.last
    if run and info.run != run:
        # What came after the run's last step may be another run's.
        last = min(max(kept, default=-1), max(kept, default=-1) if last is None else last)
    ranges = (
        range(max(lost.first, first), (lost.last if last is None else min(lost.last, last)) + 1) for lost in info.lost
    )
    numbers = islice(chain.from_iterable(ranges), _LOST_LOOKED_AT_MAX)
    return {number: info.epoch_of(number) for number in numbers if number in selection and number not in kept}


def choose_kept_steps(
    stream: Stream, selection: StepSelection, *, run: str = ""
) -> tuple[dict[int, int], dict[int, int]]:
    """Numbers and sizes of the chosen steps that the stream has now; numbers and epochs of those that were lost.

    Raises
    ------
    StepNotFoundError
        A step that was asked for by its number is not there.
    """
    summaries = stream.steps()
    chosen = {summary.number: summary.size_bytes for summary in summaries if summary.number in selection}
    lost = lost_steps(stream, selection, run=run)
    missing = sorted(selection.named.difference(chosen, lost))
    if missing:
        kept = f"it keeps {summaries[0].number} to {summaries[-1].number}" if summaries else "it keeps none"
        raise StepNotFoundError(
            f"the stream has no step {', '.join(map(str, missing))} ({kept}); leave it out, or wait for it with "
            "--follow",
            f"stream {stream.address}",
        )
    return chosen, lost


def kept_steps(stream: Stream, numbers: list[int], lose: Lose, leave_damaged: LeaveDamaged) -> Iterator[Step]:
    """Steps by number, in order, after all of them are durable."""
    if not numbers:
        return
    _await_durable(stream, numbers[-1])
    for number in numbers:
        try:
            step = stream[number]
        except (StepGoneError, StepNotFoundError):
            lose(number)
            continue
        except CorruptError as error:
            leave_damaged(number, error)
            continue
        yield step


def _await_durable(stream: Stream, number: int) -> None:
    """Returns when the step of that number, and with it every earlier one, is durable or gone."""
    if any(summary.durable for summary in stream.steps() if summary.number == number):
        return
    try:
        with stream.follow(start=number, min_watermark="durable", timeout=_DURABLE_TIMEOUT_SECONDS) as follower:
            next(follower, None)
    except StepTimeoutError:
        raise DeadlineExceededError(
            f"step {number} did not become durable within {_DURABLE_TIMEOUT_SECONDS:g} s; see `forebay doctor`, then "
            "try again",
            f"stream {stream.address}",
        ) from None


def followed_steps(
    follower: Follower,
    selection: StepSelection,
    lose: Lose,
    leave_damaged: LeaveDamaged,
    *,
    resume_at: int | None = None,
) -> Iterator[Step | None]:
    """All steps as they come, until the stream ends or the last one that can be chosen has come.

    None says that the next one is not there yet: what follows may be a long wait.

    Parameters
    ----------
    follower : Follower
        Its timeout is changed.
    resume_at : int, optional
        Where an earlier run has come to: chosen steps from there on that do not come are lost, too.
    """
    last = selection.last
    expected = resume_at
    for found in _steps_and_waits(follower):
        if found is None:
            yield None
            continue
        number = follower.position - 1
        rewound = isinstance(found, Step) and found.rewound
        if expected is not None and not rewound:
            for missing in range(expected, number):
                if missing in selection:
                    lose(missing)
        expected = number + 1
        if isinstance(found, Step):
            yield found
        elif number in selection:
            leave_damaged(number, found)
        if last is not None and number >= last:
            return


def _steps_and_waits(follower: Follower) -> Iterator[Step | CorruptError | None]:
    # Long enough for the server to answer where there is a step; then as long as it takes.
    timeouts: tuple[float | None, ...] = (_POLL_SECONDS, None)
    while True:
        position = follower.position
        for timeout in timeouts:
            follower.timeout = timeout
            try:
                step = next(follower, None)
            except StepTimeoutError:
                yield None
                continue
            except CorruptError as error:
                if follower.position == position:
                    raise  # it is the stream that cannot be read, not one of its steps
                yield error
                break
            if step is None:
                return
            yield step
            break
