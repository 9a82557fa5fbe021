# SPDX-License-Identifier: Apache-2.0
"""The layers of a scene in VTK's terms: each has a prop, takes a step, and may have a colour scale."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonCore import vtkLookupTable, vtkPoints
from vtkmodules.vtkCommonDataModel import vtkPiecewiseFunction, vtkPolyData
from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D, vtkGlyph3D
from vtkmodules.vtkFiltersFlowPaths import vtkStreamTracer
from vtkmodules.vtkFiltersGeneral import vtkVertexGlyphFilter
from vtkmodules.vtkFiltersSources import vtkArrowSource, vtkOutlineSource
from vtkmodules.vtkRenderingCore import (
    vtkActor,
    vtkColorTransferFunction,
    vtkImageSlice,
    vtkImageSliceMapper,
    vtkPolyDataMapper,
    vtkProp,
    vtkVolume,
)
from vtkmodules.vtkRenderingVolume import vtkFixedPointVolumeRayCastMapper

from forebay.viz.scenes.description import (
    GlyphLayer,
    Layer,
    OutlineLayer,
    PointLayer,
    SliceLayer,
    StreamlineLayer,
    SurfaceLayer,
    VolumeLayer,
)
from forebay.viz.scenes.step_fields import StepFields

__all__ = ["ColorScale", "DrawnLayer", "drawn"]

_AXES = "xyz"
_COLORS = 256


class ColorScale:
    """Colours of a layer's values, the same table for the layer and for the bar that explains it."""

    def __init__(self, title: str, colors: str, fixed: tuple[float, float] | None) -> None:
        self.title = title
        self.table = _lookup_table(colors)
        self.colors = colors
        self._fixed = fixed

    def fit(self, values: NDArray[Any]) -> tuple[float, float]:
        """The scale's ends for a step: those that the scene says, or those of the finite values."""
        low, high = self._fixed or _range_of(values)
        self.table.SetTableRange(low, high)
        return low, high


class DrawnLayer(Protocol):
    """A layer in the window."""

    prop: vtkProp
    scale: ColorScale | None

    def show(self, fields: StepFields) -> None:
        """Puts a step into the layer."""


class _Slice:
    def __init__(self, layer: SliceLayer) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        self._mapper = vtkImageSliceMapper()
        self._mapper.SetOrientation(_AXES.index(layer.axis))
        self.prop = vtkImageSlice()
        self.prop.SetMapper(self._mapper)
        self.prop.GetProperty().SetLookupTable(self.scale.table)
        self.prop.GetProperty().UseLookupTableScalarRangeOn()
        self.prop.GetProperty().SetInterpolationTypeToLinear()

    def show(self, fields: StepFields) -> None:
        image = fields.scalars(self._layer.variable)
        self._mapper.SetInputData(image)
        cells = image.GetDimensions()[_AXES.index(self._layer.axis)]
        self._mapper.SetSliceNumber(round(self._layer.position * (cells - 1)))
        self.scale.fit(_values(image))


class _Surface:
    def __init__(self, layer: SurfaceLayer) -> None:
        self.scale = None
        self._variable = layer.variable
        self._contour = vtkFlyingEdges3D()
        self._contour.SetValue(0, layer.value)
        self._contour.ComputeScalarsOff()
        self._contour.ComputeNormalsOn()
        self.prop = _actor(self._contour)
        self.prop.GetProperty().SetColor(*layer.color)
        self.prop.GetProperty().SetOpacity(layer.opacity)
        self.prop.GetProperty().SetSpecular(0.25)

    def show(self, fields: StepFields) -> None:
        self._contour.SetInputData(fields.scalars(self._variable))


