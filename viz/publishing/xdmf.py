# SPDX-License-Identifier: Apache-2.0
"""XDMF over HDF5: a file of plain arrays for each step, and a text that says what they are."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import h5py
import numpy as np

from forebay.errors import InvalidArgumentError
from forebay.files.open_folder import open_file
from forebay.viz.grid import Grid

__all__ = ["grid_element", "read_grid_elements", "write_fields", "xdmf_text"]

_NUMBERS = {"i": "Int", "u": "UInt", "f": "Float"}
_KINDS = {1: "Scalar", 3: "Vector", 6: "Tensor6", 9: "Tensor"}


def write_fields(path: Path, grid: Grid) -> None:
    """Writes a step's fields, each as one contiguous array (z, y, x) or (z, y, x, components)."""
    with h5py.File(path, "w") as file:
        for name, field in grid.fields.items():
            file.create_dataset(name, data=field)
        file.attrs["time"] = grid.time
        file.attrs["spacing"], file.attrs["origin"] = np.array(grid.spacing), np.array(grid.origin)
        for axis, along in zip("xyz", grid.edges or (), strict=False):
            file.attrs[f"{axis}_edges"] = along


def grid_element(grid: Grid, file_name: str) -> Element:
    """What XDMF says of a step: mesh, time, and where in ``file_name`` the fields of the cells are."""
    nz, ny, nx = grid.shape
    element = Element("Grid", Name=file_name, GridType="Uniform")
    SubElement(element, "Time", Value=repr(grid.time))
    if grid.edges is None:
        mesh, kind = "3DCORECTMesh", "ORIGIN_DXDYDZ"
        rows = [list(reversed(values)) for values in (grid.origin, grid.spacing)]  # z, y, x
    else:
        mesh, kind = "3DRECTMesh", "VXVYVZ"
        rows = [along.tolist() for along in grid.edges]
    SubElement(element, "Topology", TopologyType=mesh, Dimensions=f"{nz + 1} {ny + 1} {nx + 1}")
    geometry = SubElement(element, "Geometry", GeometryType=kind)
    for row in rows:
        numbers = SubElement(
            geometry, "DataItem", Dimensions=str(len(row)), NumberType="Float", Precision="8", Format="XML"
        )
        numbers.text = " ".join(map(repr, row))
    for name, field in grid.fields.items():
        components = field.shape[3] if field.ndim == 4 else 1
        attribute = SubElement(
            element, "Attribute", Name=name, AttributeType=_KINDS.get(components, "Matrix"), Center="Cell"
        )
        data = SubElement(
            attribute,
            "DataItem",
            Dimensions=" ".join(map(str, field.shape)),
            NumberType=_NUMBERS[field.dtype.kind],
            Precision=str(field.dtype.itemsize),
            Format="HDF",
        )
        data.text = f"{file_name}:/{name}"
    return element


def xdmf_text(elements: list[Element]) -> str:
    """The index: all steps as one series."""
    root = Element("Xdmf", Version="2.0")
    series = SubElement(
        SubElement(root, "Domain"), "Grid", Name="steps", GridType="Collection", CollectionType="Temporal"
    )
    series.extend(elements)
    return '<?xml version="1.0"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def read_grid_elements(path: Path) -> dict[str, Element]:
    """The steps of an index that :func:`xdmf_text` wrote, by their files' names."""
    try:
        with os.fdopen(open_file(path), "rb") as opened:
            series = ElementTree.parse(opened).getroot().find("Domain/Grid")  # noqa: S314 - our own file
    except ElementTree.ParseError:
        series = None
    if series is None:
        raise InvalidArgumentError(f"{path} was not written by forebay publish: take another folder")
    return {element.get("Name", ""): element for element in series.findall("Grid")}
