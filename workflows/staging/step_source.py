# SPDX-License-Identifier: Apache-2.0
"""The chosen durable steps of a stream, one after another: those that there are, or those that come until it ends.

A step is valid until the next one is asked for. Chosen steps that were gone before they could be read are told to
`lose`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from forebay.errors import DeadlineExceededError, StepGoneError, StepNotFoundError, StepTimeoutError
from forebay.records import Notice
from forebay.step import Step
from forebay.stream import Stream
from forebay.workflows.staging.selection import StepSelection

__all__ = ["Lose", "choose_kept_steps", "follow_steps", "kept_steps"]

Lose = Callable[[int], None]

_DURABLE_TIMEOUT_SECONDS = 60.0


def choose_kept_steps(stream: Stream, selection: StepSelection) -> dict[int, int]:
    """Numbers and sizes of the chosen steps that the stream has now.

    Raises
    ------
    StepNotFoundError
        A step that was asked for by its number is not there.
    """
    summaries = stream.steps()
    chosen = {summary.number: summary.size_bytes for summary in summaries if summary.number in selection}
    missing = sorted(selection.named.difference(chosen))
    if missing:
        kept = f"it keeps {summaries[0].number} to {summaries[-1].number}" if summaries else "it keeps none"
        raise StepNotFoundError(
            f"the stream has no step {', '.join(map(str, missing))} ({kept}); leave it out, or wait for it with "
            "--follow",
            f"stream {stream.address}",
        )
    return chosen


def kept_steps(stream: Stream, numbers: list[int], lose: Lose) -> Iterator[Step]:
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
        with step:
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


def follow_steps(
    stream: Stream,
    selection: StepSelection,
    lose: Lose,
    *,
    consumer: str = "",
    resume_at: int | None = None,
    on_notice: Callable[[Notice], object] | None = None,
) -> Iterator[Step]:
    """The chosen steps as they become durable, until the stream ends or the last one that can be chosen has come.

    Parameters
    ----------
    consumer : str
        Name of the cursor to read with; a step is acknowledged when the next one is asked for.
    resume_at : int, optional
        Where an earlier run has come to: chosen steps from there on that do not come are lost, too.
    """
    last = selection.last
    expected = resume_at
    with stream.follow(consumer, min_watermark="durable", ack="manual", on_notice=on_notice) as follower:
        for step in follower:
            with step:
                if expected is not None and not step.rewound:
                    for number in range(expected, step.number):
                        if number in selection:
                            lose(number)
                expected = step.number + 1
                if step.number in selection:
                    yield step
                if consumer:
                    step.ack()
                if last is not None and step.number >= last:
                    return
