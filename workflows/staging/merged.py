# SPDX-License-Identifier: Apache-2.0
"""Stage-out of the steps of a stream into one output.

Each step is staged out on its own first, verified and with a receipt, into a hidden folder beside the output: what a
stage that is killed has done stays done, and a stream need not keep what lies there. Then the single outputs become
one, under a hidden name, which is synced, read back, compared with them and renamed; the folder goes at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import forebay
from forebay.checksum import crc32c
from forebay.errors import (
    AlreadyExistsError,
    CorruptError,
    ForebayError,
    NoSpaceError,
    StorageError,
    StreamFailedError,
    StreamInterruptedError,
)
from forebay.instance import InstanceLike
from forebay.manager.jobs import StepsJob
from forebay.records import Address, StreamStatus
from forebay.step_selection import StepSelection
from forebay.workflows.staging import publication
from forebay.workflows.staging.destination import Destination
from forebay.workflows.staging.formats import format_of_name, merger
from forebay.workflows.staging.merging import SingleStep
from forebay.workflows.staging.receipt import FileEntry, Receipt, StepEntry, describe_files, files_match
from forebay.workflows.staging.reporting import Json, Reporter, notes_of_waits
from forebay.workflows.staging.step_source import choose_kept_steps
from forebay.workflows.staging.steps import check_gaps, stage_steps

__all__ = ["stage_into_one"]


def stage_into_one(job: StepsJob, reporter: Reporter, instance: InstanceLike | None = None) -> Json:
    """Does the job and returns its result. Raises as `stage_steps` does, and:

    Raises
    ------
    UnsupportedError
        One output cannot hold the steps: for HDF5, they differ in variables, shapes or types.
    AlreadyExistsError
        The output has steps that would be lost, as the stream does not keep them any more; or is another stream's.
    """
    job = replace(job, format=format_of_name(job.into))
    address = Address.parse(job.stream)
    with (
        notes_of_waits(reporter),
        forebay.open(
            address.path, instance=instance, timeout=None if job.follow else 0.0, run=job.run or None
        ) as stream,
    ):
        uuid = stream.info.uuid
        is_over = stream.info.status is StreamStatus.ENDED
        chosen: dict[int, int] | None = None
        lost: dict[int, int] = {}
        if not job.follow or is_over:
            kept, lost = choose_kept_steps(stream, StepSelection.parse(job.every, job.steps), run=job.run)
            epochs = {summary.number: summary.epoch for summary in stream.steps()}
            chosen = {number: epochs[number] for number in kept if number in epochs}
    with Destination.opened(Path(job.destination)) as destination:
        destination.recover()
        return _OneOutput(job, destination, reporter, uuid).make(chosen, lost, instance)


class _OneOutput:
    """One run of a job, under the destination's lock."""

    def __init__(self, job: StepsJob, destination: Destination, reporter: Reporter, uuid: str) -> None:
        self._job = job
        self._destination = destination
        self._reporter = reporter
        self._uuid = uuid
        self._output = destination.directory / job.into
        # Steps with other variables are of no use to this job.
        kind = crc32c(json.dumps([job.format, list(job.variables)]).encode())
        self._hidden = destination.directory / f".{job.into}.{kind:08x}.steps"
        self._folder = self._hidden / self._hidden.name  # by its descriptor, once there is one
        self._shown_folder = destination.shown / self._folder.relative_to(destination.directory)

    def make(self, chosen: dict[int, int] | None, lost: dict[int, int], instance: InstanceLike | None) -> Json:
        """`chosen`: number and epoch of the steps that are wanted, where that is known already; `lost`: of those that
        the stream lost.
        """
        if not self._job.replace:
            self._destination.check_replaceable(self._output, self._uuid)
        result: Json = {"staged": [], "kept": [], "lost": []}
        entry = self._destination.entry(self._output)
        there = set(lost.items()).intersection(entry.steps) if entry is not None else set()
        if chosen is not None and self._has(chosen | dict(there)):
            result["kept"] = sorted(chosen.keys() | dict(there))
            result["lost"] = sorted(lost.keys() - dict(there))
            check_gaps(self._job, result["lost"], f"stream {self._job.stream}")
        else:
            folder = publication.open_own_folder(self._hidden)
            self._folder = Path(f"/proc/self/fd/{folder}")
            try:
                result = self._stage_singly(folder, instance)
                entries = self._entries()
                if entries:
                    self._check_nothing_is_lost(entries)
                    self._merge(entries)
            except ForebayError:
                with contextlib.suppress(ForebayError, OSError):
                    if not Receipt.load(self._folder).entries:  # no step was done: there is nothing to go on with
                        publication.discard(self._hidden)
                raise
            finally:
                os.close(folder)
        for left in self._destination.directory.glob(f".{self._job.into}.*.steps"):
            publication.discard(left)
        self._destination.ensure_receipt()
        entry = self._destination.entry(self._output)
        if entry is not None:
            self._reporter.files(entry.file_rows())
        return result | {"receipt": str(self._destination.shown_receipt)}

    def _has(self, chosen: dict[int, int]) -> bool:
        """Is everything there that is wanted?"""
        entry = self._destination.entry(self._output)
        if entry is None or entry.uuid != self._uuid or entry.format != self._job.format or not chosen:
            return False
        names = {variable.name for variable in entry.variables}
        as_wanted = names.issuperset(self._job.variables) if self._job.variables else entry.complete
        return (
            as_wanted and set(chosen.items()).issubset(entry.steps) and files_match(self._destination.directory, entry)
        )

    def _stage_singly(self, folder: int, instance: InstanceLike | None) -> Json:
        singly = replace(self._job, destination=str(self._shown_folder), into="")
        receipt = self._destination.shown_receipt
        try:
            return stage_steps(singly, self._reporter, instance, receipt=receipt, folder=folder)
        except (StreamInterruptedError, StreamFailedError):
            self._reporter.note(
                f"what came until then is safe in {self._shown_folder}; the same command without --follow puts it into "
                f"{self._job.into}"
            )
            raise

    def _entries(self) -> list[StepEntry]:
        """The single steps to be put together, in order."""
        selection = StepSelection.parse(self._job.every, self._job.steps)
        entries: list[StepEntry] = []
        for entry in sorted(Receipt.load(self._folder).entries.values(), key=lambda entry: entry.step):
            if entry.uuid != self._uuid or entry.step not in selection:
                continue
            # Steps behind a newer epoch's were withdrawn when that began.
            if entries and entry.epoch < entries[-1].epoch:
                continue
            if not files_match(self._folder, entry):
                raise CorruptError(
                    f"{entry.output} was checked, and does not match its receipt any more; run the same command again",
                    str(self._shown_folder),
                )
            entries.append(entry)
        return entries

    def _check_nothing_is_lost(self, entries: list[StepEntry]) -> None:
        there = self._destination.entry(self._output)
        if there is None or there.uuid != self._uuid or self._job.replace:
            return
        gone = sorted({number for number, _ in there.steps} - {entry.step for entry in entries})
        if gone:
            raise AlreadyExistsError(
                f"{self._job.into} has {len(gone)} steps, from {gone[0]} on, that are not among those chosen now and "
                "would be lost; choose another name, or allow it with --replace",
                str(self._output),
            )

    def _merge(self, entries: list[StepEntry]) -> None:
        steps = [SingleStep(entry.step, self._folder / entry.output) for entry in entries]
        partial = publication.partial_path(self._output)
        self._reporter.progress.item = self._job.into
        self._reporter.update(at_once=True)
        making = merger(self._job.format)
        try:
            with self._errors_while_written(entries):
                making.write(steps, partial, self._advance)
                publication.sync_tree(partial)
                making.compare(steps, partial, self._advance)
                files = tuple(
                    FileEntry(self._job.into + file.path.removeprefix(partial.name), file.size_bytes, file.crc32c)
                    for file in describe_files(partial)
                )
            self._destination.publish(partial, self._entry(entries, files))
        except BaseException:
            publication.remove(partial)
            raise
        for note in making.notes:
            self._reporter.note(note)

    def _advance(self, _: int) -> None:
        self._reporter.update()

    def _entry(self, entries: list[StepEntry], files: tuple[FileEntry, ...]) -> StepEntry:
        return replace(
            entries[-1],
            staged_ns=time.time_ns(),
            output=self._job.into,
            complete=all(entry.complete for entry in entries),
            verified="checksums" if all(entry.verified == "checksums" for entry in entries) else "read",
            files=files,
            forebay=version("forebay"),
            steps=tuple((entry.step, entry.epoch) for entry in entries),
        )

    @contextlib.contextmanager
    def _errors_while_written(self, entries: list[StepEntry]) -> Iterator[None]:
        """What ADIOS2, HDF5 and the system raise, as errors that say what to do."""
        safe = f"the {len(entries)} steps are safe in {self._shown_folder}"
        try:
            yield
        except ForebayError:
            raise
        except (RuntimeError, OSError) as error:
            if self._destination.is_full(sum(file.size_bytes for entry in entries for file in entry.files), error):
                raise NoSpaceError(
                    f"the destination is full: it has no room for one output with all steps; {safe}. Make room and run "
                    "the same command again",
                    str(self._output),
                ) from error
            reason = " ".join(str(error).split())
            raise StorageError(
                f"writing the output failed: {reason}; {safe}. Repair the destination and run the same command again",
                str(self._output),
            ) from error
