# SPDX-License-Identifier: Apache-2.0
"""What tells size and direction: a ruler under the flow, the axes in a corner, an arrow along the mean flow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonCore import vtkPoints
from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData
from vtkmodules.vtkFiltersSources import vtkArrowSource
from vtkmodules.vtkRenderingAnnotation import vtkAxesActor
from vtkmodules.vtkRenderingCore import (
    vtkActor,
    vtkBillboardTextActor3D,
    vtkCamera,
    vtkPolyDataMapper,
    vtkProp,
    vtkRenderer,
    vtkTextProperty,
)

from forebay.viz.fields import FlowFields

__all__ = ["CornerAxes", "FlowArrow", "ruler"]

_COLOR = (0.66, 0.73, 0.83)
_BRIGHT = (0.93, 0.95, 0.98)
_ROUND = (1.0, 2.0, 5.0)


def ruler(fields: FlowFields, text_height: float) -> list[vtkProp]:
    """A scale along z under the grid, in the unit of the grid's spacing.

    Parameters
    ----------
    text_height : float
        Height of the numbers in pixels.
    """
    width, height, length = fields.extent
    reach = fields.outer_radius
    begin = np.array([0.5 * width, 0.5 * height - 1.2 * reach, 0.0])
    down = np.array([0.0, -0.07 * reach, 0.0])
    along = np.array([0.0, 0.0, 1.0])
    lines = [(begin, begin + length * along)]
    props: list[vtkProp] = []
    distance = _tick_distance(length)
    for number in np.arange(0.0, length + 0.5 * distance, distance):
        if number > length:
            break
        place = begin + number * along
        lines.append((place, place + down))
        props.append(_text(f"{number:g}", place + 2.6 * down, text_height))
    title = "z" + (f", {fields.length_units}" if fields.length_units else "")
    props.append(_text(title, begin + 0.5 * length * along + 5.2 * down, text_height))
    props.append(_lines(lines))
    return props


class FlowArrow:
    """An arrow along the mean flow, above the end where the fluid comes in; hidden while the fluid is at rest."""

    def __init__(self, fields: FlowFields, text_height: float) -> None:
        source = vtkArrowSource()
        source.SetTipResolution(24)
        source.SetShaftResolution(16)
        source.SetTipLength(0.28)
        source.SetTipRadius(0.075)
        source.SetShaftRadius(0.024)
        mapper = vtkPolyDataMapper()
        mapper.SetInputConnection(source.GetOutputPort())
        self._arrow = vtkActor()
        self._arrow.SetMapper(mapper)
        self._arrow.GetProperty().SetColor(*_BRIGHT)
        self._arrow.GetProperty().SetAmbient(0.8)
        self._arrow.GetProperty().SetDiffuse(0.2)
        self._label = _text("flow", np.zeros(3), 1.15 * text_height, bold=True, color=_BRIGHT)
        self._extent = np.array(fields.extent)
        self._reach = fields.outer_radius
        self.props: list[vtkProp] = [self._arrow, self._label]

    def point(self, velocity: NDArray[np.float32]) -> None:
        """Turns it along the axis of the mean of a velocity field of shape (nz, ny, nx, 3)."""
        mean = velocity.reshape(-1, 3).mean(axis=0, dtype=np.float64)
        axis = int(np.argmax(np.abs(mean)))
        flows = bool(abs(mean[axis]) > 1e-12)
        for prop in self.props:
            prop.SetVisibility(flows)
        if not flows:
            return
        way = np.zeros(3)
        way[axis] = np.sign(mean[axis])
        size = 0.95 * self._reach
        tail = 0.5 * self._extent - way * (0.5 * self._extent[axis] - 0.1 * self._reach)
        tail[1] = 0.5 * self._extent[1] + 1.3 * self._reach
        self._arrow.SetScale(size, size, size)
        self._arrow.SetPosition(*tail)
        self._label.SetPosition(*(tail + 0.5 * size * way + np.array([0.0, 0.2 * self._reach, 0.0])))
        # The source's arrow runs along x.
        self._arrow.SetOrientation(0.0, 0.0, 0.0)
        if axis == 0 and way[0] < 0:
            self._arrow.RotateY(180.0)
        elif axis == 1:
            self._arrow.RotateZ(90.0 * way[1])
        elif axis == 2:
            self._arrow.RotateY(-90.0 * way[2])


class CornerAxes:
    """The directions of x, y and z, in the lower right corner, seen as the main camera sees them."""

    def __init__(self, text_height: float) -> None:
        self.renderer = vtkRenderer()
        self.renderer.SetLayer(1)
        self.renderer.InteractiveOff()
        self.renderer.SetViewport(0.84, 0.01, 1.0, 0.21)
        axes = vtkAxesActor()
        axes.SetTotalLength(1.0, 1.0, 1.0)
        axes.SetShaftTypeToCylinder()
        axes.SetCylinderRadius(0.04)
        axes.SetConeRadius(0.3)
        for part in (
            axes.GetXAxisShaftProperty(), axes.GetYAxisShaftProperty(), axes.GetZAxisShaftProperty(),
            axes.GetXAxisTipProperty(), axes.GetYAxisTipProperty(), axes.GetZAxisTipProperty(),
        ):  # fmt: skip
            part.SetColor(*_COLOR)
            part.SetAmbient(0.7)
            part.SetDiffuse(0.3)
        axes.AxisLabelsOff()
        self.renderer.AddActor(axes)
        for name, place in (("x", (1.35, 0.0, 0.0)), ("y", (0.0, 1.35, 0.0)), ("z", (0.0, 0.0, 1.35))):
            self.renderer.AddActor(_text(name, np.array(place), text_height, bold=True))

    def look_from(self, camera: vtkCamera) -> None:
        """Takes the direction of the main camera."""
        mine = self.renderer.GetActiveCamera()
        away = np.array(camera.GetPosition()) - np.array(camera.GetFocalPoint())
        mine.SetFocalPoint(0.0, 0.0, 0.0)
        mine.SetPosition(*(6.5 * away / np.linalg.norm(away)))
        mine.SetViewUp(*camera.GetViewUp())
        mine.SetViewAngle(30.0)
        self.renderer.ResetCameraClippingRange()


def _tick_distance(length: float) -> float:
    """A round distance that gives at most ten ticks."""
    magnitude = 10.0 ** np.floor(np.log10(length))
    distances = [float(scale * factor * magnitude) for scale in (0.1, 1.0) for factor in _ROUND]
    return next(distance for distance in distances if length / distance <= 10.0)


def _lines(pieces: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> vtkActor:
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
    actor.GetProperty().SetColor(*_COLOR)
    actor.GetProperty().LightingOff()
    return actor


def _text(
    text: str,
    place: NDArray[np.float64],
    height: float,
    *,
    bold: bool = False,
    color: tuple[float, float, float] = _COLOR,
) -> vtkBillboardTextActor3D:
    actor = vtkBillboardTextActor3D()
    actor.SetInput(text)
    actor.SetPosition(*place)
    style: vtkTextProperty = actor.GetTextProperty()
    style.SetFontFamilyToArial()
    style.SetFontSize(round(height))
    style.SetColor(*color)
    style.SetBold(bold)
    style.SetJustificationToCentered()
    style.SetVerticalJustificationToCentered()
    return actor
