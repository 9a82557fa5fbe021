# SPDX-License-Identifier: Apache-2.0
"""Draws a scene of one step off-screen by VTK. The window serves a picture, a movie and a browser alike."""

from __future__ import annotations

import dataclasses
import operator

import numpy as np
import vtkmodules.vtkInteractionStyle
import vtkmodules.vtkRenderingFreeType
import vtkmodules.vtkRenderingOpenGL2
import vtkmodules.vtkRenderingVolumeOpenGL2  # noqa: F401 - these four register what the classes below are made of
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkRenderingAnnotation import vtkScalarBarActor
from vtkmodules.vtkRenderingCore import (
    vtkProp,
    vtkRenderer,
    vtkRenderWindow,
    vtkTextActor,
    vtkTextProperty,
    vtkWindowToImageFilter,
)

from forebay import Step
from forebay.viz.levels import first_field
from forebay.viz.scenes.colors import ColorScale
from forebay.viz.scenes.description import Camera, OutlineLayer, Quality, SceneDescription, SliceLayer
from forebay.viz.scenes.layers import DrawnLayer, drawn
from forebay.viz.scenes.marks import TEXT_HEIGHT, CornerAxes
from forebay.viz.scenes.step_fields import StepFields

__all__ = ["ScenePicture"]

_TEXT = (0.86, 0.89, 0.94)
#: Steps of one swing of the camera.
_SWAY_STEPS = 240


