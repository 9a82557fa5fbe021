# SPDX-License-Identifier: Apache-2.0
"""Derives a stream from another one, step by step, as an ordinary reader and writer of the user.

A derived step has its source's number. Steps that could not be derived, because they were dropped before they were
read, leave their numbers out. Killed at any moment and started again, it continues after the last step that committed;
steps that the source took back are taken back here too.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import forebay
from forebay import Notice, Retention, Step, Stream, WritableStream
from forebay.connectors.derive.fields import Fields, MissingVariableError
from forebay.connectors.derive.making import Maker, Making
from forebay.connectors.derive.provenance import Derived, attributes_of_step, found_derived
from forebay.connectors.derive.recipe import Operation, Recipe
from forebay.errors import (
    ForebayError,
    InvalidArgumentError,
    StepGoneError,
    StepNotFoundError,
    StepTimeoutError,
    VariableNotFoundError,
)
from forebay.follower import Follower, StartText
from forebay.instance import InstanceLike
from forebay.withdrawal import was_withdrawn

__all__ = ["Progress", "SkippedSteps", "derive_stream", "workers_by_default"]

#: How many runs of skipped steps are told one by one.
_SKIPPED_MAX = 100


@dataclass(frozen=True)
class SkippedSteps:
    """Steps of the source, from ``first`` to ``last``, that have no derived step, and why."""

    first: int
    last: int
    count: int
    reason: str


@dataclass
class Progress:
    """How far it is.

    Attributes
    ----------
    steps : int
        How many steps were derived by this call.
    last : int, optional
        Number of the newest derived step, also of an earlier call.
    skipped : int
        Steps of the source that were committed and have no derived step.
    skipped_steps : list of SkippedSteps
        The last hundred runs of them.
    withdrawn : int
        How often steps were taken back because the source took its own back.
    """

    steps: int = 0
    last: int | None = None
    skipped: int = 0
    skipped_steps: list[SkippedSteps] = field(default_factory=list)
    withdrawn: int = 0

    def skip(self, first: int, last: int, count: int, reason: str) -> SkippedSteps:
        """Notes steps that have no derived one."""
        self.skipped += count
        skipped = SkippedSteps(first, last, count, reason)
        self.skipped_steps = [*self.skipped_steps, skipped][-_SKIPPED_MAX:]
        return skipped


class _SourceRewoundError(Exception):
    """Ends the group that writes the derived stream: its consumers read this text until the next one begins."""


def workers_by_default() -> int:
    """Half of the processors that this process may use, four at most: the others are the producer's."""
    return max(1, min(4, len(os.sched_getaffinity(0)) // 2))


def derive_stream(
    source: Stream,
    output: str,
    operations: Sequence[Operation],
    maker: Maker,
    *,
    ahead: int = 1,
    instance: InstanceLike | None = None,
    variables: Sequence[str] | None = None,
    consumer: str = "",
    latest_only: bool = False,
    start: StartText | int = "oldest",
    timeout: float | None = None,
    replace: bool = False,
    retention: Retention | None = None,
    writing: dict[str, Any] | None = None,
    on_progress: Callable[[Progress, Step], object] | None = None,
    on_skip: Callable[[SkippedSteps], object] | None = None,
    on_notice: Callable[[Notice], object] | None = None,
) -> Progress:
    """Derives each step of ``source`` until that ends.

    Parameters
    ----------
    output : str
        Address of the derived stream, in any reservation of the instance.
    maker : Maker
        Where steps are made.
    ahead : int
        How many are made at once at most.
    variables : sequence of str, optional
        Those that the operations get; None: all. Single values of the source come along.
    consumer : str
        Name that the source's retention may wait for; empty: the source never waits, and what it drops is skipped.
    latest_only : bool
        After each step take the newest, and skip those between.
    start : "oldest", "latest", "next" or int
        Where to begin if the derived stream has no step.
    replace : bool
        Begin the derived stream anew, whatever it has.
    retention : Retention, optional
        Of the derived stream; None: as it is, or all.
    writing : dict, optional
        Further options of :func:`forebay.open` for the derived stream.

    Raises
    ------
    RefusedError
        The derived stream has steps that come from something else; or unstaged precious steps would be withdrawn.
    BusyError
        Somebody derives this stream already.
    StreamInterruptedError, StreamFailedError
        The source has lost its writers; what was derived stays, and the next call continues.
    """
    place = forebay.Address.parse(output)
    if place.path == source.address.path and place.server == source.address.server:
        raise InvalidArgumentError(f"{place} cannot be derived from itself: name another stream")
    work = _Work(source, output, tuple(operations), variables, instance, retention, writing or {}, maker, ahead)
    work.on_progress, work.on_skip = on_progress, on_skip
    derived = Derived() if replace else found_derived(output, source, work.texts, instance)
    following = {
        "consumer": consumer,
        "latest_only": latest_only,
        "timeout": timeout,
        "on_notice": on_notice,
        "ack": "manual",
    }
    while True:
        try:
            work.run(derived, replace, following, start)
            return work.progress
        except _SourceRewoundError:
            replace = False
            derived = found_derived(output, source, work.texts, instance)


class _Work:
    def __init__(
        self,
        source: Stream,
        output: str,
        operations: tuple[Operation, ...],
        variables: Sequence[str] | None,
        instance: InstanceLike | None,
        retention: Retention | None,
        writing: dict[str, Any],
        maker: Maker,
        ahead: int,
    ) -> None:
        self._source = source
        self._output = output
        self._recipe = Recipe(operations, None if variables is None else frozenset(variables))
        self._maker = maker
        self._ahead = ahead
        self._under_way: deque[tuple[Step, Making]] = deque()
        self._instance = instance
        self._writing = writing
        if retention is not None:
            self._writing = writing | {"retention": _with_newest(retention)}
        self._seen: set[str] = set()  # variables of the source, so far
        self.texts = (*([f"variables {', '.join(variables)}"] if variables else []), *(one.text for one in operations))
        self.progress = Progress()
        self.on_progress: Callable[[Progress, Step], object] | None = None
        self.on_skip: Callable[[SkippedSteps], object] | None = None

    def run(self, derived: Derived, replace: bool, following: dict[str, Any], start: StartText | int) -> None:
        """Writes one group: until the source ends, or takes steps back."""
        valid = derived.still_valid(self._source)
        mode: dict[str, Any] = {"mode": "a"}
        if valid != derived:
            self.progress.withdrawn += 1
            mode["append_after"] = valid.next_step - 1
        if replace or (derived.next_step and not valid.next_step):
            mode = {"mode": "w"}
        epoch = valid.source_epoch
        with (
            forebay.open(self._output, instance=self._instance, rank=0, ranks=1, **mode, **self._writing) as output,
            self._source.follow(start=output.next_step if derived.next_step else start, **following) as follower,
        ):
            self.progress.last = output.next_step - 1 if output.next_step else None
            missed = "passed over for a newer one" if following["latest_only"] else "dropped before it was read"
            position = output.next_step  # in the source: the number that may come next
            try:
                while (step := self._next(follower, output)) is not None:
                    if step.rewound or step.epoch != epoch:
                        self._finish_all(output, follower)
                        # What was derived may have been taken back, also before this reader came.
                        done = Derived(output.next_step, epoch)
                        if done.still_valid(self._source) != done:
                            raise _SourceRewoundError(f"the source {self._source.address} took steps back")
                    epoch = step.epoch
                    if step.skipped:
                        self._skip(position, step.number - 1, step.skipped, missed)
                    position = step.number + 1
                    self._under_way.append((step, self._maker.begin(step, self._recipe)))
                    if len(self._under_way) >= self._ahead:
                        self._finish_oldest(output, follower)
            finally:
                self._give_up()

    def _next(self, follower: Follower, output: WritableStream) -> Step | None:
        """The next step of the source; None: it has ended, and all that was begun is finished."""
        timeout = follower.timeout
        while True:
            try:
                # While nothing has come, what is under way is finished: its consumers wait for it.
                follower.timeout = 0 if self._under_way else timeout
                return next(follower)
            except StepTimeoutError:
                if not self._under_way:
                    raise
                self._finish_oldest(output, follower)
            except StopIteration:
                self._finish_all(output, follower)
                return None
            except ForebayError:
                self._finish_all(output, follower)
                raise
            finally:
                follower.timeout = timeout

    def _finish_all(self, output: WritableStream, follower: Follower) -> None:
        while self._under_way:
            self._finish_oldest(output, follower)

    def _finish_oldest(self, output: WritableStream, follower: Follower) -> None:
        """Waits until the step is made, and writes it."""
        step, making = self._under_way.popleft()
        with step:
            try:
                is_derived = self._derive(step, making, output)
            except (StepGoneError, StepNotFoundError):
                if not was_withdrawn(self._source, step.number, step.epoch):
                    raise
                self._give_up()  # what was begun after it was taken back as well
                return
            if is_derived:
                self.progress.steps += 1
                self.progress.last = step.number
            if follower.consumer:
                step.ack()
            if self.on_progress is not None:
                self.on_progress(self.progress, step)

    def _give_up(self) -> None:
        """Lets go of what was begun."""
        while self._under_way:
            step, making = self._under_way.pop()
            making.cancel()
            step.close()

    def _derive(self, step: Step, making: Making, output: WritableStream) -> bool:
        """False: the step lacks a variable that others had."""
        self._seen.update(step.variables)
        try:
            fields, loose = making.result()
        except MissingVariableError as error:
            if error.name in self._seen:
                self._skip(step.number, step.number, 1, f"without the variable {error.name!r}, which others have")
                return False
            raise VariableNotFoundError(error.what, str(step.address)) from None
        self._write(step, output, fields, loose)
        return True

    def _write(self, step: Step, output: WritableStream, fields: Fields, loose: dict[str, Any]) -> None:
        attributes = loose | dict(attributes_of_step(step, self.texts))
        for name, made in fields.items():
            attributes |= {f"{name}/{key}": value for key, value in made.attributes.items()}
        with output.step(step.number) as written:
            for name in set(written.attributes).difference(attributes):
                if not name.endswith("/dims"):
                    del written.attributes[name]
            for name, value in attributes.items():
                written.attributes[name] = value
            for name, made in fields.items():
                for box in made.boxes:
                    made.write(written, name, box)

    def _skip(self, first: int, last: int, count: int, reason: str) -> None:
        skipped = self.progress.skip(first, last, count, reason)
        if self.on_skip is not None:
            self.on_skip(skipped)


def _with_newest(retention: Retention) -> Retention:
    """The newest step stays in any case: it says which epoch of the source it comes from."""
    if retention.consumers and not retention.last:
        return Retention(1, retention.consumers, retention.first, retention.precious_every)
    return retention
