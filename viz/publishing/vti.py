# SPDX-License-Identifier: Apache-2.0
"""VTK's XML image data (``.vti``), raw and uncompressed: every VTK program reads it at the speed of the disk."""

from __future__ import annotations

from typing import IO
from xml.sax.saxutils import quoteattr

import numpy as np

from forebay.viz.grid import Grid

__all__ = ["write_vti"]

_TYPES = {"i": "Int", "u": "UInt", "f": "Float"}


def write_vti(file: IO[bytes], grid: Grid) -> None:
    """Writes a step's fields as cell data.

    Parameters
    ----------
    file : binary file
        Written from its beginning.
    grid : Grid
        The step.
    """
    nz, ny, nx = grid.shape
    extent = f"0 {nx} 0 {ny} 0 {nz}"
    # Arrays lie one after another behind the text, each after its size in 8 bytes.
    arrays = []
    offset = 0
    for name, field in grid.fields.items():
        components = field.shape[3] if field.ndim == 4 else 1
        kind = f"{_TYPES[field.dtype.kind]}{8 * field.dtype.itemsize}"
        arrays.append(
            f"<DataArray type={quoteattr(kind)} Name={quoteattr(name)} NumberOfComponents={quoteattr(str(components))} "
            f'format="appended" offset={quoteattr(str(offset))}/>'
        )
        offset += 8 + field.nbytes
    origin, spacing = (" ".join(f"{number!r}" for number in three) for three in (grid.origin, grid.spacing))
    file.write(
        '<?xml version="1.0"?>\n'
        '<VTKFile type="ImageData" version="1.0" byte_order="LittleEndian" header_type="UInt64">\n'
        f'<ImageData WholeExtent="{extent}" Origin="{origin}" Spacing="{spacing}">\n'
        '<FieldData><DataArray type="Float64" Name="TimeValue" NumberOfTuples="1" format="ascii">'
        f"{grid.time!r}</DataArray></FieldData>\n"
        f'<Piece Extent="{extent}">\n<CellData>{"".join(arrays)}</CellData>\n</Piece>\n</ImageData>\n'
        '<AppendedData encoding="raw">\n_'.encode()
    )
    for field in grid.fields.values():
        file.write(field.nbytes.to_bytes(8, "little"))
        # Little-endian already, as Forebay's are; contiguous where one block or a copy was read.
        file.write(np.ascontiguousarray(field).data)
    file.write(b"\n</AppendedData>\n</VTKFile>\n")
