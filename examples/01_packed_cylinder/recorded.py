# SPDX-License-Identifier: Apache-2.0
"""Reads what lies in BP5 files by plain ADIOS2: the undisturbed run, the checkpoints. Nothing here knows Forebay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adios2
import numpy as np
from numpy.typing import NDArray

__all__ = ["RecordedStep", "recorded_steps"]


@dataclass(frozen=True)
class RecordedStep:
    """One step, whole in memory."""

    number: int
    attributes: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]


def recorded_steps(path: Path) -> Iterator[RecordedStep]:
    """The steps of a BP5 file in order."""
    with adios2.Stream(str(path), "r") as stream:
        for step in stream.steps():
            arrays = {name: np.asarray(step.read(name)) for name in stream.available_variables()}
            attributes = {name: stream.read_attribute(name) for name in stream.available_attributes()}
            yield RecordedStep(int(arrays["step"].flat[0]), attributes, arrays)
