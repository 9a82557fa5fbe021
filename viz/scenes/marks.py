# SPDX-License-Identifier: Apache-2.0
"""Text beside what it names, and the directions of the axes in a corner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from vtkmodules.vtkRenderingAnnotation import vtkAxesActor
from vtkmodules.vtkRenderingCore import vtkBillboardTextActor3D, vtkCamera, vtkRenderer, vtkTextProperty

from forebay.viz.scenes.description import Color

__all__ = ["TEXT_HEIGHT", "CornerAxes", "text_in_space"]

#: Of small text, as a share of the picture's height.
TEXT_HEIGHT = 0.022

_COLOR = (0.66, 0.73, 0.83)


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
            self.renderer.AddActor(text_in_space(name, np.array(place), text_height, bold=True))

    def look_from(self, camera: vtkCamera) -> None:
        """Takes the direction of the main camera."""
        mine = self.renderer.GetActiveCamera()
        away = np.array(camera.GetPosition()) - np.array(camera.GetFocalPoint())
        mine.SetFocalPoint(0.0, 0.0, 0.0)
        mine.SetPosition(*(6.5 * away / np.linalg.norm(away)))
        mine.SetViewUp(*camera.GetViewUp())
        mine.SetViewAngle(30.0)
        self.renderer.ResetCameraClippingRange()


def text_in_space(
    text: str,
    place: NDArray[np.float64],
    height: float,
    *,
    bold: bool = False,
    color: Color = _COLOR,
) -> vtkBillboardTextActor3D:
    """Text at a place of the grid, of this height in pixels, towards the viewer."""
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
