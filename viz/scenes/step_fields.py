# SPDX-License-Identifier: Apache-2.0
"""What a scene shows of one step: variables on the grid as VTK's images, and particles. Each is read once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from vtkmodules.util.numpy_support import numpy_to_vtk
from vtkmodules.vtkCommonDataModel import vtkImageData

from forebay import Step
from forebay.errors import InvalidArgumentError
from forebay.openpmd import Species, find_species
from forebay.viz.grid import step_time
from forebay.viz.levels import grid_to_draw
from forebay.viz.scenes.description import PointLayer, SceneDescription

__all__ = ["Bounds", "StepFields"]

#: Lower and upper corner, each (x, y, z).
Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


class StepFields:
    """The variables of a step that a scene shows, in memory: the step may be closed afterwards.

    Parameters
    ----------
    step : Step
        What is read.
    scene : SceneDescription
        Says which variables.

    Raises
    ------
    InvalidArgumentError
        The step lacks a variable, or one has not the shape that its layer needs.
    """

    def __init__(self, step: Step, scene: SceneDescription) -> None:
        self.number = step.number
        self.address = str(step.address)
        self.grid = grid_to_draw(step, scene.variables or None) if scene.needs_grid else None
        self.time = step_time(step)
        self._particles: dict[str, NDArray[Any]] = {}
        for layer in scene.layers:
            if isinstance(layer, PointLayer):
                self._read_particles(step, layer)
        self._attributes = dict(step.attributes)
        self._images: dict[str, vtkImageData] = {}
        self._magnitudes: dict[str, NDArray[Any]] = {}

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the grid in x, y and z."""
        low, high = self.corners()
        x, y, z = (high - low).tolist()
        return x, y, z

    @property
    def cell(self) -> float:
        """Side of a cell; InvalidArgumentError if the sides differ."""
        assert self.grid is not None
        if len(set(self.grid.spacing)) != 1:
            raise InvalidArgumentError(
                f"the cells measure {self.grid.spacing}; layers of cutaway and streaks need cubes", self.address
            )
        return self.grid.spacing[0]

    def units(self, name: str) -> str:
        """The attribute ``NAME/units``; empty if the stream has none."""
        return str(self._attributes.get(f"{name}/units", ""))

    def numbers(self, attribute: str) -> NDArray[np.float64]:
        """An attribute of one or more numbers; empty if the stream has none of that name."""
        value = np.asarray(self._attributes.get(attribute, ()))
        if value.size and value.dtype.kind not in "iuf":
            raise InvalidArgumentError(f"the attribute {attribute!r} is {value.dtype}, not numbers", self.address)
        return value.astype(np.float64).reshape(-1)

    def reach(self, cylinder: str) -> float:
        """Radius of the tube that the attribute names; without one half of the smaller side of the grid in x and y."""
        radius = self.numbers(cylinder) if cylinder else np.empty(0)
        return float(radius[0]) if radius.size == 1 and radius[0] > 0 else 0.5 * min(self.extent[:2])

    def magnitude(self, name: str) -> NDArray[Any]:
        """A variable, or the length of its vectors: shape (z, y, x)."""
        if name not in self._magnitudes:
            field = self._field(name)
            if field.ndim == 4:
                exact = field if field.dtype.kind == "f" and field.itemsize >= 4 else field.astype(np.float64)
                field = np.sqrt(np.einsum("zyxc,zyxc->zyx", exact, exact))
            self._magnitudes[name] = field
        return self._magnitudes[name]

    def vector_field(self, name: str) -> NDArray[Any]:
        """A variable of three components, shape (z, y, x, 3)."""
        field = self._field(name)
        if field.ndim != 4 or field.shape[3] != 3:
            raise InvalidArgumentError(
                f"{name!r} has the shape {field.shape}; this layer needs vectors: (z, y, x, 3)", self.address
            )
        return field

    def solid(self, name: str) -> NDArray[np.uint8]:
        """A copy of a variable of (z, y, x) as 1 where it is not 0, and 0 elsewhere."""
        field = self._field(name)
        if field.ndim != 3 or min(field.shape) < 2:
            raise InvalidArgumentError(
                f"{name!r} has the shape {field.shape}; a solid is (z, y, x) of at least 2 cells each way",
                self.address,
            )
        cells: NDArray[np.uint8] = (field != 0).astype(np.uint8)
        return cells

    def scalars(self, name: str) -> vtkImageData:
        """A variable, or the length of its vectors, at the middles of the cells; shares memory if contiguous."""
        if name not in self._images:
            image = self.image()
            image.GetPointData().SetScalars(_named(np.ascontiguousarray(self.magnitude(name)).reshape(-1), name))
            self._images[name] = image
        return self._images[name]

    def vectors(self, name: str, every: int = 1) -> vtkImageData:
        """A variable of three components at the middles of the cells, or of each ``every``-th along each axis."""
        field = self.vector_field(name)
        first = every // 2
        chosen = field[first::every, first::every, first::every] if min(field.shape[:3]) > first else field[:1, :1, :1]
        image = self.image(chosen.shape[:3], every, first)
        kind = chosen.dtype if chosen.dtype.kind == "f" and chosen.itemsize >= 4 else np.dtype(np.float64)
        image.GetPointData().SetVectors(_named(np.ascontiguousarray(chosen, kind).reshape(-1, 3), name))
        return image

    def particles(self, name: str) -> NDArray[Any]:
        """A variable of a layer of points."""
        return self._particles[name]

    def corners(self) -> Bounds:
        """Of the grid; of all particles where there is none."""
        if self.grid is not None:
            low = np.array(self.grid.origin)
            return low, low + np.array(self.grid.spacing) * np.array(self.grid.shape[::-1])
        places = [array for array in self._particles.values() if array.ndim == 2 and len(array)]
        if not places:
            return np.zeros(3), np.ones(3)
        lows, highs = (np.array([np.nanmin(a, 0) for a in places]), np.array([np.nanmax(a, 0) for a in places]))
        low, high = np.nan_to_num(lows.min(0)), np.nan_to_num(highs.max(0), nan=1.0)
        return low, np.maximum(high, low + 1e-9)

    def _field(self, name: str) -> NDArray[Any]:
        assert self.grid is not None
        if name not in self.grid.fields:
            reason = self.grid.left_out.get(name, "the step does not have it")
            raise InvalidArgumentError(f"the scene shows {name!r}, which is not on the grid: {reason}", self.address)
        return self.grid.fields[name]

    def image(self, shape: tuple[int, ...] | None = None, every: int = 1, first: int = 0) -> vtkImageData:
        """An image without values whose points are the middles of the cells."""
        assert self.grid is not None
        spacing = self.grid.spacing
        image = vtkImageData()
        image.SetDimensions(*(shape or self.grid.shape)[::-1])
        image.SetSpacing(*(side * every for side in spacing))
        image.SetOrigin(*(low + side * (first + 0.5) for low, side in zip(self.grid.origin, spacing, strict=True)))
        return image

    def _read_particles(self, step: Step, layer: PointLayer) -> None:
        if layer.positions not in step and (parts := layer.positions.rpartition("/"))[2] == "position":
            self._read_species(find_species(step, parts[0]), layer, is_timed="time" in step)
            return
        for name in filter(None, (layer.positions, layer.variable)):
            if name not in step:
                raise InvalidArgumentError(f"the step has no variable {name}", self.address)
        shape = step[layer.positions].shape
        if len(shape) != 2 or shape[1] != 3:
            raise InvalidArgumentError(
                f"{layer.positions!r} has the shape {shape}; positions of points are (particles, 3)", self.address
            )
        self._particles[layer.positions] = np.array(step[layer.positions][...], np.float64)
        if layer.variable:
            shown = step[layer.variable]
            if shown.shape != (shape[0],) or shown.dtype.kind not in "iuf":
                raise InvalidArgumentError(
                    f"{layer.variable!r} is {shown.dtype} {shown.shape}; it colours {shape[0]} points and needs a real "
                    f"number for each",
                    self.address,
                )
            self._particles[layer.variable] = np.array(shown[...], np.float64)

    def _read_species(self, species: Species, layer: PointLayer, *, is_timed: bool) -> None:
        """Particles of openPMD's: ``electrons/position``, coloured by a record's length or one of its components."""
        self._particles[layer.positions] = species.positions()
        if not is_timed and species.time_s is not None:
            self.time = species.time_s
        if not layer.variable:
            return
        prefix = layer.positions.removesuffix("position")
        if not layer.variable.startswith(prefix):
            raise InvalidArgumentError(
                f"{layer.positions!r} is coloured by a record of its species, {prefix}momentum for example, not by "
                f"{layer.variable!r}",
                self.address,
            )
        record = layer.variable.removeprefix(prefix)
        parts = [np.asarray(species.values(part, si=True), np.float64) for part in species.chosen([record])]
        values = parts[0] if len(parts) == 1 else np.sqrt(sum(part**2 for part in parts))
        if values.shape != (len(self._particles[layer.positions]),):
            raise InvalidArgumentError(
                f"{layer.variable!r} has {len(values)} numbers for {len(self._particles[layer.positions])} particles",
                self.address,
            )
        self._particles[layer.variable] = values


def _named(values: NDArray[Any], name: str) -> Any:
    array = numpy_to_vtk(values, deep=0)
    array.SetName(name)
    return array
