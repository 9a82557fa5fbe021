# SPDX-License-Identifier: Apache-2.0
"""Holding a range of steps, so that retention drops none of them while they are worked on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, SupportsIndex

from forebay.closing import Closing
from forebay.errors import InvalidArgumentError, NoSpaceError, StepGoneError, StepNotFoundError
from forebay.kept_steps import number_from_newest
from forebay.options import integer
from forebay.sizes import format_size
from forebay.step import Step
from forebay.step_table import retention_advice

if TYPE_CHECKING:
    from forebay.stream import Stream

__all__ = ["Hold", "hold_steps"]


class Hold(Closing):
    """Steps that are pinned until :meth:`close`, or the end of ``with``; made by :meth:`Stream.hold`.

    Held steps stay in the stream for everybody, whatever its retention says. They end with this process, too.
    """

    def __init__(self, stream: Stream, steps: Sequence[Step]) -> None:
        self._stream = stream
        self._steps = list(steps)
        self._numbers = [step.number for step in steps]

    @property
    def numbers(self) -> list[int]:
        """Numbers of the steps that are, or were, held."""
        return list(self._numbers)

    @property
    def closed(self) -> bool:
        """True after :meth:`close`."""
        return not self._steps

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Step]:
        """The held steps, oldest first; none after :meth:`close`."""
        return iter(list(self._steps))

    def close(self) -> None:
        """Lets the steps go; views of them that are alive keep theirs. Idempotent."""
        steps, self._steps = self._steps, []
        for step in steps:
            step.release()

    def __repr__(self) -> str:
        closed = ", closed" if self.closed else ""
        return f"<Hold of {self._stream.address}: {len(self)} steps, {self._numbers[0]} to {self._numbers[-1]}{closed}>"


def hold_steps(stream: Stream, oldest: SupportsIndex | None, newest: SupportsIndex | None) -> Hold:
    """Pins the kept steps from ``oldest`` to ``newest``, both included; see :meth:`Stream.hold`."""
    where = f"stream {stream.address}"
    kept = stream.steps().numbers
    if not kept:
        raise StepNotFoundError("the stream has no steps yet: there is nothing to hold", where)
    first, last = (
        kept[end] if bound is None else _number(name, bound, kept, where)
        for name, bound, end in (("oldest", oldest, 0), ("newest", newest, -1))
    )
    if last > kept[-1]:
        raise StepNotFoundError(f"there is no step {last} yet: the newest is {kept[-1]}", where)
    if first > last:
        raise InvalidArgumentError(f"oldest is step {first}, after newest, step {last}", where)
    steps = stream._steps_of([number for number in kept if first <= number <= last])
    held = Hold(stream, steps)
    for bound, number in ((oldest, first), (newest, last)):
        # Where no number was given, what is kept at the moment of the pin is what was asked for.
        if (bound is not None and number not in held.numbers) or not steps:
            held.close()
            raise StepGoneError(
                f"step {number} was dropped before it could be held; {retention_advice(stream)}",
                f"{stream.address}@{number}",
            )
    pinned = sum(step.pinned for step in steps)
    if pinned < len(steps):
        size = sum(step.size_bytes for step in steps)
        held.close()
        raise NoSpaceError(
            f"only {pinned} of the {len(steps)} steps can be held, which have {format_size(size)}: readers without a "
            "name hold at most a quarter of the reservation together. Hold fewer steps, or let retention wait for a "
            "consumer (consumers:NAME)",
            where,
        )
    return held


def _number(name: str, bound: SupportsIndex, kept: Sequence[int], where: str) -> int:
    number = integer(f"{name}, the number of a step,", bound)
    return number if number >= 0 else number_from_newest(kept, number, where)
