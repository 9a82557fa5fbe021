# SPDX-License-Identifier: Apache-2.0
"""Draws one step of a flow through a solid, off-screen: the solid cut open, speed on the cut, streaks in the flow."""

from __future__ import annotations

import numpy as np
import vtkmodules.vtkInteractionStyle
import vtkmodules.vtkRenderingFreeType
import vtkmodules.vtkRenderingOpenGL2  # noqa: F401 - these three register what the classes below are made of
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkPolyData
from vtkmodules.vtkRenderingAnnotation import vtkScalarBarActor
from vtkmodules.vtkRenderingCore import (
    vtkActor,
    vtkPolyDataMapper,
    vtkProp,
    vtkRenderer,
    vtkRenderWindow,
    vtkTextActor,
    vtkTextProperty,
    vtkWindowToImageFilter,
)

from forebay.viz.axes import CornerAxes, FlowArrow, ruler
from forebay.viz.colors import lookup_table, speed_range
from forebay.viz.faces import CutFaces
from forebay.viz.fields import FlowFields
from forebay.viz.scene_options import SceneOptions
from forebay.viz.solid import end_rings, solid_surface
from forebay.viz.streaks import Streaks

__all__ = ["Scene"]

_BACKGROUND = (0.045, 0.060, 0.088)
_TEXT = (0.86, 0.89, 0.94)
_SOLID = (0.74, 0.77, 0.82)
_RING = (0.62, 0.69, 0.80)


