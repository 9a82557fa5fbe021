# SPDX-License-Identifier: Apache-2.0
"""Grids whose cells have different sides: drawn in their place, published as such by XDMF, else refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from vtkmodules.util.numpy_support import vtk_to_numpy

import forebay
from forebay.viz.grid import Grid
from forebay.viz.publishing.publication import FileFormat, Publication, Viewer
from tests.viz.test_view import brightest_column, scene_file, view

X = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 12.0])
Y = np.array([0.0, 1.0, 2.0, 4.0])
Z = np.array([0.0, 1.0, 2.0])


def write(address: str, coordinates: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]) -> None:
    field = np.zeros((2, 3, 5))
    field[:, 1, 2] = 1.0
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step.write("T", field, dims=("z", "y", "x"))
        for name, values in coordinates.items():
            step.write(name, values, dims=(name,))


def test_scene_shows_cells_where_their_coordinates_are(reservation: str, tmp_path: Path) -> None:
    text = """
size = [320, 240]
[camera]
direction = [0.0, 0.0, 1.0]
up = [0.0, 1.0, 0.0]
[[layer]]
kind = "slice"
variable = "T"
range = [0, 1]
"""
    places = []
    for name, x in (("even", np.linspace(0.0, 5.0, 6)), ("uneven", X)):
        write(f"{reservation}/{name}", {"x": x, "y": Y, "z": Z})
        done = view(f"{reservation}/{name}", "--scene", scene_file(tmp_path, text), "--out", str(tmp_path / "p.png"))
        assert done.returncode == 0, done.stderr
        places.append(brightest_column(tmp_path / "p.png"))
    # The third of five equal cells is in the middle; with a long last cell it is far left of it.
    assert 0.45 < places[0] < 0.55
    assert places[1] < 0.4


def test_coordinates_are_middles_or_edges(reservation: str) -> None:
    address = f"{reservation}/middles"
    middles = {"x": np.array([0.5, 1.5, 2.5, 3.5, 4.5]), "y": np.array([1.0, 3.0, 5.0]), "z": np.array([0.0, 1.0])}
    write(address, middles)
    with forebay.open(address) as stream:
        grid = Grid.of_step(stream[0])
    assert grid.edges is None
    np.testing.assert_allclose(grid.spacing, (1.0, 2.0, 1.0))
    np.testing.assert_allclose(grid.origin, (0.0, 0.0, -0.5))
    write(address, {"x": X, "y": Y, "z": Z})
    with forebay.open(address) as stream:
        grid = Grid.of_step(stream[0])
        regular = grid.regular()
    assert grid.edges is not None
    for found, expected in zip(grid.edges, (X, Y, Z), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert regular.shape == (2, 4, 12)
    np.testing.assert_array_equal(regular.fields["T"][0, 1], [0.0, 0.0, 1.0] + [0.0] * 9)
    write(address, {"x": X[::-1].copy(), "y": Y, "z": Z})
    with (
        forebay.open(address) as stream,
        pytest.raises(forebay.InvalidArgumentError, match="coordinates 'x' must grow"),
    ):
        Grid.of_step(stream[0])


def test_xdmf_has_the_coordinates_and_other_files_refuse_them(reservation: str, tmp_path: Path) -> None:
    from vtkmodules.vtkIOXdmf2 import vtkXdmfReader

    address = f"{reservation}/uneven"
    write(address, {"x": X, "y": Y, "z": Z})
    with forebay.open(address) as stream:
        publication = Publication(tmp_path, Viewer.PARAVIEW, "uneven", file_format=FileFormat.XDMF)
        publication.publish(stream[0])
        for viewer in (Viewer.PARAVIEW, Viewer.VISIT):
            with pytest.raises(forebay.UnsupportedError, match="--format xdmf"):
                Publication(tmp_path / viewer, viewer, "uneven").publish(stream[0])
    reader = vtkXdmfReader()
    reader.SetFileName(str(publication.index))
    reader.Update()
    mesh = reader.GetOutputDataObject(0)
    assert mesh.GetClassName() == "vtkRectilinearGrid"
    for found, expected in (
        (mesh.GetXCoordinates(), X),
        (mesh.GetYCoordinates(), Y),
        (mesh.GetZCoordinates(), Z),
    ):
        np.testing.assert_array_equal(vtk_to_numpy(found), expected)
    values = vtk_to_numpy(mesh.GetCellData().GetArray("T")).reshape(2, 3, 5)
    assert values[:, 1, 2].tolist() == [1.0, 1.0]
    assert values.sum() == 2.0
