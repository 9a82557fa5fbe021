# SPDX-License-Identifier: Apache-2.0
"""Making outputs: one is written while those before it are synced, read back from the device and compared.

Writing is bound by the processor, syncing and reading back by the device, so that several on their way take little more
time than the slower of the two. Each lies under a hidden name; publishing, in order, is the caller's.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from forebay.errors import CancelledError, CorruptError
from forebay.step import Step
from forebay.workflows.staging import publication
from forebay.workflows.staging.destination import Destination
from forebay.workflows.staging.outputs import Advance, BlockChecksums, OutputFormat, block_checksums, check_stream
from forebay.workflows.staging.receipt import FileEntry, describe_files

__all__ = ["CHECKED_AT_ONCE", "DamagedStepError", "OutputMaker", "PendingOutput"]

#: One that is synced beside one that is compared; each holds a step and a block of memory.
CHECKED_AT_ONCE = 2


class DamagedStepError(CorruptError):
    """The stream's own bytes do not match the writer's checksums; the destination is not to blame."""


@dataclass(frozen=True, slots=True)
class PendingOutput:
    """An output that is written and being checked."""

    partial: Path  #: its hidden name
    _files: Future[tuple[FileEntry, ...]]

    @property
    def checked(self) -> bool:
        """True if `files` will not wait."""
        return self._files.done()

    def files(self) -> tuple[FileEntry, ...]:
        """Waits until it is synced and checked; its files under the output's own name.

        Raises
        ------
        DamagedStepError
            It matches the stream's bytes, but those are not what the writer wrote.
        CorruptError
            What reads back is not what was written.
        StepGoneError, NoSpaceError, StorageError, ...
        """
        return self._files.result()

    def discard(self) -> None:
        """Removes it; waits until nobody works on it."""
        self._files.cancel()
        with contextlib.suppress(Exception):
            self._files.result()
        publication.remove(self.partial)


class OutputMaker:
    """Context manager; at its end nothing works in the background any more."""

    def __init__(self, output_format: OutputFormat, destination: Destination) -> None:
        self._format = output_format
        self._destination = destination
        self._stopped = threading.Event()
        self._checkers = ThreadPoolExecutor(CHECKED_AT_ONCE, thread_name_prefix="check-output")

    def start(self, step: Step, names: Sequence[str], output: Path, advance: Advance) -> PendingOutput:
        """Writes these variables of the step, and lets them be checked in the background.

        `step` must stay valid until the result is there. `advance` is called from several threads. DamagedStepError if
        the stream cannot be read whole.
        """
        partial = publication.partial_path(output)
        try:
            checksums = block_checksums(step, names)
            with self._destination.write_errors(step.number, step.size_bytes, output):
                self._format.write(step, names, partial, advance)
            return PendingOutput(partial, self._checkers.submit(self._check, step, checksums, partial, output, advance))
        except BaseException as error:
            _remove_failed(partial)
            if isinstance(error, CorruptError):
                # The destination has not been read yet.
                raise DamagedStepError(error.what, error.where) from error
            raise

    def _check(
        self, step: Step, checksums: BlockChecksums, partial: Path, output: Path, advance: Advance
    ) -> tuple[FileEntry, ...]:
        def advance_unless_stopped(count_bytes: int) -> None:
            self._check_not_stopped()
            advance(count_bytes)

        with self._destination.write_errors(step.number, step.size_bytes, output):
            self._check_not_stopped()
            publication.sync_tree(partial)
            try:
                self._format.compare(step, checksums, partial, advance_unless_stopped)
            except CorruptError:
                try:
                    check_stream(step, list(checksums))
                except CorruptError as error:
                    raise DamagedStepError(error.what, error.where) from error
                raise
            return tuple(
                FileEntry(output.name + file.path.removeprefix(partial.name), file.size_bytes, file.crc32c)
                for file in describe_files(partial)
            )

    def stop(self) -> None:
        """What is being checked ends soon, with CancelledError."""
        self._stopped.set()

    def _check_not_stopped(self) -> None:
        if self._stopped.is_set():
            raise CancelledError("the stage was told to stop")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._checkers.shutdown(cancel_futures=True)


def _remove_failed(partial: Path) -> None:
    """Removes what could not be written, and gives its space back for those before it."""
    for path in [partial, *partial.rglob("*")]:
        if path.is_file() and not path.is_symlink():
            # ADIOS2 keeps the files of a failed writer open.
            os.truncate(path, 0)
    publication.remove(partial)