class ScenePicture:
    """An off-screen window with a scene; make it, use it and drop it in one thread.

    A picture depends on its step and the scene alone, so a step that is drawn again looks the same.

    Parameters
    ----------
    scene : SceneDescription
        What is drawn. Without layers: a slice through the first field of the first step.
    """

    def __init__(self, scene: SceneDescription) -> None:
        self._scene = scene
        self._renderer = vtkRenderer()
        self._renderer.SetBackground(*scene.background)
        self.window = vtkRenderWindow()
        self.window.SetOffScreenRendering(1)
        self.window.SetMultiSamples(0)  # the smoothing below costs half as much without a graphics card
        self.window.SetSize(*scene.size)
        self.window.AddRenderer(self._renderer)
        if scene.quality is Quality.FULL:
            self._renderer.UseFXAAOn()
        self._title = self._add_text(0.03, 0.935, 0.030, bold=True)
        self._caption = self._add_text(0.03, 0.935, 0.025, bold=False)
        if scene.axes:
            self._show_axes()
        self._layers: list[DrawnLayer] = []
        self._shown_props: list[vtkProp] = []
        self._bar_title: vtkTextActor | None = None
        self._placed: tuple[object] | None = None
        self._settled = False  # a picture with something translucent has been drawn

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._scene.size

    def show(self, step: Step) -> None:
        """Puts a step into the window; the camera is placed for the first one, and when the grid changes.

        Raises
        ------
        InvalidArgumentError
            The step lacks a variable of a layer, or it has not the shape that the layer needs.
        """
        if not self._layers:
            self._build(step)
        fields = StepFields(step, self._scene)
        for layer in self._layers:
            layer.show(fields)
        self._show_props()
        units = fields.units("time")
        self._caption.SetInput(f"step {fields.number}     time {fields.time:g} {units}".rstrip())
        scale = self._bar_scale
        if self._bar_title is not None and scale is not None:
            units = fields.units(scale.variable)
            self._bar_title.SetInput((self._scene.label or scale.variable) + (f", {units}" if units else ""))
        grid = fields.grid
        geometry = None if grid is None else (grid.shape, grid.spacing, grid.origin)
        if self._placed is None or geometry != self._placed[0] or self._scene.camera.moves:
            self._place_camera(fields)
            self._placed = (geometry,)

    def render(self) -> NDArray[np.uint8]:
        """The picture, shape (height, width, 3), first row on top."""
        if not self._settled and any(prop.HasTranslucentPolygonalGeometry() for prop in self._shown_props):
            # Beside what is translucent, VTK sets the numbers of a colour bar differently in the first picture.
            self.window.Render()
            self._settled = True
        self.window.Render()
        grab = vtkWindowToImageFilter()
        grab.SetInput(self.window)
        grab.ReadFrontBufferOff()
        grab.ShouldRerenderOff()
        grab.Update()
        flat = vtk_to_numpy(grab.GetOutput().GetPointData().GetScalars())
        width, height = self.window.GetSize()
        picture: NDArray[np.uint8] = flat.reshape(height, width, 3)[::-1].copy()
        return picture

    @property
    def _bar_scale(self) -> ColorScale | None:
        """Of the first layer that is coloured by values."""
        return next((layer.scale for layer in self._layers if layer.scale is not None), None)

    def _build(self, step: Step) -> None:
        """The layers, when the first step says what there is."""
        if not self._scene.layers:
            self._scene = _with_default_layers(self._scene, step)
        if self._scene.camera == Camera() and self._scene.needs_grid and first_field(step)[1]:
            # An image is seen from above.
            self._scene = dataclasses.replace(self._scene, camera=Camera((0.0, 0.0, 1.0), (0.0, 1.0, 0.0)))
        self._title.SetInput(self._scene.title)
        self._caption.SetPosition(0.03, 0.935 - (0.046 if self._scene.title else 0.0))
        self._layers = [drawn(layer, self._scene) for layer in self._scene.layers]
        self._add_color_bar()

    def _show_props(self) -> None:
        """All in the order of the layers, whichever are new: a picture does not depend on what was drawn before."""
        props = [prop for layer in self._layers for prop in layer.props]
        if len(props) == len(self._shown_props) and all(map(operator.is_, props, self._shown_props)):
            return
        for prop in self._shown_props:
            self._renderer.RemoveViewProp(prop)
        for prop in props:
            self._renderer.AddViewProp(prop)
        self._shown_props = props

    def _place_camera(self, fields: StepFields) -> None:
        camera = self._renderer.GetActiveCamera()
        low, high = fields.corners()
        middle = (low + high) / 2
        up = np.array(self._scene.camera.up)
        swing = np.radians(self._scene.camera.sway) * np.sin(2.0 * np.pi * fields.number / _SWAY_STEPS)
        camera.SetFocalPoint(*middle)
        direction, zoom = self._scene.camera.at(fields.number)
        camera.SetPosition(*(middle + _turned(np.array(direction), up, swing)))
        camera.SetViewUp(*up)
        camera.SetViewAngle(30.0)
        self._renderer.ResetCamera(low[0], high[0], low[1], high[1], low[2], high[2])
        camera.Zoom(zoom)
        self._renderer.ResetCameraClippingRange()
        if self._scene.shadows and self._scene.quality is Quality.FULL:
            reach = 0.5 * float((high - low).min())
            self._renderer.UseSSAOOn()
            self._renderer.SetSSAORadius(0.35 * reach)
            self._renderer.SetSSAOBias(0.01 * reach)
            self._renderer.SetSSAOKernelSize(16)
            self._renderer.SSAOBlurOn()

    def _show_axes(self) -> None:
        corner = CornerAxes(TEXT_HEIGHT * self._scene.size[1])
        self.window.SetNumberOfLayers(2)
        self.window.AddRenderer(corner.renderer)
        # Whoever moves the camera, also a mouse.
        camera = self._renderer.GetActiveCamera
        self._renderer.AddObserver("StartEvent", lambda *_: corner.look_from(camera()))

    def _add_color_bar(self) -> None:
        scale = self._bar_scale
        if scale is None:
            return
        bar = vtkScalarBarActor()
        bar.SetLookupTable(scale.table)
        bar.SetOrientationToHorizontal()
        bar.SetPosition(0.03, 0.035)
        bar.SetPosition2(0.32, 0.055)
        bar.SetBarRatio(0.4)
        bar.SetNumberOfLabels(3)
        bar.SetLabelFormat("{:.3g}")
        bar.UnconstrainedFontSizeOn()
        self._style(bar.GetLabelTextProperty(), 0.022, bold=False)
        self._bar_title = self._add_text(0.03, 0.105, 0.024, bold=False)
        self._renderer.AddViewProp(bar)

    def _add_text(self, x: float, y: float, size: float, *, bold: bool) -> vtkTextActor:
        text = vtkTextActor()
        text.GetPositionCoordinate().SetCoordinateSystemToNormalizedViewport()
        text.SetPosition(x, y)
        self._style(text.GetTextProperty(), size, bold=bold)
        self._renderer.AddViewProp(text)
        return text

    def _style(self, text: vtkTextProperty, size: float, *, bold: bool) -> None:
        text.SetFontFamilyToArial()
        text.SetFontSize(round(size * self._scene.size[1]))
        text.SetColor(*_TEXT)
        text.SetBold(bold)
        text.SetItalic(False)
        text.SetShadow(False)


def _turned(direction: NDArray[np.float64], axis: NDArray[np.float64], angle: float) -> NDArray[np.float64]:
    """A vector turned about an axis, by the formula of Rodrigues."""
    unit = axis / np.linalg.norm(axis)
    turned: NDArray[np.float64] = (
        direction * np.cos(angle)
        + np.cross(unit, direction) * np.sin(angle)
        + unit * (unit @ direction) * (1 - np.cos(angle))
    )
    return turned


def _with_default_layers(scene: SceneDescription, step: Step) -> SceneDescription:
    """A slice through the first field of a step, in the edges of its grid."""
    name, _ = first_field(step)
    title = scene.title or str(step.address).partition("@")[0]
    return dataclasses.replace(scene, layers=(SliceLayer(name), OutlineLayer()), title=title)
