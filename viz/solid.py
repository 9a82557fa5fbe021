# SPDX-License-Identifier: Apache-2.0
"""The solid with a wedge cut out of it: the quarter towards the viewer is left open, so that one sees inside."""

from __future__ import annotations

import numpy as np
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonDataModel import vtkImageData, vtkImplicitBoolean, vtkPlane, vtkPolyData
from vtkmodules.vtkFiltersCore import vtkAppendPolyData, vtkClipPolyData, vtkFlyingEdges3D, vtkTubeFilter
from vtkmodules.vtkFiltersSources import vtkRegularPolygonSource, vtkSphereSource

from forebay.viz.fields import FlowFields

__all__ = ["end_rings", "solid_surface"]


def solid_surface(fields: FlowFields) -> vtkPolyData:
    """Surface of the solid without the quarter of larger x and y.

    Spheres are drawn as such if the attributes name them; any other solid as the surface of its cells, without
    the wall around a cylinder.
    """
    if len(fields.sphere_centres):
        return _spheres(fields)
    return _clipped(_surface_of_cells(fields), fields)


def end_rings(fields: FlowFields) -> vtkPolyData:
    """A ring around each end of the tube."""
    width, height, length = fields.extent
    rings = vtkAppendPolyData()
    for z in (0.0, length):
        circle = vtkRegularPolygonSource()
        circle.SetCenter(0.5 * width, 0.5 * height, z)
        circle.SetNormal(0.0, 0.0, 1.0)
        circle.SetRadius(fields.outer_radius + 0.3 * fields.spacing)
        circle.SetNumberOfSides(128)
        circle.GeneratePolygonOff()
        tube = vtkTubeFilter()
        tube.SetInputConnection(circle.GetOutputPort())
        tube.SetRadius(0.015 * fields.outer_radius)
        tube.SetNumberOfSides(12)
        rings.AddInputConnection(tube.GetOutputPort())
    rings.Update()
    surface: vtkPolyData = rings.GetOutput()
    return surface


def _outside_wedge(fields: FlowFields) -> vtkImplicitBoolean:
    """Negative where something stays."""
    width, height, _ = fields.extent
    union = vtkImplicitBoolean()
    union.SetOperationTypeToUnion()
    for normal in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)):
        plane = vtkPlane()
        plane.SetOrigin(0.5 * width, 0.5 * height, 0.0)
        plane.SetNormal(*normal)
        union.AddFunction(plane)
    return union


def _clipped(whole: vtkPolyData, fields: FlowFields) -> vtkPolyData:
    clip = vtkClipPolyData()
    clip.SetInputData(whole)
    clip.SetClipFunction(_outside_wedge(fields))
    clip.InsideOutOn()
    clip.Update()
    surface: vtkPolyData = clip.GetOutput()
    return surface


def _spheres(fields: FlowFields) -> vtkPolyData:
    width, height, _ = fields.extent
    radius = fields.sphere_radius
    together = vtkAppendPolyData()
    for centre in fields.sphere_centres:
        dx, dy = centre[0] - 0.5 * width, centre[1] - 0.5 * height
        if min(dx, dy) >= radius:
            continue
        source = vtkSphereSource()
        source.SetCenter(*centre)
        source.SetRadius(radius)
        source.SetThetaResolution(48)
        source.SetPhiResolution(32)
        source.Update()
        cut = max(-radius, min(dx, dy)) > -radius
        together.AddInputData(_clipped(source.GetOutput(), fields) if cut else source.GetOutput())
    together.Update()
    surface: vtkPolyData = together.GetOutput()
    return surface


def _surface_of_cells(fields: FlowFields) -> vtkPolyData:
    share = fields.solid.astype(np.float32)
    if fields.cylinder_radius:
        _, ny, nx = share.shape
        y, x = np.ogrid[0.5:ny, 0.5:nx]
        share[:, np.hypot(x - 0.5 * nx, y - 0.5 * ny) * fields.spacing >= fields.cylinder_radius] = 0
    for axis in range(3):
        # A short blur turns the stairs of the cells into a surface.
        before, after = np.roll(share, 1, axis), np.roll(share, -1, axis)
        share = 0.25 * before + 0.5 * share + 0.25 * after
    image = vtkImageData()
    image.SetDimensions(*reversed(share.shape))
    image.SetSpacing(fields.spacing, fields.spacing, fields.spacing)
    image.SetOrigin(0.5 * fields.spacing, 0.5 * fields.spacing, 0.5 * fields.spacing)
    image.GetPointData().SetScalars(numpy_to_vtk(share.ravel(), deep=True))
    contour = vtkFlyingEdges3D()
    contour.SetInputData(image)
    contour.SetValue(0, 0.5)
    contour.ComputeNormalsOn()
    contour.Update()
    surface: vtkPolyData = contour.GetOutput()
    return surface
