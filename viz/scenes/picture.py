# SPDX-License-Identifier: Apache-2.0
"""Draws a scene of one step off-screen by VTK. The window serves a picture, a movie and a browser alike."""

from __future__ import annotations

import numpy as np
import vtkmodules.vtkInteractionStyle
import vtkmodules.vtkRenderingFreeType
import vtkmodules.vtkRenderingOpenGL2
import vtkmodules.vtkRenderingVolumeOpenGL2  # noqa: F401 - these four register what the classes below are made of
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkRenderingAnnotation import vtkScalarBarActor
from vtkmodules.vtkRenderingCore import (
    vtkRenderer,
    vtkRenderWindow,
    vtkTextActor,
    vtkTextProperty,
    vtkWindowToImageFilter,
)

from forebay import Step
from forebay.viz.scenes.description import SceneDescription
from forebay.viz.scenes.layers import drawn
from forebay.viz.scenes.step_fields import StepFields

__all__ = ["ScenePicture"]

_TEXT = (0.86, 0.89, 0.94)


class ScenePicture:
    """An off-screen window with a scene; make it, use it and drop it in one thread.

    Parameters
    ----------
    scene : SceneDescription
        What is drawn.
    """

    def __init__(self, scene: SceneDescription) -> None:
        self._scene = scene
        self._renderer = vtkRenderer()
        self._renderer.SetBackground(*scene.background)
        self.window = vtkRenderWindow()
        self.window.SetOffScreenRendering(1)
        self.window.SetMultiSamples(0)
        self.window.SetSize(*scene.size)
        self.window.AddRenderer(self._renderer)
        self._renderer.UseFXAAOn()
        self._add_text(0.03, 0.935, 0.032, bold=True).SetInput(scene.title)
        self._caption = self._add_text(0.03, 0.935 - (0.048 if scene.title else 0.0), 0.026, bold=False)
        self._layers = [drawn(layer) for layer in scene.layers]
        for layer in self._layers:
            self._renderer.AddViewProp(layer.prop)
        self._add_color_bar()
        self._placed: tuple[object] | None = None

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
        fields = StepFields(step, self._scene)
        for layer in self._layers:
            layer.show(fields)
        self._caption.SetInput(f"step {fields.number}     time {fields.time:g}")
        grid = fields.grid
        geometry = None if grid is None else (grid.shape, grid.spacing, grid.origin)
        if self._placed is None or geometry != self._placed[0]:
            self._place_camera(fields)
            self._placed = (geometry,)

    def render(self) -> NDArray[np.uint8]:
        """The picture, shape (height, width, 3), first row on top."""
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

    def _place_camera(self, fields: StepFields) -> None:
        camera = self._renderer.GetActiveCamera()
        low, high = fields.corners()
        middle = (low + high) / 2
        camera.SetFocalPoint(*middle)
        camera.SetPosition(*(middle + np.array(self._scene.camera.direction)))
        camera.SetViewUp(*self._scene.camera.up)
        self._renderer.ResetCamera(low[0], high[0], low[1], high[1], low[2], high[2])
        camera.Zoom(self._scene.camera.zoom)
        self._renderer.ResetCameraClippingRange()

    def _add_color_bar(self) -> None:
        """Of the first layer that is coloured by values."""
        scale = next((layer.scale for layer in self._layers if layer.scale is not None), None)
        if scale is None:
            return
        bar = vtkScalarBarActor()
        bar.SetLookupTable(scale.table)
        bar.SetOrientationToHorizontal()
        bar.SetPosition(0.06, 0.03)
        bar.SetPosition2(0.32, 0.055)
        bar.SetBarRatio(0.4)
        bar.SetNumberOfLabels(3)
        bar.SetLabelFormat("{:.3g}")
        bar.UnconstrainedFontSizeOn()
        self._style(bar.GetLabelTextProperty(), 0.022, bold=False)
        self._add_text(0.06, 0.095, 0.024, bold=False).SetInput(scale.title)
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
