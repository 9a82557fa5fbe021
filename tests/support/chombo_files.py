# SPDX-License-Identifier: Apache-2.0
"""Writes small plot files as Chombo does, of the same content and boxes as :mod:`tests.support.plotfiles`."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from tests.support.plotfiles import BOXES, DOMAIN, FIELDS, content

__all__ = ["write_chombo_file"]


def write_chombo_file(
    path: Path,
    step: int,
    *,
    kind: str = "<f8",
    ghosts: tuple[int, int, int] = (0, 0, 0),
    low: int = 0,
    offsets: bool = True,
) -> None:
    """Writes the plot file of a step.

    Parameters
    ----------
    low : int
        Number of the first cell of level 0 along each axis.
    offsets : bool
        Say where each box's data begins, as newer versions do.
    """
    box_type = np.dtype([(f"{end}_{axis}", "<i4") for end in ("lo", "hi") for axis in "ijk"])
    with h5py.File(path, "w") as file:
        file.create_group("Chombo_global").attrs.update({"SpaceDim": np.int32(3), "testReal": 0.0})
        file.attrs.update(
            {
                "filetype": np.bytes_(b"VanillaAMRFileType"),
                "num_levels": np.int32(len(BOXES)),
                "max_level": np.int32(5),
                "num_components": np.int32(len(FIELDS)),
                "iteration": np.int32(step),
                "time": 0.5 * step,
            }
        )
        for number, name in enumerate(FIELDS):
            file.attrs[f"component_{number}"] = np.bytes_(name.encode())
        for level, boxes in enumerate(BOXES):
            group = file.create_group(f"level_{level}")
            zero = low * 2**level
            last = [zero + count * 2**level - 1 for count in DOMAIN]
            group.attrs["prob_domain"] = np.array((zero, zero, zero, *last), box_type)
            group.attrs.update({"dx": 0.125 / 2**level, "dt": 0.1, "time": 0.5 * step, "ref_ratio": np.int32(2)})
            corners = [[place + zero for place in (*first, *end)] for first, end in boxes]
            group["boxes"] = np.array([tuple(numbers) for numbers in corners], box_type)
            group["Processors"] = np.zeros(len(boxes), np.int32)
            parts = []
            starts = [0]
            for first, end in boxes:
                inner = tuple(slice(at, to + 1) for at, to in zip(first, end, strict=True))[::-1]
                for field in range(len(FIELDS)):
                    around = [(count, count) for count in ghosts[::-1]]
                    values = np.pad(content(step, level, field)[inner], around, constant_values=-7.0)
                    parts.append(values.reshape(-1).astype(kind))
                starts.append(sum(part.size for part in parts))
            group["data:datatype=0"] = np.concatenate(parts)
            if offsets:
                group["data:offsets=0"] = np.array(starts, np.int64)
            details = group.create_group("data_attributes")
            vector = np.dtype([(f"intvect{axis}", "<i4") for axis in "ijk"])
            details.attrs["comps"] = np.int32(len(FIELDS))
            details.attrs["objectType"] = np.bytes_(b"FArrayBox")
            details.attrs["ghost"] = details.attrs["outputGhost"] = np.array(ghosts, vector)
