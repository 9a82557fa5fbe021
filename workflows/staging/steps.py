# SPDX-License-Identifier: Apache-2.0
"""Stage-out of chosen steps of a stream: one verified output per step, then the receipt, then the mark in the stream.

For each step: write the output under a hidden name, sync, read it back and compare with the writer's checksums, enter
it in the receipt's log, rename, mark the step staged, acknowledge it. The next step is written while the ones before it
are synced and compared; they are published in order. A run that is killed at any point is taken up by the next one:
what the receipt has is checked and kept, what is unfinished is removed and done again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import forebay
from forebay.errors import (
    CorruptError,
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    PermissionDeniedError,
    StepGoneError,
    UnsupportedError,
    VariableNotFoundError,
)
from forebay.fail_point import fail_point
from forebay.instance import InstanceLike
from forebay.manager.jobs import StepsJob
from forebay.records import Address
from forebay.step import Step
from forebay.step_selection import StepSelection
from forebay.stream import Stream
from forebay.workflows.staging.destination import Destination
from forebay.workflows.staging.formats import output_format
from forebay.workflows.staging.output_making import CHECKED_AT_ONCE, DamagedStepError, OutputMaker, PendingOutput
from forebay.workflows.staging.outputs import type_name, unchecked_variables
from forebay.workflows.staging.receipt import FileEntry, StepEntry, VariableEntry, files_match
from forebay.workflows.staging.reporting import Json, Reporter, notes_of_waits
from forebay.workflows.staging.step_source import choose_kept_steps, followed_steps, kept_steps, lost_steps

__all__ = ["check_gaps", "stage_steps"]

_RECONNECT_SECONDS = 60.0  # that a restarting server is waited for
_NUMBERS_SHOWN_MAX = 10


def stage_steps(
    job: StepsJob,
    reporter: Reporter,
    instance: InstanceLike | None = None,
    *,
    receipt: Path | None = None,
    folder: int | None = None,
) -> Json:
    """Does the job and returns its result. Each step gets an output of its own; see `merged.py` for one with all.

    Parameters
    ----------
    receipt : Path, optional
        What the stream is told as the receipt of its steps; not given: that of the destination.
    folder : int, optional
        A descriptor of the destination, where its name is not enough.

    Raises
    ------
    StepGoneError
        Chosen steps were dropped or lost before they could be read; the others are staged.
    CorruptError
        The stream's bytes, or what reads back from the destination, do not match the checksums.
    NoSpaceError, PermissionDeniedError, AlreadyExistsError, BusyError, StreamInterruptedError, …
    """
    selection = StepSelection.parse(job.every, job.steps)
    address = Address.parse(job.stream)
    if address.step is not None:
        raise InvalidArgumentError(f"{address} names a step; write {address.path} --steps {address.step}")
    open_timeout = None if job.follow else 0.0
    shown = Path(job.destination)
    with (
        notes_of_waits(reporter),
        forebay.open(address.path, instance=instance, timeout=open_timeout, run=job.run or None) as stream,
        Destination.opened(shown) if folder is None else Destination.of_folder(folder, shown) as destination,
        forebay.Admin(instance, reconnect_timeout=_RECONNECT_SECONDS) as admin,
    ):
        return _Stager(job, selection, stream, admin, destination, reporter, receipt).run()


@dataclass(slots=True)
class _InFlight:
    """A step whose output is being made."""

    step: Step
    names: list[str]
    unchecked: bool  #: it has variables without checksums
    output: Path
    bytes_done: int = 0  #: of `Progress.bytes_done`
    passed: Step | None = None  #: the last step after it that is not staged out, to be acknowledged with it

    @property
    def complete(self) -> bool:
        """True if the output has all variables of the step."""
        return len(self.names) == len(self.step)


class _Stager:
    """One run of a job, under the destination's lock."""

    def __init__(
        self,
        job: StepsJob,
        selection: StepSelection,
        stream: Stream,
        admin: forebay.Admin,
        destination: Destination,
        reporter: Reporter,
        receipt: Path | None,
    ) -> None:
        self._job = job
        self._selection = selection
        self._stream = stream
        self._admin = admin
        self._uuid = stream.info.uuid
        self._format = output_format(job.format)
        self._destination = destination
        self._receipt = str(receipt or destination.shown_receipt)
        self._reporter = reporter
        self._reporting = threading.Lock()
        self._in_flight: deque[tuple[_InFlight, PendingOutput]] = deque()
        self._finish_failed = False
        self._staged: list[int] = []
        self._kept: list[int] = []
        self._lost: set[int] = set()
        self._only_reads = False  # may not say that steps are staged
        self._corrupt: list[CorruptError] = []

    def run(self) -> Json:
        self._destination.recover()
        with contextlib.ExitStack() as stack:
            steps = self._followed(stack) if self._job.follow else self._kept_ones()
            maker = stack.enter_context(OutputMaker(self._format, self._destination))
            stack.callback(self._discard_all, maker)
            try:
                for step in steps:
                    if step is None:
                        self._finish(0)
                    elif step.number in self._selection:
                        self._stage(step, maker)
                    else:
                        self._pass(step)
            except ForebayError:
                # What ended the steps does not undo those that are on their way.
                if not self._finish_failed:
                    self._finish(0)
                raise
            self._reporter.progress.stream_ended = self._job.follow
            self._reporter.update(at_once=True)
            fail_point("stage.steps.ended")
            self._finish(0)
        self._raise_what_is_missing()
        self._destination.ensure_receipt()
        return {
            "receipt": str(self._destination.shown_receipt),
            "staged": self._staged,
            "kept": sorted(self._kept),
            "lost": sorted(self._lost),
        }

    def _followed(self, stack: contextlib.ExitStack) -> Iterator[Step | None]:
        entries = self._destination.receipt.entries.values()
        known = [entry.step for entry in entries if entry.uuid == self._uuid]
        follower = self._stream.follow(
            self._job.consumer,
            min_watermark="durable",
            ack="manual",
            on_notice=lambda notice: self._note(
                f"the stream is {notice.status}" + (f": {notice.text}" if notice.text else "")
            ),
        )
        stack.enter_context(follower)
        # What a consumer has passed was told to an earlier run.
        first = follower.position if self._job.consumer else 0
        self._leave_lost(first)
        yield from followed_steps(
            follower,
            self._selection,
            self._lost.add,
            self._note_damaged,
            # Steps before belong to other runs.
            resume_at=max(max(known) + 1, self._stream.first_step) if known else None,
        )
        # No step after it tells of the last one.
        self._leave_lost(first)

    def _leave_lost(self, first: int) -> None:
        self._note_lost(lost_steps(self._stream, self._selection, run=self._job.run, first=first))

    def _note_lost(self, lost: dict[int, int]) -> None:
        """Of these steps, with their epochs, there is what was staged out before they were lost."""
        for number, epoch in lost.items():
            entry = self._entry_of(number, epoch)
            if entry is None or not files_match(self._destination.directory, entry):
                self._lost.add(number)
            elif number not in self._kept:
                self._kept.append(number)
                self._tell_files(entry)

    def _entry_of(self, number: int, epoch: int) -> StepEntry | None:
        """What the receipt has of a step, if it is all that is wanted of it."""
        wanted = (self._uuid, epoch, number, self._format.name)
        for entry in self._destination.receipt.entries.values():
            if (entry.uuid, entry.epoch, entry.step, entry.format) == wanted:
                names = {variable.name for variable in entry.variables}
                if names.issuperset(self._job.variables) if self._job.variables else entry.complete:
                    return entry
        return None

    def _kept_ones(self) -> Iterator[Step]:
        chosen, lost = choose_kept_steps(self._stream, self._selection, run=self._job.run)
        self._note_lost(lost)
        progress = self._reporter.progress
        progress.items_total = len(chosen)
        progress.bytes_total = sum(chosen.values())
        self._reporter.update()
        return kept_steps(self._stream, list(chosen), self._lost.add, self._note_damaged)

    def _discard_all(self, maker: OutputMaker) -> None:
        maker.stop()
        for _, making in self._in_flight:
            making.discard()

    def _stage(self, step: Step, maker: OutputMaker) -> None:
        directory = self._destination.directory
        output = directory / f"{self._stream.address.stream}.{step.number:06d}{self._format.suffix}"
        names = self._names(step)
        unchecked = self._unchecked(step, names)
        work = _InFlight(step, names, bool(unchecked), output)
        entry = self._destination.entry(output)
        if entry is not None and self._is_of(entry, step, names):
            if files_match(directory, entry):
                # In order: an acknowledgement counts for all steps before it.
                self._finish(0)
                self._kept.append(step.number)
                self._reporter.progress.items_kept += 1
                self._tell_files(entry)
                self._settle(work, work.complete or entry.complete, already=True)
                return
            self._note(
                f"{self._destination.shown / output.name} does not match its receipt any more; step {step.number} is "
                "staged out again"
            )
        if not self._job.replace:
            self._destination.check_replaceable(output, self._uuid)
        self._finish(CHECKED_AT_ONCE)
        with self._reporting:
            self._reporter.progress.item = output.name
            self._reporter.update()
        try:
            self._in_flight.append((work, self._start(work, maker)))
        except StepGoneError:
            self._finish(0)
            self._lose(work)
        except DamagedStepError as error:
            self._finish(0)
            self._note_damaged(work.step.number, error)
            self._leave(work)

    def _start(self, work: _InFlight, maker: OutputMaker) -> PendingOutput:
        start = partial(maker.start, work.step, work.names, work.output, partial(self._advance, work))
        try:
            return start()
        except NoSpaceError:
            if not self._in_flight:
                raise
            # Those on their way may take the places of older outputs, and give theirs back.
            self._finish(0)
            return start()

    def _pass(self, step: Step) -> None:
        """A step that is not chosen: acknowledged when all before it are staged out."""
        while self._in_flight and self._in_flight[0][1].checked:
            self._finish(len(self._in_flight) - 1)
        if not self._job.consumer:
            step.release()
        elif self._in_flight:
            last, _ = self._in_flight[-1]
            if last.passed is not None:
                last.passed.release()
            last.passed = step
        else:
            with step:
                step.ack()

    def _finish(self, left: int) -> None:
        """Publishes the outputs that are on their way, in order, until that many are left; waits for their checks."""
        try:
            while len(self._in_flight) > left:
                self._finish_first()
        except BaseException:
            # Those behind it must not be marked and acknowledged before it.
            self._finish_failed = True
            raise

    def _finish_first(self) -> None:
        work, making = self._in_flight[0]
        try:
            entry = self._entry(work, making.files())
            self._destination.publish(making.partial, entry)
            self._tell_files(entry)
        except DamagedStepError as error:
            making.discard()
            self._in_flight.popleft()
            self._note_damaged(work.step.number, error)
            self._leave(work)
        except StepGoneError:
            making.discard()
            self._in_flight.popleft()
            self._lose(work)
        else:
            # It has its name now, whatever becomes of the mark.
            self._in_flight.popleft()
            self._staged.append(work.step.number)
            self._settle(work, work.complete, already=False)

    def _is_of(self, entry: StepEntry, step: Step, names: Sequence[str]) -> bool:
        return (
            (entry.uuid, entry.epoch, entry.step) == (self._uuid, step.epoch, step.number)
            and entry.format == self._format.name
            and {variable.name for variable in entry.variables}.issuperset(names)
        )

    def _names(self, step: Step) -> list[str]:
        if not self._job.variables:
            return list(step)
        missing = [name for name in self._job.variables if name not in step]
        if missing:
            raise VariableNotFoundError(
                f"there is no variable {', '.join(map(repr, missing))}; the step has {', '.join(step) or 'none'}",
                str(step.address),
            )
        return list(self._job.variables)

    def _unchecked(self, step: Step, names: list[str]) -> list[str]:
        """The variables that were written without checksums, if the job accepts them."""
        unchecked = list(unchecked_variables(step, names))
        if unchecked and not self._job.accept_unchecked:
            raise UnsupportedError(
                f"variable {', '.join(map(repr, unchecked))} was written without checksums, so what is staged out "
                "cannot be checked against what was written; write with checksums, or allow it with "
                "--accept-unchecked",
                str(step.address),
            )
        return unchecked

    def _settle(self, work: _InFlight, complete: bool, *, already: bool) -> None:
        """The step's output is there: marks it."""
        step = work.step
        if (complete or self._job.mark_partial) and not (already and step.summary.staged):
            self._mark_staged(step)
        with self._reporting:
            progress = self._reporter.progress
            progress.items_done += 1
            progress.bytes_done += step.size_bytes - work.bytes_done
            self._reporter.update(at_once=True)
        self._release(work)

    def _mark_staged(self, step: Step) -> None:
        if self._only_reads:
            return
        try:
            self._admin.mark_staged(self._stream.address, step.epoch, [step.number], self._receipt)
        except PermissionDeniedError:
            # Whose reservation it is decides what may be dropped, not who takes a copy.
            self._only_reads = True
            self._note("you may only read this stream: its steps are staged out, but not marked as staged")

    def _lose(self, work: _InFlight) -> None:
        self._lost.add(work.step.number)
        self._leave(work)

    def _note_damaged(self, number: int, error: CorruptError) -> None:
        # A damaged step must not keep those after it from being saved.
        self._corrupt.append(error)
        self._note(f"step {number} is damaged and is left out: {error}")

    def _leave(self, work: _InFlight) -> None:
        """There is no output of this step."""
        with self._reporting:
            self._reporter.progress.bytes_done -= work.bytes_done
        self._release(work)

    def _release(self, work: _InFlight) -> None:
        for step in (work.step, work.passed):
            if step is not None:
                with step:
                    if self._job.follow and self._job.consumer:
                        step.ack()

    def _advance(self, work: _InFlight, count_bytes: int) -> None:
        with self._reporting:
            # Every byte passes twice: written, and read back.
            work.bytes_done += count_bytes // 2
            self._reporter.progress.bytes_done += count_bytes // 2
            self._reporter.update()

    def _note(self, text: str) -> None:
        with self._reporting:
            self._reporter.note(text)

    def _tell_files(self, entry: StepEntry) -> None:
        """For the manager's receipt. What goes into one output with other steps is told by `merged.py`."""
        if self._receipt == str(self._destination.shown_receipt):
            with self._reporting:
                self._reporter.files(entry.file_rows())

    def _entry(self, work: _InFlight, files: tuple[FileEntry, ...]) -> StepEntry:
        step = work.step
        variables = tuple(
            VariableEntry(
                name, type_name(step[name].dtype), step[name].kind.value, step[name].shape, len(step[name].blocks)
            )
            for name in work.names
        )
        return StepEntry(
            stream=self._stream.address.path,
            uuid=self._uuid,
            epoch=step.epoch,
            step=step.number,
            committed_ns=step.time_ns,
            staged_ns=time.time_ns(),
            format=self._format.name,
            output=work.output.name,
            complete=work.complete,
            verified="read" if work.unchecked else "checksums",
            variables=variables,
            files=files,
            forebay=version("forebay"),
        )

    def _raise_what_is_missing(self) -> None:
        where = f"stream {self._stream.address}"
        if self._corrupt:
            others = f" (and {len(self._corrupt) - 1} more steps)" if len(self._corrupt) > 1 else ""
            raise CorruptError(
                f"the stream's own bytes are damaged: {self._corrupt[0].what}{others}; all other chosen steps are "
                "staged out. `forebay doctor --read-data` tells all that is damaged",
                self._corrupt[0].where or where,
            )
        check_gaps(self._job, sorted(self._lost), where)


def check_gaps(job: StepsJob, gone: Sequence[int], where: str) -> None:
    """StepGoneError, once the others are staged out, if chosen steps are gone and the job does not accept it."""
    if gone and not job.accept_gaps:
        raise StepGoneError(
            f"the chosen steps {_listed(gone)} were dropped by retention, or went with a server that lost its data, "
            "before they could be staged out; the others are staged. Keep such steps with the retention precious:N or "
            "consumers:NAME (and --consumer NAME) and make them durable, or accept it with --accept-gaps",
            where,
        )


def _listed(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:_NUMBERS_SHOWN_MAX]))
    more = len(numbers) - _NUMBERS_SHOWN_MAX
    return f"{text} and {more} more" if more > 0 else text
