# SPDX-License-Identifier: Apache-2.0
"""VTK's XML image data (``.vti``), raw and uncompressed: every VTK program reads it at the speed of the disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO
from xml.sax.saxutils import quoteattr

import numpy as np

from forebay.viz.grid import Grid

__all__ = ["END", "VtiHeads", "vti_heads", "write_vti"]

_TYPES = {"i": "Int", "u": "UInt", "f": "Float"}
# Arrays begin at pages, so that a view of a step can share them with the stream.
_ALIGNMENT_BYTES = 4096
#: What follows the last array.
END = b"\n</AppendedData>\n</VTKFile>\n"


@dataclass(frozen=True)
class VtiHeads:
    """What lies before the arrays: at byte 0 the text, and before each array its size in 8 bytes."""

    heads: tuple[tuple[int, bytes], ...]  #: offset and bytes; the text first
    arrays: tuple[int, ...]  #: where the fields begin, in the grid's order
    size_bytes: int  #: of the file up to `END`


def vti_heads(grid: Grid) -> VtiHeads:
    """All of a file but its arrays: the grid's fields as cell data. Fields need type and shape only."""
    nz, ny, nx = grid.shape
    extent = f"0 {nx} 0 {ny} 0 {nz}"
    starts = [0]
    for field in grid.fields.values():
        # The next one's size lies right before it.
        starts.append(-(-(starts[-1] + field.nbytes + 8) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
    described = []
    for start, (name, field) in zip(starts, grid.fields.items(), strict=False):
        components = field.shape[3] if field.ndim == 4 else 1
        kind = f"{_TYPES[field.dtype.kind]}{8 * field.dtype.itemsize}"
        described.append(
            f"<DataArray type={quoteattr(kind)} Name={quoteattr(name)} NumberOfComponents={quoteattr(str(components))} "
            f'format="appended" offset={quoteattr(str(start))}/>'
        )
    origin, spacing = (" ".join(f"{number!r}" for number in three) for three in (grid.origin, grid.spacing))
    text = (
        '<?xml version="1.0"?>\n'
        '<VTKFile type="ImageData" version="1.0" byte_order="LittleEndian" header_type="UInt64">\n'
        f'<ImageData WholeExtent="{extent}" Origin="{origin}" Spacing="{spacing}">\n'
        '<FieldData><DataArray type="Float64" Name="TimeValue" NumberOfTuples="1" format="ascii">'
        f"{grid.time!r}</DataArray></FieldData>\n"
        f'<Piece Extent="{extent}">\n<CellData>{"".join(described)}</CellData>\n</Piece>\n</ImageData>\n'
        '<AppendedData encoding="raw">\n'
    ).encode()
    # Offsets count from behind the underscore, after which the first array's size comes.
    first = -(-(len(text) + 9) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    text = text.ljust(first - 9) + b"_"
    arrays = tuple(first + start for start in starts[:-1])
    heads = [(0, text)]
    for array, field in zip(arrays, grid.fields.values(), strict=True):
        heads.append((array - 8, field.nbytes.to_bytes(8, "little")))
    end = arrays[-1] + list(grid.fields.values())[-1].nbytes if arrays else len(text)
    return VtiHeads(tuple(heads), arrays, end)


def write_vti(file: IO[bytes], grid: Grid) -> None:
    """Writes a step's fields as cell data.

    Parameters
    ----------
    file : binary file
        Written from its beginning.
    grid : Grid
        The step.
    """
    found = vti_heads(grid)
    (_, text), *sizes = found.heads
    file.write(text)
    written = len(text)
    for (offset, size), field in zip(sizes, grid.fields.values(), strict=True):
        file.write(bytes(offset - written) + size)
        # Little-endian already, as Forebay's are; contiguous where one block or a copy was read.
        file.write(np.ascontiguousarray(field).data)
        written = offset + len(size) + field.nbytes
    file.write(END)
