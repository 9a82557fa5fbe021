# SPDX-License-Identifier: Apache-2.0
"""Chombo's HDF5 plot files: what VisIt and yt take for a series by their names (``plt000010.3d.hdf5``)."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from forebay.errors import UnsupportedError
from forebay.viz.levels import Box, Level, Levels

__all__ = ["write_chombo"]

_AXES = "ijk"


def write_chombo(path: Path, levels: Levels, step: int) -> None:
    """Writes a step's fields, with all levels.

    yt takes the origin as 0; it is kept in the root's attribute ``prob_lo``.

    Raises
    ------
    UnsupportedError
        The sides of a cell differ, or a level is not refined by one whole ratio: the layout has no place for it that
        yt reads.
    """
    dimensions = levels.dimensions
    if any(len(set(level.spacing[:dimensions])) != 1 for level in levels.levels):
        raise UnsupportedError(
            f"Chombo files have cells of one side, not {levels.levels[0].spacing}: publish --for amrex, whose files "
            "have three",
            levels.where,
        )
    # What Chombo says of the finest level, which is not refined.
    ratios = [*levels.ratios(), 2]
    components = levels.components
    with h5py.File(path, "w") as file:
        general = file.create_group("Chombo_global")
        general.attrs["SpaceDim"] = np.int32(dimensions)
        general.attrs["testReal"] = levels.dtype.type(0)
        root = file.attrs
        root["filetype"] = np.bytes_("VanillaAMRFileType")
        root["num_levels"], root["max_level"] = np.int32(len(ratios)), np.int32(len(ratios) - 1)
        root["num_components"] = np.int32(len(components))
        for number, name in enumerate(components):
            root[f"component_{number}"] = np.bytes_(name.encode())
        root["iteration"], root["time"] = np.int32(step), levels.time
        root["prob_lo"] = np.array(levels.origin[:dimensions])
        for number, (level, ratio) in enumerate(zip(levels.levels, ratios, strict=True)):
            _write_level(file.create_group(f"level_{number}"), levels, number, level, ratio)


def _write_level(group: h5py.Group, levels: Levels, number: int, level: Level, ratio: int) -> None:
    components = levels.components
    dimensions = levels.dimensions
    group.attrs["dx"], group.attrs["dt"], group.attrs["time"] = level.spacing[0], 0.0, levels.time
    group.attrs["ref_ratio"] = np.int32(ratio)
    group.attrs["prob_domain"] = _corners([Box((0,) * dimensions, level.shape)])[0]
    group["boxes"] = _corners(list(level.boxes))
    group["Processors"] = np.zeros(len(level.boxes), np.int32)
    cells = [int(np.prod(box.count)) for box in level.boxes]
    offsets = np.concatenate(([0], np.cumsum(np.array(cells, np.int64) * len(components))))
    group["data:offsets=0"] = offsets.astype(np.int64)
    # Box after box, in it component after component, x fastest.
    data = group.create_dataset("data:datatype=0", (int(offsets[-1]),), levels.dtype.newbyteorder("<"))
    for box, (offset, count) in enumerate(zip(offsets[:-1].tolist(), cells, strict=True)):
        for place, (field, component) in enumerate(components.values()):
            begin = offset + place * count
            data[begin : begin + count] = levels.values(number, box, field, component).reshape(-1)
    kinds = group.create_group("data_attributes")
    kinds.attrs["comps"] = np.int32(len(components))
    no_ghosts = np.array((0,) * dimensions, [(f"intvect{axis}", "<i4") for axis in _AXES[:dimensions]])
    kinds.attrs["ghost"] = kinds.attrs["outputGhost"] = no_ghosts
    kinds.attrs["objectType"] = np.bytes_("FArrayBox")


def _corners(boxes: list[Box]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """First and last cell of each, along x, y and z."""
    axes = _AXES[: len(boxes[0].start)]
    kind = np.dtype([(f"{end}_{axis}", "<i4") for end in ("lo", "hi") for axis in axes])
    return np.array([(*box.start[::-1], *box.last[::-1]) for box in boxes], kind)
