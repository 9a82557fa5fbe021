# SPDX-License-Identifier: Apache-2.0
"""The solid with a wedge cut out of it: the quarter towards the viewer is left open, so that one sees inside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonDataModel import vtkImageData, vtkImplicitBoolean, vtkPlane, vtkPolyData
from vtkmodules.vtkFiltersCore import vtkAppendPolyData, vtkClipPolyData, vtkFlyingEdges3D, vtkTubeFilter
from vtkmodules.vtkFiltersSources import vtkRegularPolygonSource, vtkSphereSource

from forebay.errors import InvalidArgumentError
from forebay.viz.scenes.description import CutawayLayer, Quality
from forebay.viz.scenes.step_fields import StepFields

__all__ = ["Solid", "end_rings", "solid_surface"]


@dataclass(frozen=True)
class Solid:
    """What does not move: in coordinates whose origin is the lower corner of the grid.

    Attributes
    ----------
    cells : array, shape (nz, ny, nx)
        1 where there is solid.
    spacing : float
        Side of a cell.
    sphere_centres : array, shape (n, 3)
        Centres (x, y, z) of the spheres that the solid consists of; empty: it is drawn from its cells.
    sphere_radius : float
        Their radius.
    cylinder_radius : float
        Radius of the tube around the z axis through the middle of the grid; 0: there is none.
    """

    cells: NDArray[np.uint8]
    spacing: float
    sphere_centres: NDArray[np.float64]
    sphere_radius: float
    cylinder_radius: float

    @classmethod
    def of_step(cls, fields: StepFields, layer: CutawayLayer) -> Solid:
        """The solid of a step; its attributes tell of spheres and tube."""
        centres, radius = fields.numbers(layer.spheres), fields.numbers(layer.radius)
        if centres.size % 3 or (centres.size and radius.size != 1):
            raise InvalidArgumentError(
                f"the attribute {layer.spheres!r} has {centres.size} numbers and {layer.radius!r} {radius.size}; "
                "spheres are three numbers each (x, y, z) and one radius",
                fields.address,
            )
        tube = fields.numbers(layer.cylinder)
        low, _ = fields.corners()
        return cls(
            fields.solid(layer.solid),
            fields.cell,
            centres.reshape(-1, 3) - low,
            float(radius[0]) if centres.size else 0.0,
            float(tube[0]) if tube.size == 1 else 0.0,
        )

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the grid in x, y and z."""
        nz, ny, nx = self.cells.shape
        return nx * self.spacing, ny * self.spacing, nz * self.spacing

    @property
    def outer_radius(self) -> float:
        """How far the picture reaches from the axis."""
        return self.cylinder_radius or 0.5 * min(self.extent[:2])

    def same(self, other: Solid) -> bool:
        """True if what was drawn of the other need not be drawn again."""
        return (
            (self.spacing, self.sphere_radius, self.cylinder_radius)
            == (other.spacing, other.sphere_radius, other.cylinder_radius)
            and np.array_equal(self.sphere_centres, other.sphere_centres)
            and np.array_equal(self.cells, other.cells)
        )


def solid_surface(solid: Solid, quality: Quality) -> vtkPolyData:
    """Surface of the solid without the quarter of larger x and y.

    Spheres are drawn as such if the attributes name them; any other solid as the surface of its cells, without
    the wall around a cylinder.
    """
    if len(solid.sphere_centres):
        return _spheres(solid, quality)
    return _clipped(_surface_of_cells(solid), solid)


def end_rings(solid: Solid) -> vtkPolyData:
    """A ring around each end of the tube."""
    width, height, length = solid.extent
    rings = vtkAppendPolyData()
    for z in (0.0, length):
        circle = vtkRegularPolygonSource()
        circle.SetCenter(0.5 * width, 0.5 * height, z)
        circle.SetNormal(0.0, 0.0, 1.0)
        circle.SetRadius(solid.outer_radius + 0.3 * solid.spacing)
        circle.SetNumberOfSides(128)
        circle.GeneratePolygonOff()
        tube = vtkTubeFilter()
        tube.SetInputConnection(circle.GetOutputPort())
        tube.SetRadius(0.015 * solid.outer_radius)
        tube.SetNumberOfSides(12)
        rings.AddInputConnection(tube.GetOutputPort())
    rings.Update()
    surface: vtkPolyData = rings.GetOutput()
    return surface


def _outside_wedge(solid: Solid) -> vtkImplicitBoolean:
    """Negative where something stays."""
    width, height, _ = solid.extent
    union = vtkImplicitBoolean()
    union.SetOperationTypeToUnion()
    for normal in ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)):
        plane = vtkPlane()
        plane.SetOrigin(0.5 * width, 0.5 * height, 0.0)
        plane.SetNormal(*normal)
        union.AddFunction(plane)
    return union


def _clipped(whole: vtkPolyData, solid: Solid) -> vtkPolyData:
    clip = vtkClipPolyData()
    clip.SetInputData(whole)
    clip.SetClipFunction(_outside_wedge(solid))
    clip.InsideOutOn()
    clip.Update()
    surface: vtkPolyData = clip.GetOutput()
    return surface


def _spheres(solid: Solid, quality: Quality) -> vtkPolyData:
    width, height, _ = solid.extent
    radius = solid.sphere_radius
    together = vtkAppendPolyData()
    for centre in solid.sphere_centres:
        dx, dy = centre[0] - 0.5 * width, centre[1] - 0.5 * height
        if min(dx, dy) >= radius:
            continue
        source = vtkSphereSource()
        source.SetCenter(*centre)
        source.SetRadius(radius)
        source.SetThetaResolution(48 if quality is Quality.FULL else 16)
        source.SetPhiResolution(32 if quality is Quality.FULL else 10)
        source.Update()
        cut = max(-radius, min(dx, dy)) > -radius
        together.AddInputData(_clipped(source.GetOutput(), solid) if cut else source.GetOutput())
    together.Update()
    surface: vtkPolyData = together.GetOutput()
    return surface


def _surface_of_cells(solid: Solid) -> vtkPolyData:
    share = solid.cells.astype(np.float32)
    if solid.cylinder_radius:
        _, ny, nx = share.shape
        y, x = np.ogrid[0.5:ny, 0.5:nx]
        share[:, np.hypot(x - 0.5 * nx, y - 0.5 * ny) * solid.spacing >= solid.cylinder_radius] = 0
    for axis in range(3):
        # A short blur turns the stairs of the cells into a surface.
        before, after = np.roll(share, 1, axis), np.roll(share, -1, axis)
        share = 0.25 * before + 0.5 * share + 0.25 * after
    image = vtkImageData()
    image.SetDimensions(*reversed(share.shape))
    image.SetSpacing(solid.spacing, solid.spacing, solid.spacing)
    image.SetOrigin(0.5 * solid.spacing, 0.5 * solid.spacing, 0.5 * solid.spacing)
    image.GetPointData().SetScalars(numpy_to_vtk(share.ravel(), deep=True))
    contour = vtkFlyingEdges3D()
    contour.SetInputData(image)
    contour.SetValue(0, 0.5)
    contour.ComputeNormalsOn()
    contour.Update()
    surface: vtkPolyData = contour.GetOutput()
    return surface
