# SPDX-License-Identifier: Apache-2.0
"""A directory that steps are staged out to: what lies there, what may be replaced, and how an output and its entry in
the receipt appear so that a kill at any point leaves what the next run understands.

For one output: the marker, which says what it is going to be; the old entry off the receipt; the rename; the new entry;
the marker off.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

from forebay.errors import (
    AlreadyExistsError,
    CorruptError,
    ForebayError,
    InvalidArgumentError,
    NoSpaceError,
    PermissionDeniedError,
    StorageError,
)
from forebay.sizes import format_size
from forebay.workflows.staging import publication
from forebay.workflows.staging.receipt import RECEIPT_NAME, Receipt, StepEntry, files_match

__all__ = ["Destination"]

#: A full file system, and a quota that is used up.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class Destination:
    """Used under `publication.destination_lock`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.receipt = Receipt.load(directory)

    @staticmethod
    def prepare(directory: Path) -> None:
        """Makes the directory if it is not there."""
        if (directory / RECEIPT_NAME).exists():
            return
        if directory.exists() and not directory.is_dir():
            raise InvalidArgumentError("the destination is a file; name a directory", str(directory))
        try:
            publication.make_directory(directory)
        except OSError as error:
            if error.errno in _NO_ROOM:
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
        for marker in sorted(self.directory.glob(".*.publishing")):
            try:
                entry = StepEntry.from_json(json.loads(marker.read_text(encoding="utf-8")))
            except (ValueError, KeyError, TypeError):
                raise CorruptError(
                    "this is no marker of a stage-out; move it away, then run the same command again", str(marker)
                ) from None
            if files_match(self.directory, entry):
                self.receipt.entries[entry.output] = entry
                self.receipt.save()
            elif entry.output not in self.receipt.entries:
                # It was to be replaced, and its entry is off the receipt already.
                publication.remove(self.directory / entry.output)
            marker.unlink()

    def ensure_receipt(self) -> None:
        """A stage that had nothing to move succeeds with a receipt as well: an empty one, where there is none yet."""
        if not self.receipt.path.exists():
            self.receipt.save()

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
        output = self.directory / entry.output
        marker = publication.marker_path(output)
        publication.write_whole(marker, json.dumps(entry.as_json()))
        if self.receipt.entries.pop(entry.output, None) is not None:
            self.receipt.save()
        publication.publish(partial, output)
        self.receipt.entries[entry.output] = entry
        self.receipt.save()
        marker.unlink()

    @contextlib.contextmanager
    def readable_errors(self) -> Iterator[None]:
        """What the system raises while names and small files are changed, as errors that say what to do."""
        try:
            yield
        except ForebayError:
            raise
        except PermissionError as error:
            raise PermissionDeniedError(
                "the destination cannot be written; choose another, or have its permissions changed",
                str(error.filename or self.directory),
            ) from error
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise NoSpaceError(
                    "the destination is full. What is staged already is safe; make room and run the same command again",
                    str(self.directory),
                ) from error
            raise StorageError(
                f"the destination failed: {error.strerror or error}; mend it, then run the same command again",
                str(error.filename or self.directory),
            ) from error

    @contextlib.contextmanager
    def write_errors(self, number: int, size_bytes: int, output: Path) -> Iterator[None]:
        """What ADIOS2, HDF5 and the system raise while a step is written, as errors that say what to do."""
        try:
            yield
        except ForebayError:
            raise
        except (RuntimeError, OSError) as error:
            usage = os.statvfs(self.directory)
            free_bytes = usage.f_bavail * usage.f_frsize
            if free_bytes < size_bytes or (isinstance(error, OSError) and error.errno in _NO_ROOM):
                raise NoSpaceError(
                    f"the destination is full: step {number} needs about {format_size(size_bytes)}, "
                    f"{format_size(free_bytes)} are free. Steps before it are staged and safe; make room and run the "
                    "same "
                    "command again",
                    str(self.directory),
                ) from error
            reason = " ".join(str(error).split())
            raise StorageError(
                f"writing step {number} failed: {reason}. Steps before it are staged and safe; mend the destination "
                "and run the same command again",
                str(output),
            ) from error
