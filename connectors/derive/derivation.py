# SPDX-License-Identifier: Apache-2.0
"""Derives a stream from another one, step by step, as an ordinary reader and writer of the user.

A derived step has its source's number. Steps that could not be derived, because they were dropped before they were
read, leave their numbers out. Killed at any moment and started again, it continues after the last step that committed;
steps that the source took back are taken back here too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import forebay
from forebay import Notice, Retention, Step, Stream, WritableStream
from forebay.connectors.derive.fields import Fields, MissingVariableError, SourceField, field_named
from forebay.connectors.derive.provenance import Derived, attributes_of_step, found_derived
from forebay.errors import InvalidArgumentError, VariableNotFoundError
from forebay.follower import StartText
from forebay.instance import InstanceLike

__all__ = ["Operation", "Progress", "SkippedSteps", "derive_stream", "workers_by_default"]

#: How many runs of skipped steps are told one by one.
_SKIPPED_MAX = 100
#: Attributes that describe a mesh of the source's variables by name, and of its extents.
_MESH_ATTRIBUTES = ("vtk.xml", "Fides_")


class Operation(Protocol):
    """Makes the fields of a derived step of those of its source, or of what another operation made."""

    @property
    def text(self) -> str:
        """What it does, for the attributes of the derived steps."""

    def apply(self, fields: Fields, attributes: dict[str, Any]) -> Fields:
        """The new fields. ``attributes`` are those of no variable, which it may change."""


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
    *,
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
    work = _Work(source, output, tuple(operations), variables, instance, retention, writing or {})
    work.on_progress, work.on_skip = on_progress, on_skip
    derived = Derived() if replace else found_derived(output, source, work.texts, instance)
    following = {
        "consumer": consumer,
        "latest_only": latest_only,
        "timeout": timeout,
        "on_notice": on_notice,
        "ack": "manual" if consumer else "auto",
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
    ) -> None:
        self._source = source
        self._output = output
        self._operations = operations
        self._variables = None if variables is None else frozenset(variables)
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
            for step in follower:
                with step:
                    if step.rewound or step.epoch != epoch:
                        # What was derived may have been taken back, also before this reader came.
                        done = Derived(output.next_step, epoch)
                        if done.still_valid(self._source) != done:
                            raise _SourceRewoundError(f"the source {self._source.address} took steps back")
                    epoch = step.epoch
                    if step.skipped:
                        self._skip(position, step.number - 1, step.skipped, missed)
                    position = step.number + 1
                    if self._derive(step, output):
                        self.progress.steps += 1
                        self.progress.last = step.number
                    if following["consumer"]:
                        step.ack()
                    if self.on_progress is not None:
                        self.on_progress(self.progress, step)

    def _derive(self, step: Step, output: WritableStream) -> bool:
        """False: the step lacks a variable that others had."""
        names = step.variables
        self._seen.update(names)
        wanted = self._variables
        attributes = dict(step.attributes)
        fields: Fields = {}
        for name in names:
            made = SourceField(step[name], attributes)
            if wanted is None or name in wanted or made.is_value:
                fields[name] = made
        loose = {name: value for name, value in attributes.items() if _is_loose(name, names)}
        try:
            for name in sorted(wanted or ()):
                field_named(name, fields)
            for operation in self._operations:
                fields = operation.apply(fields, loose)
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


def _is_loose(attribute: str, variables: Sequence[str]) -> bool:
    """It belongs to no variable, and describes no mesh of the source's variables."""
    return not attribute.startswith(_MESH_ATTRIBUTES) and not any(
        attribute.startswith(f"{name}/") for name in variables
    )