class _Volume:
    def __init__(self, layer: VolumeLayer) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        self._mapper = vtkFixedPointVolumeRayCastMapper()
        self._color, self._opacity = vtkColorTransferFunction(), vtkPiecewiseFunction()
        self.prop = vtkVolume()
        self.prop.SetMapper(self._mapper)
        look = self.prop.GetProperty()
        look.SetColor(self._color)
        look.SetScalarOpacity(self._opacity)
        look.SetInterpolationTypeToLinear()

    def show(self, fields: StepFields) -> None:
        image = fields.scalars(self._layer.variable)
        low, high = self.scale.fit(_values(image))
        self._color.RemoveAllPoints()
        for at, rgba in zip(
            np.linspace(low, high, 32), colormaps[self.scale.colors](np.linspace(0, 1, 32)), strict=True
        ):
            self._color.AddRGBPoint(at, *rgba[:3])
        self._opacity.RemoveAllPoints()
        self._opacity.AddPoint(low, self._layer.opacity[0])
        self._opacity.AddPoint(high, self._layer.opacity[1])
        corners = fields.corners()
        self.prop.GetProperty().SetScalarOpacityUnitDistance(float((corners[1] - corners[0]).min()) / 4)
        # The ray caster knows no NaN: where there is no number there is nothing.
        if not np.isfinite(values := _values(image)).all():
            image = _with_scalars(image, np.where(np.isfinite(values), values, low), self._layer.variable)
        self._mapper.SetInputData(image)


class _Streamlines:
    def __init__(self, layer: StreamlineLayer) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        self._tracer = vtkStreamTracer()
        self._tracer.SetIntegratorTypeToRungeKutta45()
        self._tracer.SetIntegrationDirectionToBoth()
        self._tracer.SetMaximumNumberOfSteps(2000)
        self._tracer.SetComputeVorticity(False)
        self.prop = _actor(self._tracer, self.scale, layer.variable)
        self.prop.GetProperty().SetLineWidth(layer.width)
        self.prop.GetProperty().SetLighting(False)

    def show(self, fields: StepFields) -> None:
        image = fields.vectors(self._layer.variable)
        self._tracer.SetInputData(image)
        self._tracer.SetSourceData(self._seeds(image))
        low, high = fields.corners()
        self._tracer.SetMaximumPropagation(float(3 * np.linalg.norm(high - low)))
        self.scale.fit(_values(fields.scalars(self._layer.variable)))

    def _seeds(self, image: Any) -> vtkPolyData:
        """Points of a square lattice in the plane, about as many as the scene says."""
        bounds = np.array(image.GetBounds()).reshape(3, 2)
        axis = _AXES.index(self._layer.axis)
        rest = [other for other in range(3) if other != axis]
        sides = [max(bounds[other, 1] - bounds[other, 0], 1e-30) for other in rest]
        # seeds = n0 * n1 with n0 / n1 as the sides are.
        first = min(max(round((self._layer.seeds * sides[0] / sides[1]) ** 0.5), 1), self._layer.seeds)
        counts = (first, max(round(self._layer.seeds / first), 1))
        places = np.empty((counts[0] * counts[1], 3))
        places[:, axis] = bounds[axis, 0] + self._layer.position * (bounds[axis, 1] - bounds[axis, 0])
        lattice = np.meshgrid(
            *(
                bounds[other, 0] + (np.arange(count) + 0.5) / count * (bounds[other, 1] - bounds[other, 0])
                for other, count in zip(rest, counts, strict=True)
            )
        )
        for other, values in zip(rest, lattice, strict=True):
            places[:, other] = values.reshape(-1)
        return _points(places)


class _Glyphs:
    def __init__(self, layer: GlyphLayer) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        arrow = vtkArrowSource()
        arrow.SetTipResolution(12)
        arrow.SetShaftResolution(8)
        self._glyphs = vtkGlyph3D()
        self._glyphs.SetSourceConnection(arrow.GetOutputPort())
        self._glyphs.SetVectorModeToUseVector()
        self._glyphs.SetScaleModeToScaleByVector()
        self._glyphs.SetColorModeToColorByVector()
        self.prop = _actor(self._glyphs, self.scale)

    def show(self, fields: StepFields) -> None:
        image = fields.vectors(self._layer.variable, self._layer.every)
        self._glyphs.SetInputData(image)
        lengths = _values(fields.scalars(self._layer.variable))
        longest = float(np.nanmax(lengths, initial=0.0)) if np.isfinite(lengths).any() else 0.0
        apart = min(image.GetSpacing())
        self._glyphs.SetScaleFactor(self._layer.scale * apart / longest if longest > 0 else 0.0)
        self.scale.fit(lengths)


