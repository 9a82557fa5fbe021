# SPDX-License-Identifier: Apache-2.0
"""The layer ``ruler``: a scale along z under the grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonCore import vtkPoints
from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData
from vtkmodules.vtkRenderingCore import vtkActor, vtkPolyDataMapper, vtkProp

from forebay.viz.scenes.description import Color, RulerLayer, SceneDescription
from forebay.viz.scenes.marks import TEXT_HEIGHT, text_in_space
from forebay.viz.scenes.step_fields import StepFields

__all__ = ["DrawnRuler"]

_ROUND = (1.0, 2.0, 5.0)


class DrawnRuler:
    """Lines and numbers, made anew when the grid changes."""

    def __init__(self, layer: RulerLayer, scene: SceneDescription) -> None:
        self._color = layer.color
        self._text_height = TEXT_HEIGHT * scene.size[1]
        self.scale = None
        self.props: list[vtkProp] = []
        self._drawn: object = None

    def show(self, fields: StepFields) -> None:
        """See :class:`forebay.viz.scenes.layers.DrawnLayer`."""
        low, high = fields.corners()
        units = fields.units("spacing")
        drawn = (*low, *high, units)
        if drawn != self._drawn:
            self.props = self._ruler(low, high - low, units)
            self._drawn = drawn

    def _ruler(self, low: NDArray[np.float64], extent: NDArray[np.float64], units: str) -> list[vtkProp]:
        length = float(extent[2])
        reach = 0.5 * float(min(extent[:2]))
        begin = low + np.array([0.5 * extent[0], 0.5 * extent[1] - 1.2 * reach, 0.0])
        down = np.array([0.0, -0.07 * reach, 0.0])
        along = np.array([0.0, 0.0, 1.0])
        lines = [(begin, begin + length * along)]
        props: list[vtkProp] = []
        distance = _tick_distance(length)
        first = np.ceil(low[2] / distance - 1e-9) * distance
        for number in np.arange(first, low[2] + length * (1 + 1e-9), distance):
            place = begin + (number - low[2]) * along
            lines.append((place, place + down))
            text = f"{number if abs(number) > 1e-9 * distance else 0.0:g}"
            props.append(text_in_space(text, place + 2.6 * down, self._text_height, color=self._color))
        title = "z" + (f", {units}" if units else "")
        middle = begin + 0.5 * length * along + 5.2 * down
        props.append(text_in_space(title, middle, self._text_height, color=self._color))
        props.append(_lines(lines, self._color))
        return props


def _tick_distance(length: float) -> float:
    """A round distance that gives at most ten ticks."""
    magnitude = 10.0 ** np.floor(np.log10(length))
    distances = [float(scale * factor * magnitude) for scale in (0.1, 1.0) for factor in _ROUND]
    return next(distance for distance in distances if length / distance <= 10.0)


def _lines(pieces: list[tuple[NDArray[np.float64], NDArray[np.float64]]], color: Color) -> vtkActor:
    points = vtkPoints()
    points.SetData(numpy_to_vtk(np.array(pieces, np.float64).reshape(-1, 3), deep=True))
    cells = vtkCellArray()
    for number in range(len(pieces)):
        cells.InsertNextCell(2, (2 * number, 2 * number + 1))
    data = vtkPolyData()
    data.SetPoints(points)
    data.SetLines(cells)
    mapper = vtkPolyDataMapper()
    mapper.SetInputData(data)
    actor = vtkActor()
    actor.SetMapper(mapper)
    actor.GetProperty().SetColor(*color)
    actor.GetProperty().LightingOff()
    return actor
