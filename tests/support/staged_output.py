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

__all__ = ["check_destination", "read_bp5", "receipt_entries", "stray_names"]


def read_bp5(path: Path, variable: str) -> NDArray[Any]:
    """A variable of the only step of a BP5 file."""
    with adios2.FileReader(str(path)) as reader:
        assert reader.num_steps() == 1
        array: NDArray[Any] = np.asarray(reader.read(variable))
        return array


def receipt_entries(directory: Path) -> dict[int, dict[str, Any]]:
    """The receipt's steps by number."""
    document = json.loads((directory / "receipt.json").read_text())
    assert document["format"] == "forebay.receipt.steps"
    return {entry["step"]: entry for entry in document["steps"]}


def stray_names(directory: Path) -> set[str]:
    """What lies in a destination and is neither an output that the receipt has nor the receipt."""
    expected = {"receipt.json"} | {entry["output"] for entry in receipt_entries(directory).values()}
    return {path.name for path in directory.iterdir()} - expected


def check_destination(directory: Path) -> None:
    """Every file that the receipt names is there, with its size and checksum, and no other file is in an output."""
    for entry in receipt_entries(directory).values():
        output = directory / entry["output"]
        found = {output} if output.is_file() else {path for path in output.rglob("*") if path.is_file()}
        assert found == {directory / file["path"] for file in entry["files"]}
        for file in entry["files"]:
            content = (directory / file["path"]).read_bytes()
            assert len(content) == file["size_bytes"]
            assert f"{crc32c(content):08x}" == file["crc32c"]
