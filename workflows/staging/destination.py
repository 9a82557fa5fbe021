# SPDX-License-Identifier: Apache-2.0
"""A directory that steps are staged out to: what lies there, what may be replaced, and how an output and its entry in
the receipt appear so that a kill at any point leaves what the next run understands.

For one output: its entry in the receipt's log, then the rename. The log's last entry is the only one whose output may
not have its name; the receipt itself is written at the end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from forebay.errors import (
    NO_ROOM,
    AlreadyExistsError,
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    StorageError,
    readable_errors,
)
from forebay.files.open_folder import open_outside
from forebay.sizes import format_size
from forebay.workflows.staging import publication
from forebay.workflows.staging.receipt import RECEIPT_NAME, Receipt, StepEntry, files_match

__all__ = ["Destination"]


class Destination:
    """Used under `publication.destination_lock`.

    Attributes
    ----------
    directory : Path
        By its descriptor, in this process alone: who exchanges names above it leads nobody elsewhere.
    shown : Path
        As users name it.
    """

    def __init__(self, directory: Path, shown: Path) -> None:
        self.directory = directory
        self.shown = shown
        self.receipt = Receipt.load(directory)
        self._in_doubt = False  # A change of what the receipt says did not end well: the next run looks what is there.

    @classmethod
    @contextlib.contextmanager
    def opened(cls, shown: Path) -> Iterator[Self]:
        """Makes the directory if it is not there, and takes its lock. What is raised meanwhile names it as users do.

        Raises
        ------
        PermissionDeniedError
            Another user's link leads to it; or its receipt is another user's.
        BusyError
            Another stage works there.
        """
        cls._make(shown)
        with cls._readable_errors(shown):
            folder = open_outside(os.path.abspath(shown))
        try:
            with cls.of_folder(folder, shown) as destination:
                yield destination
        finally:
            os.close(folder)

    @classmethod
    @contextlib.contextmanager
    def of_folder(cls, folder: int, shown: Path) -> Iterator[Self]:
        """The same with an open folder; raises as `opened`."""
        directory = Path(f"/proc/self/fd/{folder}")
        try:
            with cls._readable_errors(shown), publication.destination_lock(directory):
                destination = cls(directory, shown)
                with contextlib.closing(destination):
                    yield destination
        except ForebayError as error:
            error.what = error.what.replace(str(directory), str(shown))
            error.where = error.where.replace(str(directory), str(shown))
            raise

    @property
    def shown_receipt(self) -> Path:
        """Where users find the receipt."""
        return self.shown / RECEIPT_NAME

    @staticmethod
    def _make(directory: Path) -> None:
        if directory.exists() and not directory.is_dir():
            raise InvalidArgumentError("the destination is a file; name a directory", str(directory))
        try:
            _check_links(directory)
            if (directory / RECEIPT_NAME).exists():
                return
            publication.make_directory(directory)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise NoSpaceError(
                    "the disk of the destination is full; make room and run the same command again", str(directory)
                ) from error
            raise StorageError(
                f"the destination cannot be made ({error.strerror}); name a directory that may be written",
                str(directory),
            ) from error

    def recover(self) -> None:
        """Brings it from wherever an earlier run was killed to a state that the receipt describes."""
        publication.remove_leftovers(self.directory)
        receipt = self.receipt
        if receipt.unsure is not None:
            entry, before = receipt.unsure
            if not files_match(self.directory, entry):
                if before is not None and not files_match(self.directory, before):
                    before = None
                # What else lies there stays until somebody replaces it: others may have given it that name.
                receipt.settle(entry, before)
        if receipt.has_log:
            self._save()

    def ensure_receipt(self) -> None:
        """Writes the receipt; a stage that had nothing to move succeeds with one as well."""
        if self.receipt.has_log or not self.receipt.path.exists():
            self._save()

    def close(self) -> None:
        """After a failed stage the receipt gets what is staged; if it was the disk that failed, the log keeps it."""
        if self.receipt.has_log and not self._in_doubt:
            with contextlib.suppress(OSError):
                self.receipt.save()
        self.receipt.close()

    def entry(self, output: Path) -> StepEntry | None:
        """What the receipt says of an output."""
        return self.receipt.entries.get(output.name)

    def check_replaceable(self, output: Path, uuid: str) -> None:
        """AlreadyExistsError if there is an output of that name that does not come from the stream with this uuid."""
        entry = self.entry(output)
        if not os.path.lexists(output) or (entry is not None and entry.uuid == uuid):
            return
        whose = f"was staged out from another stream, {entry.stream} ({entry.uuid})" if entry else "is in no receipt"
        raise AlreadyExistsError(
            f"the destination has a {output.name} that {whose}; choose another destination, or allow it with --replace",
            str(output),
        )

    def publish(self, partial: Path, entry: StepEntry) -> None:
        """Gives a whole, synced and checked output its name, and enters it in the receipt."""
        self._in_doubt = True
        self.receipt.announce(entry)
        publication.publish(partial, self.directory / entry.output)
        self.receipt.entries[entry.output] = entry
        self._in_doubt = False

    def _save(self) -> None:
        self._in_doubt = True
        self.receipt.save()
        self._in_doubt = False

    def is_full(self, size_bytes: int, error: Exception) -> bool:
        """True if it was for lack of space that so much could not be written."""
        return self._free_bytes() < size_bytes or (isinstance(error, OSError) and error.errno in NO_ROOM)

    def _free_bytes(self) -> int:
        usage = os.statvfs(self.directory)
        return usage.f_bavail * usage.f_frsize

    @staticmethod
    def _readable_errors(shown: Path) -> contextlib.AbstractContextManager[None]:
        """What the system raises while names and small files are changed, as errors that say what to do."""
        return readable_errors(
            shown,
            full="the destination is full. What is staged already is safe; make room and run the command again",
            denied="the destination cannot be written; choose another, or have its permissions changed",
            failed="repair the destination, then run the same command again",
        )

    @contextlib.contextmanager
    def write_errors(self, number: int, size_bytes: int, output: Path) -> Iterator[None]:
        """What ADIOS2, HDF5 and the system raise while a step is written, as errors that say what to do."""
        try:
            yield
        except ForebayError:
            raise
        except (RuntimeError, OSError) as error:
            if self.is_full(size_bytes, error):
                raise NoSpaceError(
                    f"the destination is full: step {number} needs about {format_size(size_bytes)}, "
                    f"{format_size(self._free_bytes())} are free. Steps before it are staged and safe; make room and "
                    "run the same command again",
                    str(self.directory),
                ) from error
            reason = " ".join(str(error).split())
            raise StorageError(
                f"writing step {number} failed: {reason}. Steps before it are staged and safe; repair the destination "
                "and run the same command again",
                str(output),
            ) from error


def _check_links(directory: Path) -> None:
    """The way to it, as far as it is there, goes by no link of another user's."""
    way = Path(os.path.abspath(directory))
    there = next(path for path in (way, *way.parents) if path.exists())
    os.close(open_outside(str(there)))
