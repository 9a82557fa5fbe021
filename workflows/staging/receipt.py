# SPDX-License-Identifier: Apache-2.0
"""Receipts: what a stage-out of steps left in a directory, with sizes and checksums. Format: docs/formats/receipt.md.

The file is only ever replaced as a whole: written under another name, synced, renamed. While a stage is at work, a log
beside it has what came since; at the end the file gets it all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from forebay.errors import CorruptError
from forebay.workflows.staging.checksum import file_checksum, format_checksum
from forebay.workflows.staging.publication import sync_directory, write_whole
from forebay.workflows.staging.receipt_log import LOG_NAME, ReceiptLog, own_content, read_log

__all__ = ["RECEIPT_NAME", "FileEntry", "Receipt", "StepEntry", "VariableEntry", "describe_files", "files_match"]

RECEIPT_NAME = "receipt.json"
_FORMAT = "forebay.staged-steps"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of an output."""

    path: str  #: relative to the receipt
    size_bytes: int
    crc32c: str  #: of its content, eight hexadecimal digits


@dataclass(frozen=True, slots=True)
class VariableEntry:
    """One variable of a staged step."""

    name: str
    type: str
    kind: str
    shape: tuple[int, ...]
    blocks: int


@dataclass(frozen=True, slots=True)
class StepEntry:
    """One staged step: where it came from and what lies at the destination."""

    stream: str  #: RESERVATION/STREAM
    uuid: str  #: the stream's
    epoch: int
    step: int
    committed_ns: int
    staged_ns: int
    format: str  #: "bp5", "hdf5" or "nxtomo"
    output: str  #: name beside the receipt
    complete: bool  #: it has all variables of the step
    verified: str  #: "checksums" of the writer, or "read" where the writer took none
    variables: tuple[VariableEntry, ...]
    files: tuple[FileEntry, ...]
    forebay: str  #: version
    steps: tuple[tuple[int, int], ...] = ()  #: of an output with many steps: number and epoch of each

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """From the JSON form; KeyError, TypeError or ValueError if it is not one, or names what does not lie beside the
        receipt.
        """
        fields = dict(document)
        fields["variables"] = tuple(
            VariableEntry(**(variable | {"shape": tuple(variable["shape"])})) for variable in fields["variables"]
        )
        fields["files"] = tuple(FileEntry(**entry) for entry in fields["files"])
        fields["steps"] = tuple((number, epoch) for number, epoch in fields.get("steps", ()))
        entry = cls(**fields)
        for path in (entry.output, *(file.path for file in entry.files)):
            if {"", ".", ".."}.intersection(path.split("/")) or "/" in entry.output:
                raise ValueError(f"{path!r} is no output beside the receipt")
        return entry

    def as_json(self) -> dict[str, Any]:
        """The JSON form."""
        document = asdict(self)
        if not self.steps:
            del document["steps"]
        return document

    def file_rows(self) -> Iterator[dict[str, Any]]:
        """Its files as a stage reports them; each says which step it holds, or the last of many."""
        for entry in self.files:
            yield asdict(entry) | {"step": self.step, "epoch": self.epoch}


@dataclass(slots=True)
class Receipt:
    """The receipt of a directory, by name of the output; used under the destination's lock."""

    directory: Path
    entries: dict[str, StepEntry] = field(default_factory=dict)
    #: The last entry of the log that a killed run left, and what was there before it: its output may lack its name.
    unsure: tuple[StepEntry, StepEntry | None] | None = None
    _on_disk: set[str] = field(default_factory=set)  #: outputs that the file names
    _left_log: bool = False  #: a killed run left a log
    _log: ReceiptLog | None = None

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.directory / RECEIPT_NAME

    @classmethod
    def load(cls, directory: Path) -> Self:
        """The directory's receipt with what a log adds; empty where there is neither.

        Raises
        ------
        CorruptError
            There is a file of one of their names that is no receipt or log of this kind.
        PermissionDeniedError
            One of them is another user's.
        """
        receipt = cls(directory)
        for entry in _entries_of_file(receipt.path):
            receipt.entries[entry.output] = entry
        receipt._on_disk = set(receipt.entries)
        logged = read_log(directory)
        receipt._left_log = logged is not None
        try:
            for document in logged or ():
                entry = StepEntry.from_json(document)
                before = receipt.entries.get(entry.output)
                # A log may begin with what the file had.
                receipt.unsure = None if entry == before else (entry, before)
                receipt.entries[entry.output] = entry
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptError(
                f"the log of a stage-out has an entry that is none ({error}); move it away, then run the same command "
                "again",
                str(directory / LOG_NAME),
            ) from None
        return receipt

    def settle(self, entry: StepEntry, before: StepEntry | None) -> None:
        """The output of ``entry``, which was unsure, is what ``before`` says; None: there is none."""
        if before is None:
            del self.entries[entry.output]
        else:
            self.entries[entry.output] = before
        self.unsure = None

    def announce(self, entry: StepEntry) -> None:
        """The output of this entry is whole and about to get its name. Durable when this returns.

        A later entry, or `save`, says that it got it.
        """
        if self._log is None:
            self._log = ReceiptLog.create(self.directory)
        if entry.output in self._on_disk:
            # The file must not name what is replaced: the log takes over all of it.
            self._log.append([known.as_json() for known in self.entries.values()])
            self.path.unlink()
            sync_directory(self.directory)
            self._on_disk.clear()
        self._log.append([entry.as_json()])

    @property
    def has_log(self) -> bool:
        """Not all that it says is in the file."""
        return self._log is not None or self._left_log

    def save(self) -> None:
        """Replaces the file as a whole, synced; then there is no log any more."""
        ordered = sorted(self.entries.values(), key=lambda entry: (entry.stream, entry.step, entry.output))
        document = {"format": _FORMAT, "version": _VERSION, "steps": [entry.as_json() for entry in ordered]}
        write_whole(self.path, json.dumps(document, indent=1) + "\n", apart=True)
        self._on_disk = set(self.entries)
        if self.has_log:
            self.close()
            (self.directory / LOG_NAME).unlink()
            self._left_log = False

    def close(self) -> None:
        """Lets the log go as it is; the next run reads it."""
        if self._log is not None:
            log, self._log = self._log, None
            log.close()
            self._left_log = True


def _entries_of_file(path: Path) -> list[StepEntry]:
    content = own_content(path)
    if content is None:
        return []
    try:
        document = json.loads(content.decode("utf-8"))
        if document["format"] != _FORMAT or document["version"] != _VERSION:
            raise ValueError(f"its format is {document['format']!r}, version {document['version']!r}")
        return [StepEntry.from_json(entry) for entry in document["steps"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptError(
            f"this is not the receipt of a stage-out of steps ({error}); move it away, or choose another destination",
            str(path),
        ) from None


def describe_files(output: Path) -> tuple[FileEntry, ...]:
    """Size and checksum of each file of an output, with paths relative to the output's parent."""
    paths = sorted(path for path in output.rglob("*") if path.is_file()) if output.is_dir() else [output]
    entries = []
    for path in paths:
        size_bytes, checksum = file_checksum(path)
        entries.append(FileEntry(path.relative_to(output.parent).as_posix(), size_bytes, format_checksum(checksum)))
    return tuple(entries)


def files_match(directory: Path, entry: StepEntry) -> bool:
    """True if the output is there, with exactly the files, sizes and checksums of its entry."""
    output = directory / entry.output
    if not output.exists():
        return False
    for recorded in entry.files:
        try:
            if (directory / recorded.path).stat().st_size != recorded.size_bytes:
                return False
        except FileNotFoundError:
            return False
    return describe_files(output) == entry.files
