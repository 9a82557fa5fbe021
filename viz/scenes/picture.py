# SPDX-License-Identifier: Apache-2.0
"""Draws a scene of one step off-screen by VTK. The window serves a picture, a movie and a browser alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import vtkmodules.vtkInteractionStyle
import vtkmodules.vtkRenderingFreeType
import vtkmodules.vtkRenderingOpenGL2  # noqa: F401 - these three register what the classes below are made of
from matplotlib import colormaps
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonCore import vtkLookupTable
from vtkmodules.vtkCommonDataModel import vtkImageData
from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D
from vtkmodules.vtkFiltersSources import vtkOutlineSource
from vtkmodules.vtkRenderingAnnotation import vtkScalarBarActor
from vtkmodules.vtkRenderingCore import (
    vtkActor,
    vtkImageSlice,
    vtkImageSliceMapper,
    vtkPolyDataMapper,
    vtkRenderer,
    vtkRenderWindow,
    vtkTextActor,
    vtkTextProperty,
    vtkWindowToImageFilter,
)

from forebay.errors import InvalidArgumentError
from forebay.viz.grid import Grid
from forebay.viz.scenes.description import Layer, OutlineLayer, SceneDescription, SliceLayer, SurfaceLayer

__all__ = ["ScenePicture"]

_TEXT = (0.86, 0.89, 0.94)
_AXES = "xyz"


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
        self._layers = [_drawn(layer) for layer in scene.layers]
        for drawn in self._layers:
            self._renderer.AddViewProp(drawn.prop)
        self._add_color_bar()
        self._placed: tuple[Any, ...] | None = None

    @property
    def variables(self) -> list[str]:
        """What the scene shows."""
        return self._scene.variables

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._scene.size

    def show(self, grid: Grid, step: int) -> None:
        """Puts a step into the window; the camera is placed for the first one, and when the grid changes.

        Raises
        ------
        InvalidArgumentError
            A layer's variable is not on the grid.
        """
        images: dict[str, vtkImageData] = {}
        for name in self._scene.variables:
            if name not in grid.fields:
                reason = grid.left_out.get(name, "the step does not have it")
                raise InvalidArgumentError(f"the scene shows {name!r}, which is not on the grid: {reason}")
            images[name] = _image_of(grid, name)
        for drawn in self._layers:
            drawn.show(grid, images)
        self._caption.SetInput(f"step {step}     time {grid.time:g}")
        geometry = (grid.shape, grid.spacing, grid.origin)
        if geometry != self._placed:
            self._place_camera(grid)
            self._placed = geometry

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

    def _place_camera(self, grid: Grid) -> None:
        camera = self._renderer.GetActiveCamera()
        low, high = _corners(grid)
        middle = (low + high) / 2
        camera.SetFocalPoint(*middle)
        camera.SetPosition(*(middle + np.array(self._scene.camera.direction)))
        camera.SetViewUp(*self._scene.camera.up)
        self._renderer.ResetCamera(low[0], high[0], low[1], high[1], low[2], high[2])
        camera.Zoom(self._scene.camera.zoom)
        self._renderer.ResetCameraClippingRange()

    def _add_color_bar(self) -> None:
        """Of the first slice."""
        sliced = next((drawn for drawn in self._layers if isinstance(drawn, _Slice)), None)
        if sliced is None:
            return
        bar = vtkScalarBarActor()
        bar.SetLookupTable(sliced.table)
        bar.SetOrientationToHorizontal()
        bar.SetPosition(0.03, 0.03)
        bar.SetPosition2(0.32, 0.055)
        bar.SetBarRatio(0.4)
        bar.SetNumberOfLabels(3)
        bar.SetLabelFormat("{:.3g}")
        bar.UnconstrainedFontSizeOn()
        self._style(bar.GetLabelTextProperty(), 0.022, bold=False)
        self._add_text(0.03, 0.095, 0.024, bold=False).SetInput(sliced.variable)
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


class _Slice:
    """A slice layer in the window."""

    def __init__(self, layer: SliceLayer) -> None:
        self._layer = layer
        self.variable = layer.variable
        self.table = _lookup_table(layer.colors)
        self._mapper = vtkImageSliceMapper()
        self._mapper.SetOrientation(_AXES.index(layer.axis))
        self.prop = vtkImageSlice()
        self.prop.SetMapper(self._mapper)
        self.prop.GetProperty().SetLookupTable(self.table)
        self.prop.GetProperty().UseLookupTableScalarRangeOn()
        self.prop.GetProperty().SetInterpolationTypeToLinear()

    def show(self, grid: Grid, images: dict[str, vtkImageData]) -> None:
        image = images[self.variable]
        self._mapper.SetInputData(image)
        cells = grid.shape[2 - _AXES.index(self._layer.axis)]
        self._mapper.SetSliceNumber(round(self._layer.position * (cells - 1)))
        self.table.SetTableRange(*(self._layer.range or _range_of(image)))


class _Surface:
    """An iso-surface layer in the window."""

    def __init__(self, layer: SurfaceLayer) -> None:
        self._variable = layer.variable
        self._contour = vtkFlyingEdges3D()
        self._contour.SetValue(0, layer.value)
        self._contour.ComputeScalarsOff()
        self._contour.ComputeNormalsOn()
        mapper = vtkPolyDataMapper()
        mapper.SetInputConnection(self._contour.GetOutputPort())
        mapper.ScalarVisibilityOff()
        self.prop = vtkActor()
        self.prop.SetMapper(mapper)
        self.prop.GetProperty().SetColor(*layer.color)
        self.prop.GetProperty().SetOpacity(layer.opacity)
        self.prop.GetProperty().SetSpecular(0.25)

    def show(self, _grid: Grid, images: dict[str, vtkImageData]) -> None:
        self._contour.SetInputData(images[self._variable])


class _Outline:
    """The edges of the grid in the window."""

    def __init__(self, layer: OutlineLayer) -> None:
        self._source = vtkOutlineSource()
        mapper = vtkPolyDataMapper()
        mapper.SetInputConnection(self._source.GetOutputPort())
        self.prop = vtkActor()
        self.prop.SetMapper(mapper)
        self.prop.GetProperty().SetColor(*layer.color)
        self.prop.GetProperty().SetLighting(False)

    def show(self, grid: Grid, _images: dict[str, vtkImageData]) -> None:
        low, high = _corners(grid)
        self._source.SetBounds(low[0], high[0], low[1], high[1], low[2], high[2])


def _drawn(layer: Layer) -> _Slice | _Surface | _Outline:
    if isinstance(layer, SliceLayer):
        return _Slice(layer)
    if isinstance(layer, SurfaceLayer):
        return _Surface(layer)
    return _Outline(layer)


def _corners(grid: Grid) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low = np.array(grid.origin)
    return low, low + np.array(grid.spacing) * np.array(grid.shape[::-1])


def _image_of(grid: Grid, name: str) -> vtkImageData:
    """A variable as values at the middles of the cells; shares memory with it where it is contiguous."""
    field = grid.fields[name]
    if field.ndim == 4:
        field = np.sqrt(np.einsum("zyxc,zyxc->zyx", field, field, dtype=np.float64))
    flat = np.ascontiguousarray(field).reshape(-1)
    image = vtkImageData()
    image.SetDimensions(*grid.shape[::-1])
    image.SetSpacing(*grid.spacing)
    image.SetOrigin(*(low + side / 2 for low, side in zip(grid.origin, grid.spacing, strict=True)))
    scalars = numpy_to_vtk(flat, deep=0)
    scalars.SetName(name)
    image.GetPointData().SetScalars(scalars)
    return image


def _range_of(image: vtkImageData) -> tuple[float, float]:
    """Smallest and largest finite value; apart where they are one, so that there is a range."""
    low, high = image.GetPointData().GetScalars().GetFiniteRange(0)
    if not low <= high:
        return 0.0, 1.0  # nothing but NaN
    return (low, high) if low < high else (low, low + max(abs(low), 1.0) * 1e-6)


def _lookup_table(colors: str) -> vtkLookupTable:
    table = vtkLookupTable()
    table.SetNumberOfTableValues(256)
    for index, color in enumerate(colormaps[colors](np.linspace(0.0, 1.0, 256))):
        table.SetTableValue(index, *color)
    table.SetNanColor(0.25, 0.25, 0.28, 1.0)
    return table
