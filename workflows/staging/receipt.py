# SPDX-License-Identifier: Apache-2.0
"""Receipts: what a stage-out of steps left in a directory, with sizes and checksums. Format: docs/formats/receipt.md.

A receipt is only ever replaced as a whole: written under another name, synced, renamed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from forebay.errors import CorruptError
from forebay.workflows.staging.checksum import file_checksum, format_checksum
from forebay.workflows.staging.publication import write_whole

__all__ = ["RECEIPT_NAME", "FileEntry", "Receipt", "StepEntry", "VariableEntry", "describe_files", "files_match"]

RECEIPT_NAME = "receipt.json"
_FORMAT = "forebay.receipt.steps"
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
    format: str  #: "bp5" or "hdf5"
    output: str  #: name beside the receipt
    complete: bool  #: it has all variables of the step
    verified: str  #: "checksums" of the writer, or "read" where the writer took none
    variables: tuple[VariableEntry, ...]
    files: tuple[FileEntry, ...]
    forebay: str  #: version

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """From the JSON form; KeyError or TypeError if it is not one."""
        fields = dict(document)
        fields["variables"] = tuple(
            VariableEntry(**(variable | {"shape": tuple(variable["shape"])})) for variable in fields["variables"]
        )
        fields["files"] = tuple(FileEntry(**entry) for entry in fields["files"])
        return cls(**fields)

    def as_json(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


@dataclass(slots=True)
class Receipt:
    """The receipt of a directory, by name of the output."""

    directory: Path
    entries: dict[str, StepEntry] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self.directory / RECEIPT_NAME

    @classmethod
    def load(cls, directory: Path) -> Self:
        """The directory's receipt, empty where there is none.

        Raises
        ------
        CorruptError
            There is a file of that name that is no receipt of this kind.
        """
        path = directory / RECEIPT_NAME
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls(directory)
        try:
            document = json.loads(text)
            if document["format"] != _FORMAT or document["version"] != _VERSION:
                raise ValueError(f"its format is {document['format']!r}, version {document['version']!r}")
            entries = [StepEntry.from_json(entry) for entry in document["steps"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptError(
                f"this is no receipt that a stage-out of steps wrote ({error}); move it away, or choose another "
                "destination",
                str(path),
            ) from None
        return cls(directory, {entry.output: entry for entry in entries})

    def save(self) -> None:
        """Replaces the receipt on disk as a whole, synced."""
        ordered = sorted(self.entries.values(), key=lambda entry: (entry.stream, entry.step, entry.output))
        document = {"format": _FORMAT, "version": _VERSION, "steps": [entry.as_json() for entry in ordered]}
        write_whole(self.path, json.dumps(document, indent=1) + "\n")


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
