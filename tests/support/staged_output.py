# SPDX-License-Identifier: Apache-2.0
"""An independent look at what a stage-out of steps has left: by plain ADIOS2, JSON and a checksum of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import adios2
import numpy as np
from numpy.typing import NDArray

from forebay import crc32c

__all__ = ["check_destination", "read_bp5", "receipt_entries", "recorded_entries", "stray_names"]


def read_bp5(path: Path, variable: str) -> NDArray[Any]:
    """A variable of the only step of a BP5 file."""
    with adios2.FileReader(str(path)) as reader:
        assert reader.num_steps() == 1
        array: NDArray[Any] = np.asarray(reader.read(variable))
        return array


def receipt_entries(directory: Path) -> dict[int, dict[str, Any]]:
    """The steps by number of a receipt that a finished stage has left."""
    assert not (directory / ".receipt.log").exists()
    return {entry["step"]: entry for entry in _entries_of_file(directory)}


def recorded_entries(directory: Path) -> dict[int, dict[str, Any]]:
    """The steps by number that the receipt has, with the log of a stage that is at work or was killed."""
    entries = {entry["output"]: entry for entry in _entries_of_file(directory)} if _has_receipt(directory) else {}
    before: dict[str, Any] | None = None
    logged = _entries_of_log(directory)
    for entry in logged:
        before = entries.get(entry["output"])
        entries[entry["output"]] = entry
    if logged and not _matches(directory, logged[-1]):
        # It may not have its name yet.
        output = entries.pop(logged[-1]["output"])["output"]
        if before is not None and _matches(directory, before):
            entries[output] = before
    return {entry["step"]: entry for entry in entries.values()}


def _has_receipt(directory: Path) -> bool:
    return (directory / "receipt.json").exists()


def _entries_of_file(directory: Path) -> list[dict[str, Any]]:
    document = json.loads((directory / "receipt.json").read_text())
    assert document["format"] == "forebay.staged-steps"
    entries: list[dict[str, Any]] = document["steps"]
    return entries


def _entries_of_log(directory: Path) -> list[dict[str, Any]]:
    log = directory / ".receipt.log"
    if not log.exists():
        return []
    documents = []
    for line in log.read_bytes().split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        assert checksum == f"{crc32c(text):08x}".encode()
        documents.append(json.loads(text))
    assert not documents or documents[0]["format"] == "forebay.staged-steps.log"
    return documents[1:]


def _matches(directory: Path, entry: dict[str, Any]) -> bool:
    try:
        _check_output(directory, entry)
    except (AssertionError, FileNotFoundError):
        return False
    return True


def stray_names(directory: Path) -> set[str]:
    """What lies in a destination and is neither an output that the receipt has nor the receipt."""
    expected = {"receipt.json"} | {entry["output"] for entry in recorded_entries(directory).values()}
    return {path.name for path in directory.iterdir()} - expected


def check_destination(directory: Path) -> None:
    """Every file that the receipt names is there, with its size and checksum, and no other file is in an output."""
    for entry in recorded_entries(directory).values():
        _check_output(directory, entry)


def _check_output(directory: Path, entry: dict[str, Any]) -> None:
    output = directory / entry["output"]
    found = {output} if output.is_file() else {path for path in output.rglob("*") if path.is_file()}
    assert found == {directory / file["path"] for file in entry["files"]}
    for file in entry["files"]:
        content = (directory / file["path"]).read_bytes()
        assert len(content) == file["size_bytes"]
        assert f"{crc32c(content):08x}" == file["crc32c"]
