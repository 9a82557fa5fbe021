# SPDX-License-Identifier: Apache-2.0
"""The layers of a scene in VTK's terms: each has props, takes a step, and may have a colour scale."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonCore import vtkPoints
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

from forebay.viz.scenes.arrow import DrawnArrow
from forebay.viz.scenes.colors import ColorScale
from forebay.viz.scenes.cutaway import DrawnCutaway
from forebay.viz.scenes.description import (
    ArrowLayer,
    CutawayLayer,
    GlyphLayer,
    Layer,
    OutlineLayer,
    PointLayer,
    Quality,
    RulerLayer,
    SceneDescription,
    SliceLayer,
    StreakLayer,
    StreamlineLayer,
    SurfaceLayer,
    VolumeLayer,
)
from forebay.viz.scenes.ruler import DrawnRuler
from forebay.viz.scenes.step_fields import StepFields
from forebay.viz.scenes.streaks import DrawnStreaks

__all__ = ["DrawnLayer", "drawn"]

_AXES = "xyz"


class DrawnLayer(Protocol):
    """A layer in the window."""

    #: What is drawn. A layer that makes others for a step replaces the list.
    props: list[vtkProp]
    scale: ColorScale | None

    def show(self, fields: StepFields) -> None:
        """Puts a step into the layer."""


class _Slice:
    def __init__(self, layer: SliceLayer, scene: SceneDescription) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        self._mapper = vtkImageSliceMapper()
        self._mapper.SetOrientation(_AXES.index(layer.axis))
        self._slice = vtkImageSlice()
        self._slice.SetMapper(self._mapper)
        self._slice.GetProperty().SetLookupTable(self.scale.table)
        self._slice.GetProperty().UseLookupTableScalarRangeOn()
        self._slice.GetProperty().SetInterpolationTypeToLinear()
        self.props = [self._slice]

    def show(self, fields: StepFields) -> None:
        image = fields.scalars(self._layer.variable)
        self._mapper.SetInputData(image)
        cells = image.GetDimensions()[_AXES.index(self._layer.axis)]
        self._mapper.SetSliceNumber(round(self._layer.position * (cells - 1)))
        self.scale.fit(_values(image))


class _Surface:
    def __init__(self, layer: SurfaceLayer, scene: SceneDescription) -> None:
        self.scale = None
        self._variable = layer.variable
        self._contour = vtkFlyingEdges3D()
        self._contour.SetValue(0, layer.value)
        self._contour.ComputeScalarsOff()
        self._contour.SetComputeNormals(scene.quality is Quality.FULL)
        actor = _actor(self._contour)
        self.props = [actor]
        actor.GetProperty().SetColor(*layer.color)
        actor.GetProperty().SetOpacity(layer.opacity)
        actor.GetProperty().SetSpecular(0.25)

    def show(self, fields: StepFields) -> None:
        self._contour.SetInputData(fields.scalars(self._variable))


class _Volume:
    def __init__(self, layer: VolumeLayer, scene: SceneDescription) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        self._mapper = vtkFixedPointVolumeRayCastMapper()
        self._color, self._opacity = vtkColorTransferFunction(), vtkPiecewiseFunction()
        self._volume = vtkVolume()
        self._volume.SetMapper(self._mapper)
        look = self._volume.GetProperty()
        look.SetColor(self._color)
        look.SetScalarOpacity(self._opacity)
        look.SetInterpolationTypeToLinear()
        self.props = [self._volume]

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
        self._volume.GetProperty().SetScalarOpacityUnitDistance(float((corners[1] - corners[0]).min()) / 4)
        # The ray caster knows no NaN: where there is no number there is nothing.
        if not np.isfinite(values := _values(image)).all():
            image = _with_scalars(image, np.where(np.isfinite(values), values, low), self._layer.variable)
        self._mapper.SetInputData(image)


class _Streamlines:
    def __init__(self, layer: StreamlineLayer, scene: SceneDescription) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        self._tracer = vtkStreamTracer()
        self._tracer.SetIntegratorTypeToRungeKutta45()
        self._tracer.SetIntegrationDirectionToBoth()
        self._tracer.SetMaximumNumberOfSteps(2000)
        self._seed_count = layer.seeds if scene.quality is Quality.FULL else max(layer.seeds // 4, 1)
        self._tracer.SetComputeVorticity(False)
        actor = _actor(self._tracer, self.scale, layer.variable)
        self.props = [actor]
        actor.GetProperty().SetLineWidth(layer.width)
        actor.GetProperty().SetLighting(False)

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
        first = min(max(round((self._seed_count * sides[0] / sides[1]) ** 0.5), 1), self._seed_count)
        counts = (first, max(round(self._seed_count / first), 1))
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
    def __init__(self, layer: GlyphLayer, scene: SceneDescription) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        arrow = vtkArrowSource()
        full = scene.quality is Quality.FULL
        arrow.SetTipResolution(12 if full else 6)
        arrow.SetShaftResolution(8 if full else 3)
        self._glyphs = vtkGlyph3D()
        self._glyphs.SetSourceConnection(arrow.GetOutputPort())
        self._glyphs.SetVectorModeToUseVector()
        self._glyphs.SetScaleModeToScaleByVector()
        self._glyphs.SetColorModeToColorByVector()
        actor = _actor(self._glyphs, self.scale)
        self.props = [actor]

    def show(self, fields: StepFields) -> None:
        image = fields.vectors(self._layer.variable, self._layer.every)
        self._glyphs.SetInputData(image)
        lengths = _values(fields.scalars(self._layer.variable))
        longest = float(np.nanmax(lengths, initial=0.0)) if np.isfinite(lengths).any() else 0.0
        apart = min(image.GetSpacing())
        self._glyphs.SetScaleFactor(self._layer.scale * apart / longest if longest > 0 else 0.0)
        self.scale.fit(lengths)


class _Points:
    def __init__(self, layer: PointLayer, scene: SceneDescription) -> None:
        self._layer = layer
        self.scale = ColorScale(layer.variable, layer.colors, layer.range) if layer.variable else None
        self._vertices = vtkVertexGlyphFilter()
        actor = _actor(self._vertices, self.scale)
        self.props = [actor]
        look = actor.GetProperty()
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
    def __init__(self, layer: OutlineLayer, scene: SceneDescription) -> None:
        self.scale = None
        self._source = vtkOutlineSource()
        actor = _actor(self._source)
        self.props = [actor]
        actor.GetProperty().SetColor(*layer.color)
        actor.GetProperty().SetLighting(False)

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
    CutawayLayer: DrawnCutaway,
    StreakLayer: DrawnStreaks,
    ArrowLayer: DrawnArrow,
    RulerLayer: DrawnRuler,
}


def drawn(layer: Layer, scene: SceneDescription) -> DrawnLayer:
    """The layer for a window."""
    made: DrawnLayer = _DRAWN[type(layer)](layer, scene)
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
