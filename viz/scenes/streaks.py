# SPDX-License-Identifier: Apache-2.0
"""The layer ``streaks``: they run along stream lines like comets, thicker towards the head; each step moves them on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk, numpy_to_vtkIdTypeArray, vtk_to_numpy
from vtkmodules.vtkCommonCore import vtkIdTypeArray, vtkPoints
from vtkmodules.vtkCommonDataModel import vtkCellArray, vtkPolyData
from vtkmodules.vtkFiltersCore import vtkTubeFilter
from vtkmodules.vtkFiltersFlowPaths import vtkStreamTracer
from vtkmodules.vtkRenderingCore import vtkActor, vtkPolyDataMapper, vtkProp

from forebay.viz.scenes.colors import ColorScale
from forebay.viz.scenes.description import Quality, SceneDescription, StreakLayer
from forebay.viz.scenes.step_fields import StepFields

__all__ = ["DrawnStreaks"]

_GOLDEN = 0.6180339887498949
_DUTY = 0.45  # share of a line that is covered by streaks
_PHASE_PER_STEP = 0.05
_PERIOD_CELLS = 40.0  # distance of two streaks on a line at full speed


class DrawnStreaks:
    """One actor. Where a streak is depends on the step's number and field alone: a frame drawn again looks the same."""

    def __init__(self, layer: StreakLayer, scene: SceneDescription) -> None:
        full = scene.quality is Quality.FULL
        self._layer = layer
        self._seed_count = layer.seeds if full else max(layer.seeds // 4, 1)
        self._sides = 6 if full else 3
        #: Between two points of a line, in cells.
        self._stride = 0.5 if full else 1.0
        self._unit = 1.0
        self.scale = ColorScale(layer.variable, layer.colors, layer.range)
        self._mapper = vtkPolyDataMapper()
        self._mapper.SetLookupTable(self.scale.table)
        self._mapper.UseLookupTableScalarRangeOn()
        self._mapper.SetScalarModeToUsePointFieldData()
        self._mapper.SelectColorArray("speed")
        actor = vtkActor()
        actor.SetMapper(self._mapper)
        surface = actor.GetProperty()
        surface.SetAmbient(0.45)
        surface.SetDiffuse(0.65)
        surface.SetSpecular(0.2)
        self.props: list[vtkProp] = [actor]

    def show(self, fields: StepFields) -> None:
        """Lays the streaks of a step; see :class:`forebay.viz.scenes.layers.DrawnLayer`."""
        self._unit = fields.cell
        velocity = fields.vector_field(self._layer.variable)
        speed = fields.magnitude(self._layer.variable)
        _, top = self.scale.fit_from_zero(speed[speed > 0])
        fastest = float(np.nanmax(speed, initial=0.0))
        self._mapper.SetInputData(vtkPolyData())
        if not 1e-12 <= fastest < np.inf or top <= 0:
            return
        lines = self._stream_lines(fields, np.nan_to_num(velocity), np.nan_to_num(speed), fastest)
        if lines.GetNumberOfLines() == 0:
            return
        tube = vtkTubeFilter()
        tube.SetInputData(self._streaks(lines, fields.number, top))
        tube.SetVaryRadiusToVaryRadiusByAbsoluteScalar()
        tube.SetNumberOfSides(self._sides)
        tube.CappingOn()
        tube.Update()
        self._mapper.SetInputData(tube.GetOutput())

    def _stream_lines(
        self, fields: StepFields, velocity: NDArray[Any], speed: NDArray[Any], fastest: float
    ) -> vtkPolyData:
        image = fields.image()
        vectors = numpy_to_vtk(np.ascontiguousarray(velocity).reshape(-1, 3))
        vectors.SetName("velocity")
        image.GetPointData().SetVectors(vectors)
        scalars = numpy_to_vtk(np.ascontiguousarray(speed).ravel())
        scalars.SetName("speed")
        image.GetPointData().AddArray(scalars)
        tracer = vtkStreamTracer()
        tracer.SetInputData(image)
        tracer.SetSourceData(_seeds(fields, self._seed_count, fields.reach(self._layer.cylinder)))
        tracer.SetIntegratorTypeToRungeKutta4()
        tracer.SetIntegrationDirectionToForward()
        tracer.SetIntegrationStepUnit(vtkStreamTracer.LENGTH_UNIT)
        tracer.SetInitialIntegrationStep(self._stride * self._unit)
        tracer.SetMaximumPropagation(3.0 * fields.extent[2])
        tracer.SetMaximumNumberOfSteps(6 * speed.shape[0])
        tracer.SetTerminalSpeed(1e-4 * fastest)
        tracer.SetComputeVorticity(False)
        tracer.Update()
        lines: vtkPolyData = tracer.GetOutput()
        return lines

    def _streaks(self, lines: vtkPolyData, step: int, top: float) -> vtkPolyData:
        """Pieces of the stream lines, with their radius as scalars."""
        points = lines.GetPointData()
        offsets = vtk_to_numpy(lines.GetLines().GetOffsetsArray())
        order = vtk_to_numpy(lines.GetLines().GetConnectivityArray())
        line = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        seeds = vtk_to_numpy(lines.GetCellData().GetArray("SeedIds"))
        # Time of travel from the seed in periods, with an offset of each line's own.
        period = _PERIOD_CELLS * self._unit / top
        phase = vtk_to_numpy(points.GetArray("IntegrationTime"))[order] / period
        phase += seeds[line] * _GOLDEN - step * _PHASE_PER_STEP
        along = (phase - np.floor(phase)) / _DUTY
        # Slow fluid would be drawn as dark specks; it fades out instead.
        strength = np.clip(vtk_to_numpy(points.GetArray("speed"))[order] / (0.25 * top), 0.0, 1.0) ** 1.5
        radius = np.where(along < 1.0, 0.06 + 0.36 * along, 0.0) * strength

        # What cannot be seen is not drawn: only runs of neighbouring points that can.
        seen = np.concatenate(([False], radius > 0.02, [False]))
        same_line = np.concatenate(([False], line[1:] == line[:-1], [False]))
        begins = np.flatnonzero(seen[1:] & ~(seen[:-1] & same_line))
        ends = np.flatnonzero(seen[:-1] & ~(seen[1:] & same_line))
        lengths = ends - begins
        kept = np.repeat(lengths >= 2, lengths)
        cells = vtkCellArray()
        cells.SetData(
            _ids(np.concatenate(([0], np.cumsum(lengths[lengths >= 2])))), _ids(order[np.flatnonzero(seen[1:-1])[kept]])
        )
        radius_of_point = np.zeros(lines.GetNumberOfPoints(), np.float32)
        radius_of_point[order] = radius * self._unit
        pieces = vtkPolyData()
        pieces.SetPoints(lines.GetPoints())
        pieces.SetLines(cells)
        pieces.GetPointData().AddArray(points.GetArray("speed"))
        scalars = numpy_to_vtk(radius_of_point, deep=True)
        scalars.SetName("radius")
        pieces.GetPointData().SetScalars(scalars)
        return pieces


def _ids(numbers: NDArray[np.int64]) -> vtkIdTypeArray:
    array: vtkIdTypeArray = numpy_to_vtkIdTypeArray(np.ascontiguousarray(numbers, np.int64), deep=True)
    return array


def _seeds(fields: StepFields, count: int, reach: float) -> vtkPolyData:
    """Points spread evenly over the inlet, on a sunflower's spirals."""
    width, height, _ = fields.extent
    numbers = np.arange(count)
    radius = 0.97 * reach * np.sqrt((numbers + 0.5) / count)
    angle = numbers * (2.0 * np.pi * _GOLDEN)
    places = np.stack(
        [0.5 * width + radius * np.cos(angle), 0.5 * height + radius * np.sin(angle), np.full(count, fields.cell)],
        axis=1,
    )
    low, _ = fields.corners()
    points = vtkPoints()
    points.SetData(numpy_to_vtk(places + low, deep=True))
    seeds = vtkPolyData()
    seeds.SetPoints(points)
    return seeds
