# SPDX-License-Identifier: Apache-2.0
"""Chombo's HDF5 plot files, one level: what VisIt and yt take for a series by their names (``plt000010.3d.hdf5``)."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from forebay.errors import UnsupportedError
from forebay.viz.grid import Grid

__all__ = ["write_chombo"]

_BOX = np.dtype([(name, "<i4") for name in ("lo_i", "lo_j", "lo_k", "hi_i", "hi_j", "hi_k")])
_INT_VECTOR = np.dtype([(name, "<i4") for name in ("intvecti", "intvectj", "intvectk")])
_COMPONENT_NAMES = "xyz"


def write_chombo(path: Path, grid: Grid, step: int) -> None:
    """Writes a step's fields as one box on one level.

    yt takes the origin as 0; it is kept in the root's attribute ``prob_lo``.

    Raises
    ------
    UnsupportedError
        The sides of a cell differ, for which the layout has no place that yt reads.
    """
    if len(set(grid.spacing)) != 1:
        raise UnsupportedError(
            f"Chombo files have cells of one side, not {grid.spacing}: publish for ParaView, whose files have three"
        )
    nz, ny, nx = grid.shape
    single = all(field.dtype == np.float32 for field in grid.fields.values())
    number_type = np.dtype("<f4") if single else np.dtype("<f8")
    names: list[str] = []
    columns = []
    for name, field in grid.fields.items():
        if field.ndim == 3:
            names.append(name)
            columns.append(field)
            continue
        for component in range(field.shape[3]):
            suffix = _COMPONENT_NAMES[component] if field.shape[3] <= 3 else str(component)
            names.append(f"{name}_{suffix}")
            columns.append(field[..., component])
    with h5py.File(path, "w") as file:
        general = file.create_group("Chombo_global")
        general.attrs["SpaceDim"] = np.int32(3)
        general.attrs["testReal"] = number_type.type(0)
        root = file.attrs
        root["filetype"] = np.bytes_("VanillaAMRFileType")
        root["num_levels"], root["max_level"] = np.int32(1), np.int32(0)
        root["num_components"] = np.int32(len(names))
        for number, name in enumerate(names):
            root[f"component_{number}"] = np.bytes_(name.encode())
        root["iteration"], root["time"] = np.int32(step), grid.time
        root["prob_lo"] = np.array(grid.origin)
        level = file.create_group("level_0")
        box = np.array((0, 0, 0, nx - 1, ny - 1, nz - 1), _BOX)
        level.attrs["dx"], level.attrs["dt"], level.attrs["time"] = grid.spacing[0], 0.0, grid.time
        level.attrs["ref_ratio"] = np.int32(2)
        level.attrs["prob_domain"] = box
        level["boxes"] = box.reshape(1)
        level["Processors"] = np.zeros(1, np.int32)
        cells = nz * ny * nx
        level["data:offsets=0"] = np.array([0, cells * len(names)], np.int64)
        # Component after component, x fastest.
        data = level.create_dataset("data:datatype=0", (cells * len(names),), number_type)
        for number, column in enumerate(columns):
            data[number * cells : (number + 1) * cells] = column.reshape(-1)
        kinds = level.create_group("data_attributes")
        kinds.attrs["comps"] = np.int32(len(names))
        kinds.attrs["ghost"] = kinds.attrs["outputGhost"] = np.array((0, 0, 0), _INT_VECTOR)
        kinds.attrs["objectType"] = np.bytes_("FArrayBox")
