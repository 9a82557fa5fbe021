# SPDX-License-Identifier: Apache-2.0
"""The two faces of a cutaway, painted with a variable; where they cut solid they are grey."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkFiltersSources import vtkPlaneSource
from vtkmodules.vtkRenderingCore import vtkActor, vtkPolyDataMapper, vtkTexture

from forebay.viz.scenes.solid import Solid

__all__ = ["CutFaces"]

_SOLID_COLOR = np.array([0.33, 0.36, 0.41])
_RIM_COLOR = np.array([0.62, 0.66, 0.72])


class CutFaces:
    """Both faces as actors; :meth:`paint` gives them the colours of a step."""

    def __init__(self, solid: Solid, colors: NDArray[np.float64], pixels_per_cell: int) -> None:
        width, height, length = solid.extent
        reach = solid.outer_radius
        axis = (0.5 * width, 0.5 * height)
        self._faces = [
            _Face(solid, colors, pixels_per_cell, across="y", ends=((axis[0], axis[1] + reach, 0.0), (*axis, length))),
            _Face(solid, colors, pixels_per_cell, across="x", ends=((axis[0] + reach, axis[1], 0.0), (*axis, length))),
        ]

    @property
    def actors(self) -> list[vtkActor]:
        """To be added to a renderer once."""
        return [face.actor for face in self._faces]

    def paint(self, values: NDArray[Any], low: float, high: float) -> None:
        """Shows values of shape (nz, ny, nx) in colours from ``low`` to ``high``."""
        for face in self._faces:
            face.paint(values, low, high)


class _Face:
    def __init__(
        self,
        solid: Solid,
        colors: NDArray[np.float64],
        pixels_per_cell: int,
        *,
        across: str,
        ends: tuple[tuple[float, float, float], tuple[float, float, float]],
    ) -> None:
        width, height, _ = solid.extent
        self._across, self._pixels_per_cell = across, pixels_per_cell
        self._colors = (255 * colors).astype(np.float32)
        nz, ny, nx = solid.cells.shape
        cells = {"x": nx, "y": ny}[across]
        reach = solid.outer_radius / solid.spacing
        # Pixel centres, in cells, from the axis outward and from the inlet to the outlet.
        outward = 0.5 * cells + (np.arange(round(reach * pixels_per_cell)) + 0.5) / pixels_per_cell
        along = (np.arange(nz * pixels_per_cell) + 0.5) / pixels_per_cell
        self._outward, self._along = _cubic_matrix(outward, cells), _cubic_matrix(along, nz)
        covered, rim = self._coverage(solid, outward, along)
        # What is painted over the colours: its share of each pixel, and its colour times this share.
        self._shown = ((1 - covered) * (1 - rim))[..., None].astype(np.float32)
        paint = (covered * (1 - rim))[..., None] * _SOLID_COLOR + rim[..., None] * _RIM_COLOR
        self._paint = (255 * paint).astype(np.float32)

        self._image = vtkImageData()
        self._image.SetDimensions(len(outward), len(along), 1)
        self._texture = vtkTexture()
        self._texture.SetInputData(self._image)
        self._texture.InterpolateOn()
        plane = vtkPlaneSource()
        plane.SetOrigin(0.5 * width, 0.5 * height, 0.0)
        plane.SetPoint1(*ends[0])
        plane.SetPoint2(*ends[1])
        mapper = vtkPolyDataMapper()
        mapper.SetInputConnection(plane.GetOutputPort())
        self.actor = vtkActor()
        self.actor.SetMapper(mapper)
        self.actor.SetTexture(self._texture)
        self.actor.GetProperty().LightingOff()

    def paint(self, values: NDArray[Any], low: float, high: float) -> None:
        # A value that is no number is drawn as the lower end; it must not spread over the whole face.
        section = np.nan_to_num(self._section(values) - np.float32(low))
        fine = self._along @ section @ self._outward.T
        entries = np.clip(fine * np.float32(255.0 / (high - low)), 0, 255).astype(np.uint8)
        pixels = self._colors[entries] * self._shown + self._paint
        self._image.GetPointData().SetScalars(numpy_to_vtk(pixels.astype(np.uint8).reshape(-1, 3), deep=True))
        self._image.Modified()

    def _section(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Values on the face: the mean of the cells on both its sides, or of the one that it runs through."""
        axis = 2 if self._across == "y" else 1
        cells = values.shape[axis]
        lower, upper = (cells - 1) // 2, cells // 2
        below, above = (values.take(cell, axis).astype(np.float32) for cell in (lower, upper))
        section: NDArray[np.float32] = np.float32(0.5) * (below + above)
        return section

    def _coverage(
        self, solid: Solid, outward: NDArray[np.float64], along: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How much of each pixel is solid, and how much belongs to the rim of a cut sphere."""
        if not len(solid.sphere_centres):
            share = self._along @ self._section(solid.cells) @ self._outward.T
            covered = np.clip((share - 0.5) * self._pixels_per_cell + 0.5, 0, 1)
            return covered, np.zeros_like(covered)
        depth = np.full((len(along), len(outward)), -np.inf)  # below the nearest surface, in cells
        normal, tangent = (0, 1) if self._across == "y" else (1, 0)
        middle = 0.5 * solid.extent[normal]
        for centre in solid.sphere_centres:
            squared = solid.sphere_radius**2 - (centre[normal] - middle) ** 2
            if squared <= 0:
                continue
            distance = np.hypot(
                along[:, None] - centre[2] / solid.spacing, outward[None, :] - centre[tangent] / solid.spacing
            )
            np.maximum(depth, np.sqrt(squared) / solid.spacing - distance, out=depth)
        covered = np.clip(depth * self._pixels_per_cell + 0.5, 0, 1)
        rim = covered * np.clip((0.35 - depth) * self._pixels_per_cell + 0.5, 0, 1)
        return covered, rim


def _cubic_matrix(points: NDArray[np.float64], cells: int) -> NDArray[np.float32]:
    """Catmull-Rom interpolation of values at cell centres to `points` (in cells), as a matrix."""
    position = points - 0.5
    base = np.floor(position).astype(int)
    u = position - base
    weights = (
        (-u + 2 * u**2 - u**3) / 2,
        (2 - 5 * u**2 + 3 * u**3) / 2,
        (u + 4 * u**2 - 3 * u**3) / 2,
        (-(u**2) + u**3) / 2,
    )
    matrix = np.zeros((len(points), cells), np.float32)
    for offset, weight in zip((-1, 0, 1, 2), weights, strict=True):
        np.add.at(matrix, (np.arange(len(points)), np.clip(base + offset, 0, cells - 1)), weight)
    return matrix
