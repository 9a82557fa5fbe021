# SPDX-License-Identifier: Apache-2.0
"""Stage-out of chosen steps of a stream: one verified output per step, then the receipt, then the mark in the stream.

For each step: check its blocks, write the output under a hidden name, sync, read it back and compare with the writer's
checksums, rename, enter it in the receipt, mark the step staged. A run that is killed at any point is taken up by the
next one: what the receipt has is checked and kept, what is unfinished is removed and done again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import forebay
from forebay.errors import (
    CorruptError,
    DisconnectedError,
    InvalidArgumentError,
    StepGoneError,
    UnsupportedError,
    VariableNotFoundError,
)
from forebay.records import Address
from forebay.step import Step
from forebay.stream import Stream
from forebay.workflows.staging import publication
from forebay.workflows.staging.destination import Destination
from forebay.workflows.staging.formats import output_format
from forebay.workflows.staging.job import StepsJob
from forebay.workflows.staging.outputs import block_checksums, type_name, unchecked_variables
from forebay.workflows.staging.receipt import FileEntry, StepEntry, VariableEntry, describe_files, files_match
from forebay.workflows.staging.reporting import Json, Reporter
from forebay.workflows.staging.selection import StepSelection
from forebay.workflows.staging.step_source import choose_kept_steps, follow_steps, kept_steps

__all__ = ["stage_steps"]

_MARK_TIMEOUT_SECONDS = 60.0
_NUMBERS_SHOWN_MAX = 10


def stage_steps(job: StepsJob, reporter: Reporter) -> Json:
    """Does the job and returns its result.

    Raises
    ------
    StepGoneError
        Chosen steps were dropped before they could be read; the others are staged.
    CorruptError
        The stream's bytes, or what reads back from the destination, do not match the checksums.
    NoSpaceError, PermissionDeniedError, AlreadyExistsError, BusyError, StreamInterruptedError, …
    """
    selection = StepSelection.parse(job.every, job.steps)
    address = Address.parse(job.stream)
    if address.step is not None:
        raise InvalidArgumentError(f"{address} names a step; write {address.path} --steps {address.step}")
    directory = Path(job.destination)
    open_timeout = None if job.follow else 0.0
    with forebay.open(address.path, timeout=open_timeout) as stream:
        Destination.prepare(directory)
        with publication.destination_lock(directory):
            destination = Destination(directory)
            with destination.readable_errors():
                return _Stager(job, selection, stream, destination, reporter).run()


class _Stager:
    """One run of a job, under the destination's lock."""

    def __init__(
        self, job: StepsJob, selection: StepSelection, stream: Stream, destination: Destination, reporter: Reporter
    ) -> None:
        self._job = job
        self._selection = selection
        self._stream = stream
        self._uuid = stream.info.uuid
        self._format = output_format(job.format)
        self._destination = destination
        self._reporter = reporter
        self._finished_bytes = 0
        self._staged: list[int] = []
        self._kept: list[int] = []
        self._lost: list[int] = []
        self._corrupt: list[CorruptError] = []

    def run(self) -> Json:
        self._destination.recover()
        for step in self._steps():
            self._stage(step)
        self._raise_what_is_missing()
        return {
            "receipt": str(self._destination.receipt.path),
            "staged": self._staged,
            "kept": self._kept,
            "lost": self._lost,
        }

    def _steps(self) -> Iterator[Step]:
        progress = self._reporter.progress
        if self._job.follow:
            entries = self._destination.receipt.entries.values()
            known = [entry.step for entry in entries if entry.uuid == self._uuid]
            return follow_steps(
                self._stream,
                self._selection,
                self._lost.append,
                consumer=self._job.consumer,
                resume_at=max(known) + 1 if known else None,
                on_notice=lambda notice: self._reporter.note(f"the stream is {notice.status}: {notice.text}"),
            )
        chosen = choose_kept_steps(self._stream, self._selection)
        progress.items_total = len(chosen)
        progress.bytes_total = sum(chosen.values())
        self._reporter.update()
        return kept_steps(self._stream, list(chosen), self._lost.append)

    def _stage(self, step: Step) -> None:
        directory = self._destination.directory
        output = directory / f"{self._stream.address.stream}.{step.number:06d}{self._format.suffix}"
        self._reporter.progress.item = output.name
        self._reporter.update()
        names = self._names(step)
        complete = len(names) == len(step)
        entry = self._destination.entry(output)
        if entry is not None and self._is_of(entry, step, names):
            if files_match(directory, entry):
                self._kept.append(step.number)
                self._reporter.progress.items_kept += 1
                self._finish(step, complete or entry.complete, already=True)
                return
            self._reporter.note(f"{output} does not match its receipt any more; step {step.number} is staged out again")
        if not self._job.replace:
            self._destination.check_replaceable(output, self._uuid)
        unchecked = self._unchecked(step, names)
        try:
            for name in names:
                if name not in unchecked:
                    step[name].verify()
        except CorruptError as error:
            # A damaged step must not keep those after it from being saved.
            self._corrupt.append(error)
            self._reporter.note(f"step {step.number} is damaged and is left out: {error}")
            return
        try:
            self._write(step, names, complete, bool(unchecked), output)
        except StepGoneError:
            self._lost.append(step.number)
            return
        self._staged.append(step.number)
        self._finish(step, complete, already=False)

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

    def _write(self, step: Step, names: list[str], complete: bool, unchecked: bool, output: Path) -> None:
        """Writes, syncs and checks the output, and publishes it."""
        checksums = block_checksums(step, names)
        partial = publication.partial_path(output)
        try:
            with self._destination.write_errors(step.number, step.size_bytes, output):
                self._format.write(step, names, partial, self._advance)
                publication.sync_tree(partial)
                self._format.compare(step, checksums, partial, self._advance)
            files = tuple(
                FileEntry(output.name + file.path.removeprefix(partial.name), file.size_bytes, file.crc32c)
                for file in describe_files(partial)
            )
            self._destination.publish(partial, self._entry(step, names, complete, unchecked, output, files))
        except BaseException:
            publication.remove(partial)
            raise

    def _finish(self, step: Step, complete: bool, *, already: bool) -> None:
        if (complete or self._job.mark_partial) and not (already and step.summary.staged):
            _mark_staged(self._stream.address, step, str(self._destination.receipt.path))
        progress = self._reporter.progress
        progress.items_done += 1
        self._finished_bytes += step.size_bytes
        progress.bytes_done = self._finished_bytes
        self._reporter.update(at_once=True)

    def _advance(self, count_bytes: int) -> None:
        # Every byte passes twice: written, and read back.
        self._reporter.progress.bytes_done += count_bytes // 2
        self._reporter.update()

    def _entry(
        self, step: Step, names: list[str], complete: bool, unchecked: bool, output: Path, files: tuple[FileEntry, ...]
    ) -> StepEntry:
        variables = tuple(
            VariableEntry(
                name, type_name(step[name].dtype), step[name].kind.value, step[name].shape, len(step[name].blocks)
            )
            for name in names
        )
        return StepEntry(
            stream=self._stream.address.path,
            uuid=self._uuid,
            epoch=step.epoch,
            step=step.number,
            committed_ns=step.time_ns,
            staged_ns=time.time_ns(),
            format=self._format.name,
            output=output.name,
            complete=complete,
            verified="read" if unchecked else "checksums",
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
                "staged out",
                self._corrupt[0].where or where,
            )
        if self._lost and not self._job.accept_gaps:
            raise StepGoneError(
                f"retention dropped the chosen steps {_listed(self._lost)} before they could be staged out; the others "
                "are staged. Keep such steps with the retention precious:N or consumers:NAME (and --consumer NAME), or "
                "accept it with --accept-gaps",
                where,
            )


def _mark_staged(address: Address, step: Step, receipt: str) -> None:
    """Marks the step in the stream; a restarting server is waited for."""
    deadline = time.monotonic() + _MARK_TIMEOUT_SECONDS
    pause_seconds = 0.05
    while True:
        try:
            with forebay.Admin() as admin:
                admin.mark_staged(address, step.epoch, [step.number], receipt)
            return
        except DisconnectedError:
            if time.monotonic() + pause_seconds > deadline:
                raise
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, 2.0)


def _listed(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers[:_NUMBERS_SHOWN_MAX]))
    more = len(numbers) - _NUMBERS_SHOWN_MAX
    return f"{text} and {more} more" if more > 0 else text
