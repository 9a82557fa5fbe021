# SPDX-License-Identifier: Apache-2.0
"""What ADIOS2 programs say of their mesh for VTK and ParaView: the attribute ``vtk.xml``, and those of Fides.

Both name the variables that lie on a regular grid, and its spacing and origin (docs/formats/conventions.md). What does
not look as these programs write it is ignored, as any attribute is that a reader does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree

import numpy as np

__all__ = ["MeshAttributes", "mesh_attributes"]

Three = tuple[float, float, float]

#: A description of a mesh is short; what is longer is none.
_TEXT_LENGTH_MAX = 1 << 16


@dataclass(frozen=True)
class MeshAttributes:
    """A regular grid, as attributes describe it.

    Attributes
    ----------
    variables : tuple of str
        Those that lie on it, with the dimensions (z, y, x).
    spacing, origin : three float, optional
        Along x, y and z; None: not told.
    """

    variables: tuple[str, ...] = ()
    spacing: Three | None = None
    origin: Three | None = None

    def dimension_names(self, name: str, rank: int) -> tuple[str, ...] | None:
        """Of a variable; None where the attributes tell nothing of it."""
        return ("z", "y", "x") if rank == 3 and name in self.variables else None


def mesh_attributes(attributes: Mapping[str, Any]) -> MeshAttributes:
    """What a step's attributes tell: ``vtk.xml`` first, else Fides'."""
    text = attributes.get("vtk.xml")
    if isinstance(text, str) and (found := _of_vtk_xml(text)) is not None:
        return found
    if attributes.get("Fides_Data_Model") != "uniform":
        return MeshAttributes()
    names = attributes.get("Fides_Variable_List", ())
    names = (names,) if isinstance(names, str) else names
    return MeshAttributes(
        tuple(name for name in names if isinstance(name, str)) if isinstance(names, tuple) else (),
        _three(attributes.get("Fides_Spacing")),
        _three(attributes.get("Fides_Origin")),
    )


@lru_cache(maxsize=8)
def _of_vtk_xml(text: str) -> MeshAttributes | None:
    # Entities could make a short text a long one.
    if len(text) > _TEXT_LENGTH_MAX or "<!" in text.replace("<!--", ""):
        return None
    try:
        image = ElementTree.fromstring(text).find("ImageData")  # noqa: S314 - without entities, see above
    except ElementTree.ParseError:
        return None
    if image is None:
        return None
    arrays = image.findall("Piece/CellData/DataArray") + image.findall("Piece/PointData/DataArray")
    names = tuple(array.get("Name", "") for array in arrays if array.get("Name") != "TIME")
    return MeshAttributes(names, _three(_numbers(image.get("Spacing"))), _three(_numbers(image.get("Origin"))))


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(word) for word in text.split()]
    except ValueError:
        return None


def _three(value: Any) -> Three | None:
    numbers = np.asarray(() if value is None else value)
    if numbers.shape != (3,) or numbers.dtype.kind not in "iuf" or not np.isfinite(numbers).all():
        return None
    x, y, z = numbers.astype(float).tolist()
    return x, y, z
