# SPDX-License-Identifier: Apache-2.0
"""Stage-out of chosen steps of a stream: one verified output per step, then the receipt, then the mark in the stream.

For each step: check its blocks, write the output under a hidden name, sync, read it back and compare with the writer's
checksums, rename, enter it in the receipt, mark the step staged. A run that is killed at any point is taken up by the
next one: what the receipt has is checked and kept, what is unfinished is removed and done again.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import forebay
from forebay.errors import (
    AlreadyExistsError,
    CorruptError,
    DisconnectedError,
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    PermissionDeniedError,
    StepGoneError,
    StorageError,
    UnsupportedError,
    VariableNotFoundError,
)
from forebay.records import Address
from forebay.step import Step
from forebay.stream import Stream
from forebay.workflows.staging import publication
from forebay.workflows.staging.formats import output_format
from forebay.workflows.staging.job import StepsJob
from forebay.workflows.staging.outputs import block_checksums, type_name, unchecked_variables
from forebay.workflows.staging.receipt import FileEntry, Receipt, StepEntry, VariableEntry, describe_files, files_match
from forebay.workflows.staging.reporting import Json, Reporter
from forebay.workflows.staging.selection import StepSelection
from forebay.workflows.staging.step_source import choose_kept_steps, follow_steps, kept_steps

__all__ = ["prepare_directory", "stage_steps"]

_MARK_TIMEOUT_SECONDS = 60.0


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
    prepare_directory(directory)
    open_timeout = None if job.follow else 0.0
    with (
        _readable_errors(directory),
        publication.destination_lock(directory),
        forebay.open(address.path, timeout=open_timeout) as stream,
    ):
        return _Stager(job, selection, stream, directory, reporter).run()


def prepare_directory(directory: Path) -> None:
    """Makes the destination if it is not there."""
    if directory.is_dir():
        return
    if directory.exists():
        raise InvalidArgumentError("the destination is a file; name a directory", str(directory))
    try:
        directory.mkdir(parents=True)
        publication.sync_directory(directory.parent)
    except OSError as error:
        raise StorageError(
            f"the destination cannot be made ({error.strerror}); name a directory that may be written", str(directory)
        ) from error


@contextlib.contextmanager
def _readable_errors(directory: Path) -> Iterator[None]:
    """Operating-system errors of the destination, as errors that say what to do."""
    try:
        yield
    except PermissionError as error:
        if isinstance(error, ForebayError):
            raise
        raise PermissionDeniedError(
            "the destination cannot be written; choose another, or have its permissions changed",
            str(error.filename or directory),
        ) from error


class _Stager:
    """One run of a job, under the destination's lock."""

    def __init__(
        self, job: StepsJob, selection: StepSelection, stream: Stream, directory: Path, reporter: Reporter
    ) -> None:
        self._job = job
        self._selection = selection
        self._stream = stream
        self._uuid = stream.info.uuid
        self._format = output_format(job.format)
        self._directory = directory
        self._reporter = reporter
        self._receipt = Receipt.load(directory)
        self._finished_bytes = 0
        self._staged: list[int] = []
        self._kept: list[int] = []
        self._lost: list[int] = []
        self._corrupt: list[CorruptError] = []

    def run(self) -> Json:
        self._recover()
        for step in self._steps():
            self._stage(step)
        result = {
            "receipt": str(self._receipt.path),
            "staged": self._staged,
            "kept": self._kept,
            "lost": self._lost,
        }
        if self._corrupt:
            others = f" (and {len(self._corrupt) - 1} more steps)" if len(self._corrupt) > 1 else ""
            raise CorruptError(
                f"the stream's own bytes are damaged: {self._corrupt[0].what}{others}; all other chosen steps are "
                "staged out",
                self._corrupt[0].where,
            )
        if self._lost and not self._job.accept_gaps:
            raise StepGoneError(
                f"retention dropped the chosen steps {_listed(self._lost)} before they could be staged out; the "
                "others are "
                "staged. Keep such steps with the retention precious:N or consumers:NAME (and --consumer NAME), or "
                "accept "
                "it with --accept-gaps",
                f"stream {self._stream.address}",
            )
        return result

    def _steps(self) -> Iterator[Step]:
        progress = self._reporter.progress
        if self._job.follow:
            known = [entry.step for entry in self._receipt.entries.values() if entry.uuid == self._uuid]
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

    def _recover(self) -> None:
        """Brings the destination from wherever an earlier run was killed to a state that the receipt describes."""
        publication.remove_leftovers(self._directory)
        for marker in sorted(self._directory.glob(".*.publishing")):
            try:
                entry = StepEntry.from_json(json.loads(marker.read_text(encoding="utf-8")))
            except (ValueError, KeyError, TypeError):
                raise CorruptError(
                    "this is no marker of a stage-out; move it away, then run the same command again", str(marker)
                ) from None
            if files_match(self._directory, entry):
                self._receipt.entries[entry.output] = entry
                self._receipt.save()
            marker.unlink()

    def _stage(self, step: Step) -> None:
        output = self._directory / f"{self._stream.address.stream}.{step.number:06d}{self._format.suffix}"
        self._reporter.progress.item = output.name
        self._reporter.update()
        names = self._names(step)
        complete = len(names) == len(step)
        entry = self._receipt.entries.get(output.name)
        if entry is not None and self._is_of(entry, step, names):
            if files_match(self._directory, entry):
                self._kept.append(step.number)
                self._reporter.progress.items_kept += 1
                self._finish(step, complete or entry.complete, already=True)
                return
            self._reporter.note(f"{output} does not match its receipt any more; step {step.number} is staged out again")
        self._check_replaceable(output, entry)
        try:
            step.verify()
        except CorruptError as error:
            # A damaged step must not keep those after it from being saved.
            self._corrupt.append(error)
            self._reporter.note(f"step {step.number} is damaged and is left out: {error}")
            return
        try:
            entry = self._write(step, names, complete, output)
        except StepGoneError:
            self._lost.append(step.number)
            return
        self._enter(entry)
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

    def _check_replaceable(self, output: Path, entry: StepEntry | None) -> None:
        if self._job.replace or not os.path.lexists(output) or (entry is not None and entry.uuid == self._uuid):
            return
        whose = f"was staged out from another stream, {entry.stream} ({entry.uuid})" if entry else "is in no receipt"
        raise AlreadyExistsError(
            f"the destination has a {output.name} that {whose}; choose another destination, or allow it with --replace",
            str(output),
        )

    def _write(self, step: Step, names: list[str], complete: bool, output: Path) -> StepEntry:
        """Writes and checks the output, and gives it its name; returns what the receipt is to say."""
        unchecked = list(unchecked_variables(step, names))
        if unchecked and not self._job.accept_unchecked:
            raise UnsupportedError(
                f"variable {', '.join(map(repr, unchecked))} was written without checksums, so what is staged out "
                "cannot be "
                "checked against what was written; write with checksums, or allow it with --accept-unchecked",
                str(step.address),
            )
        checksums = block_checksums(step, names)
        partial = publication.partial_path(output)
        try:
            with self._write_errors(step, output):
                self._format.write(step, names, partial, self._advance)
                publication.sync_tree(partial)
            with self._write_errors(step, output):
                self._format.compare(step, checksums, partial, self._advance)
            files = tuple(
                FileEntry(output.name + file.path.removeprefix(partial.name), file.size_bytes, file.crc32c)
                for file in describe_files(partial)
            )
            entry = self._entry(step, names, complete, bool(unchecked), output, files)
            if self._receipt.entries.pop(output.name, None) is not None:
                # An output that is about to be replaced is taken off the receipt first, so that the receipt never lies.
                self._receipt.save()
            publication.write_whole(publication.marker_path(output), json.dumps(entry.as_json()))
            publication.publish(partial, output)
        except BaseException:
            publication.remove(partial)
            raise
        return entry

    def _enter(self, entry: StepEntry) -> None:
        self._receipt.entries[entry.output] = entry
        self._receipt.save()
        publication.marker_path(self._directory / entry.output).unlink()

    def _finish(self, step: Step, complete: bool, *, already: bool) -> None:
        if (complete or self._job.mark_partial) and not (already and step.summary.staged):
            _mark_staged(self._stream.address, step, str(self._receipt.path))
        progress = self._reporter.progress
        progress.items_done += 1
        self._finished_bytes += step.size_bytes
        progress.bytes_done = self._finished_bytes
        self._reporter.update()

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

    @contextlib.contextmanager
    def _write_errors(self, step: Step, output: Path) -> Iterator[None]:
        """What ADIOS2, HDF5 and the system raise, as errors that say what to do."""
        try:
            yield
        except ForebayError:
            raise
        except (RuntimeError, OSError) as error:
            free_bytes = os.statvfs(self._directory).f_bavail * os.statvfs(self._directory).f_frsize
            if free_bytes < step.size_bytes:
                raise NoSpaceError(
                    f"the destination is full: step {step.number} needs about {forebay.format_size(step.size_bytes)}, "
                    f"{forebay.format_size(free_bytes)} are free. Steps before it are staged and safe; make room and "
                    "run the "
                    "same command again",
                    str(self._directory),
                ) from error
            reason = " ".join(str(error).split())
            raise StorageError(f"writing step {step.number} failed: {reason}", str(output)) from error


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
    text = ", ".join(map(str, numbers[:10]))
    return text if len(numbers) <= 10 else f"{text} and {len(numbers) - 10} more"