class _Points:
    def __init__(self, layer: PointLayer) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range) if layer.variable else None
        self._vertices = vtkVertexGlyphFilter()
        self.prop = _actor(self._vertices, self.scale)
        look = self.prop.GetProperty()
        look.SetColor(*layer.color)
        look.SetPointSize(layer.size)
        look.SetLighting(False)

    def show(self, fields: StepFields) -> None:
        data = _points(fields.particles(self._layer.positions))
        if self.scale is not None:
            values = fields.particles(self._layer.variable)
            data.GetPointData().SetScalars(numpy_to_vtk(values, deep=1))
            self.scale.fit(values)
        self._vertices.SetInputData(data)


class _Outline:
    def __init__(self, layer: OutlineLayer) -> None:
        self.scale = None
        self._source = vtkOutlineSource()
        self.prop = _actor(self._source)
        self.prop.GetProperty().SetColor(*layer.color)
        self.prop.GetProperty().SetLighting(False)

    def show(self, fields: StepFields) -> None:
        low, high = fields.corners()
        self._source.SetBounds(low[0], high[0], low[1], high[1], low[2], high[2])


_DRAWN: dict[type[Layer], Any] = {
    SliceLayer: _Slice,
    SurfaceLayer: _Surface,
    VolumeLayer: _Volume,
    StreamlineLayer: _Streamlines,
    GlyphLayer: _Glyphs,
    PointLayer: _Points,
    OutlineLayer: _Outline,
}


def drawn(layer: Layer) -> DrawnLayer:
    """The layer for a window."""
    made: DrawnLayer = _DRAWN[type(layer)](layer)
    return made


def _actor(source: Any, scale: ColorScale | None = None, field: str = "") -> vtkActor:
    """Draws what a filter makes: in one colour, or by its scalars, or by the length of the vectors ``field``."""
    mapper = vtkPolyDataMapper()
    mapper.SetInputConnection(source.GetOutputPort())
    if scale is None:
        mapper.ScalarVisibilityOff()
    else:
        mapper.SetLookupTable(scale.table)
        mapper.UseLookupTableScalarRangeOn()
        if field:
            mapper.SetScalarModeToUsePointFieldData()
            mapper.SelectColorArray(field)
            scale.table.SetVectorModeToMagnitude()
    actor = vtkActor()
    actor.SetMapper(mapper)
    return actor


def _points(places: NDArray[Any]) -> vtkPolyData:
    points = vtkPoints()
    points.SetData(numpy_to_vtk(np.ascontiguousarray(places, np.float64), deep=1))
    data = vtkPolyData()
    data.SetPoints(points)
    return data


def _values(image: Any) -> NDArray[Any]:
    values: NDArray[Any] = np.asarray(image.GetPointData().GetScalars())
    return values


def _with_scalars(image: Any, values: NDArray[Any], name: str) -> Any:
    other = image.NewInstance()
    other.CopyStructure(image)
    array = numpy_to_vtk(np.ascontiguousarray(values), deep=1)
    array.SetName(name)
    other.GetPointData().SetScalars(array)
    return other


def _range_of(values: NDArray[Any]) -> tuple[float, float]:
    """Smallest and largest finite value; apart where they are one, so that there is a range."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    return (low, high) if low < high else (low, low + max(abs(low), 1.0) * 1e-6)


def _lookup_table(colors: str) -> vtkLookupTable:
    table = vtkLookupTable()
    table.SetNumberOfTableValues(_COLORS)
    for index, color in enumerate(colormaps[colors](np.linspace(0.0, 1.0, _COLORS))):
        table.SetTableValue(index, *color)
    table.SetNanColor(0.25, 0.25, 0.28, 1.0)
    return table
