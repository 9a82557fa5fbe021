# SPDX-License-Identifier: Apache-2.0
"""The two cut faces of the wedge, painted with the speed of the flow; where they cut solid they are grey."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkFiltersSources import vtkPlaneSource
from vtkmodules.vtkRenderingCore import vtkActor, vtkPolyDataMapper, vtkTexture

from forebay.viz.colors import SPEED_COLORS
from forebay.viz.fields import FlowFields

__all__ = ["CutFaces"]

_PIXELS_PER_CELL = 6
_SOLID_COLOR = np.array([0.33, 0.36, 0.41])
_RIM_COLOR = np.array([0.62, 0.66, 0.72])


class CutFaces:
    """Both faces as actors; :meth:`paint` gives them the colours of a step."""

    def __init__(self, fields: FlowFields) -> None:
        width, height, length = fields.extent
        reach = fields.outer_radius
        axis = (0.5 * width, 0.5 * height)
        self._faces = [
            _Face(fields, across="y", ends=((axis[0], axis[1] + reach, 0.0), (*axis, length))),
            _Face(fields, across="x", ends=((axis[0] + reach, axis[1], 0.0), (*axis, length))),
        ]

    @property
    def actors(self) -> list[vtkActor]:
        """To be added to a renderer once."""
        return [face.actor for face in self._faces]

    def paint(self, speed: NDArray[np.float32], top: float) -> None:
        """Shows ``speed`` of shape (nz, ny, nx) in colours from 0 to ``top``."""
        for face in self._faces:
            face.paint(speed, top)


class _Face:
    def __init__(
        self,
        fields: FlowFields,
        *,
        across: str,
        ends: tuple[tuple[float, float, float], tuple[float, float, float]],
    ) -> None:
        width, height, _ = fields.extent
        self._across = across
        nz, ny, nx = fields.solid.shape
        cells = {"x": nx, "y": ny}[across]
        reach = fields.outer_radius / fields.spacing
        # Pixel centres, in cells, from the axis outward and from the inlet to the outlet.
        outward = 0.5 * cells + (np.arange(round(reach * _PIXELS_PER_CELL)) + 0.5) / _PIXELS_PER_CELL
        along = (np.arange(nz * _PIXELS_PER_CELL) + 0.5) / _PIXELS_PER_CELL
        self._outward, self._along = _cubic_matrix(outward, cells), _cubic_matrix(along, nz)
        self._solid, self._rim = self._coverage(fields, outward, along)

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

    def paint(self, speed: NDArray[np.float32], top: float) -> None:
        fine = self._along @ self._section(speed) @ self._outward.T
        colors = SPEED_COLORS[np.clip(fine * (255.0 / top), 0, 255).astype(np.uint8)]
        colors += self._solid[..., None] * (_SOLID_COLOR - colors)
        colors += self._rim[..., None] * (_RIM_COLOR - colors)
        pixels = (colors.reshape(-1, 3) * 255).astype(np.uint8)
        self._image.GetPointData().SetScalars(numpy_to_vtk(pixels, deep=True))
        self._image.Modified()

    def _section(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Values on the face: the mean of the cells on both its sides, or of the one that it runs through."""
        axis = 2 if self._across == "y" else 1
        cells = values.shape[axis]
        lower, upper = (cells - 1) // 2, cells // 2
        section: NDArray[np.float32] = 0.5 * (values.take(lower, axis) + values.take(upper, axis))
        return section

    def _coverage(
        self, fields: FlowFields, outward: NDArray[np.float64], along: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How much of each pixel is solid, and how much belongs to the rim of a cut sphere."""
        if not len(fields.sphere_centres):
            share = self._along @ self._section(fields.solid.astype(np.float32)) @ self._outward.T
            solid = np.clip((share - 0.5) * _PIXELS_PER_CELL + 0.5, 0, 1)
            return solid, np.zeros_like(solid)
        depth = np.full((len(along), len(outward)), -np.inf)  # below the nearest surface, in cells
        normal, tangent = (0, 1) if self._across == "y" else (1, 0)
        middle = 0.5 * fields.extent[normal]
        for centre in fields.sphere_centres:
            squared = fields.sphere_radius**2 - (centre[normal] - middle) ** 2
            if squared <= 0:
                continue
            distance = np.hypot(
                along[:, None] - centre[2] / fields.spacing, outward[None, :] - centre[tangent] / fields.spacing
            )
            np.maximum(depth, np.sqrt(squared) / fields.spacing - distance, out=depth)
        solid = np.clip(depth * _PIXELS_PER_CELL + 0.5, 0, 1)
        rim = solid * np.clip((0.35 - depth) * _PIXELS_PER_CELL + 0.5, 0, 1)
        return solid, rim


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