class Scene:
    """An off-screen window; make it, use it and drop it in one thread.

    A frame depends on its step and the options alone, so that rendering a step again gives the same picture.
    """

    def __init__(self, options: SceneOptions) -> None:
        self._options = options
        self._renderer = vtkRenderer()
        self._renderer.SetBackground(*_BACKGROUND)
        self._window = vtkRenderWindow()
        self._window.SetOffScreenRendering(1)
        self._window.SetMultiSamples(0)  # smoothing below costs half as much without a graphics card
        self._window.SetSize(options.width, options.height)
        self._window.AddRenderer(self._renderer)
        self._text_height = 0.022 * options.height
        self._corner = CornerAxes(self._text_height)
        self._window.SetNumberOfLayers(2)
        self._window.AddRenderer(self._corner.renderer)
        self._renderer.UseFXAAOn()
        self._title = self._add_text(0.03, 0.935, 0.030, bold=True)
        self._title.SetInput(options.title)
        self._caption = self._add_text(0.03, 0.935 - (0.045 if options.title else 0.0), 0.025, bold=False)
        self._bar = self._add_color_bar()
        self._bar_title = self._add_text(0.03, 0.105, 0.024, bold=False)
        self._drawn: FlowFields | None = None
        self._solid_props: list[vtkProp] = []
        self._arrow: FlowArrow | None = None
        self._faces: CutFaces | None = None
        self._streaks: Streaks | None = None

    def render(self, fields: FlowFields) -> NDArray[np.uint8]:
        """The picture, shape (height, width, 3), first row on top."""
        if self._drawn is None or not fields.same_solid(self._drawn):
            self._build(fields)
        assert self._faces is not None
        assert self._streaks is not None
        assert self._arrow is not None
        speed = np.sqrt(np.einsum("zyxc,zyxc->zyx", fields.velocity, fields.velocity))
        top = self._options.speed_max or speed_range(speed, fields.solid)
        self._faces.paint(speed, top)
        self._streaks.trace(fields, speed, top)
        self._arrow.point(fields.velocity)
        self._bar.GetLookupTable().SetTableRange(0.0, top)
        self._bar_title.SetInput("speed" + _unit(fields.speed_units))
        time = "" if fields.time is None else f"     time {fields.time:g} {fields.time_units}".rstrip()
        self._caption.SetInput(f"step {fields.step}{time}")
        self._place_camera(fields)
        self._window.Render()
        return self._pixels()

    def _build(self, fields: FlowFields) -> None:
        """Everything that depends on the solid alone."""
        for prop in self._solid_props:
            self._renderer.RemoveViewProp(prop)
        self._faces, self._streaks = CutFaces(fields), Streaks(fields)
        self._arrow = FlowArrow(fields, self._text_height)
        solid = _actor(solid_surface(fields), _SOLID)
        solid.GetProperty().SetSpecular(0.35)
        solid.GetProperty().SetSpecularPower(30)
        self._solid_props = [solid, *self._faces.actors, self._streaks.actor, *self._arrow.props]
        if fields.cylinder_radius:
            self._solid_props.append(_actor(end_rings(fields), _RING))
        self._solid_props += ruler(fields, self._text_height)
        for prop in self._solid_props:
            self._renderer.AddViewProp(prop)
        # Shadows in the gaps give the bed its depth.
        self._renderer.UseSSAOOn()
        self._renderer.SetSSAORadius(0.35 * fields.outer_radius)
        self._renderer.SetSSAOBias(0.01 * fields.outer_radius)
        self._renderer.SetSSAOKernelSize(16)
        self._renderer.SSAOBlurOn()
        self._drawn = fields

    def _place_camera(self, fields: FlowFields) -> None:
        middle = 0.5 * np.array(fields.extent)
        swing = np.radians(self._options.sway_degrees) * np.sin(2.0 * np.pi * fields.step / 240.0)
        # From the open wedge, a little from the inlet's side.
        direction = np.array([0.80, 0.44, -0.22])
        turned = np.array(
            [
                np.cos(swing) * direction[0] + np.sin(swing) * direction[2],
                direction[1],
                np.cos(swing) * direction[2] - np.sin(swing) * direction[0],
            ]
        )
        half_length, reach = 0.5 * fields.extent[2], fields.outer_radius
        aspect = self._options.width / self._options.height
        # Far enough for the tube's length to fit the width and its ends the height.
        distance = 3.3 * max(half_length * 1.333 / aspect, 1.35 * reach) + 1.2 * reach
        camera = self._renderer.GetActiveCamera()
        camera.SetFocalPoint(*middle)
        camera.SetPosition(*(middle + distance * turned / np.linalg.norm(turned)))
        camera.SetViewUp(0.0, 1.0, 0.0)
        camera.SetViewAngle(30.0)
        self._renderer.ResetCameraClippingRange()
        self._corner.look_from(camera)

    def _pixels(self) -> NDArray[np.uint8]:
        grab = vtkWindowToImageFilter()
        grab.SetInput(self._window)
        grab.ReadFrontBufferOff()
        grab.ShouldRerenderOff()
        grab.Update()
        flat = vtk_to_numpy(grab.GetOutput().GetPointData().GetScalars())
        picture: NDArray[np.uint8] = flat.reshape(self._options.height, self._options.width, 3)[::-1].copy()
        return picture

    def _add_text(self, x: float, y: float, size: float, *, bold: bool) -> vtkTextActor:
        text = vtkTextActor()
        text.GetPositionCoordinate().SetCoordinateSystemToNormalizedViewport()
        text.SetPosition(x, y)
        self._style(text.GetTextProperty(), size, bold=bold)
        self._renderer.AddViewProp(text)
        return text

    def _add_color_bar(self) -> vtkScalarBarActor:
        bar = vtkScalarBarActor()
        bar.SetLookupTable(lookup_table())
        bar.SetOrientationToHorizontal()
        bar.SetPosition(0.03, 0.035)
        bar.SetPosition2(0.32, 0.055)
        bar.SetBarRatio(0.4)
        bar.SetNumberOfLabels(3)
        bar.SetLabelFormat("{:.3g}")
        bar.UnconstrainedFontSizeOn()
        self._style(bar.GetLabelTextProperty(), 0.022, bold=False)
        self._renderer.AddViewProp(bar)
        return bar

    def _style(self, text: vtkTextProperty, size: float, *, bold: bool) -> None:
        text.SetFontFamilyToArial()
        text.SetFontSize(round(size * self._options.height))
        text.SetColor(*_TEXT)
        text.SetBold(bold)
        text.SetItalic(False)
        text.SetShadow(False)


def _unit(name: str) -> str:
    return f", {name}" if name else ""


def _actor(surface: vtkPolyData, color: tuple[float, float, float]) -> vtkActor:
    mapper = vtkPolyDataMapper()
    mapper.SetInputData(surface)
    mapper.ScalarVisibilityOff()
    actor = vtkActor()
    actor.SetMapper(mapper)
    actor.GetProperty().SetColor(*color)
    actor.GetProperty().SetAmbient(0.12)
    actor.GetProperty().SetDiffuse(0.82)
    return actor
