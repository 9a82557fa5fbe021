# SPDX-License-Identifier: Apache-2.0
"""What a picture is made of: the arrays and attributes of one step of a flow through a solid, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import InvalidArgumentError

__all__ = ["FlowFields"]


@dataclass(frozen=True)
class FlowFields:
    """One step of a flow on a regular grid.

    Attributes
    ----------
    step : int
        Number of the step.
    velocity : array, shape (nz, ny, nx, 3)
        Velocity (x, y, z) in each cell.
    solid : array, shape (nz, ny, nx)
        Not 0 where there is solid.
    time : float, optional
        Simulated time, shown in the picture.
    spacing : float
        Side of a cell.
    sphere_centres : array, shape (n, 3)
        Centres (x, y, z) of the spheres that the solid consists of, in the unit of ``spacing``; empty: the solid is
        drawn from its cells.
    sphere_radius : float
        Their radius.
    cylinder_radius : float
        Radius of the tube around the z axis through the middle of the grid; 0: there is none.
    speed_units, length_units, time_units : str
        Units that the picture names; empty: none.
    """

    step: int
    velocity: NDArray[np.float32]
    solid: NDArray[np.uint8]
    time: float | None = None
    spacing: float = 1.0
    sphere_centres: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 3)))
    sphere_radius: float = 0.0
    cylinder_radius: float = 0.0
    speed_units: str = ""
    length_units: str = ""
    time_units: str = ""

    def __post_init__(self) -> None:
        if self.solid.ndim != 3 or self.velocity.shape != (*self.solid.shape, 3):
            raise InvalidArgumentError(
                f"velocity must have the shape of solid and a last axis of 3, not {self.velocity.shape} for a solid of "
                f"{self.solid.shape}"
            )
        if min(self.solid.shape) < 2:
            raise InvalidArgumentError(f"the grid must have at least 2 cells each way, not {self.solid.shape}")

    @classmethod
    def of_step(
        cls, step: int, arrays: Mapping[str, NDArray[Any]], attributes: Mapping[str, Any], time: float | None = None
    ) -> FlowFields:
        """Fields from a stream's arrays ``velocity`` and ``solid`` and the attributes that a stream may have.

        ``velocity/units``, ``spacing/units`` and ``time/units`` are the units' names.
        """
        return cls(
            step=step,
            velocity=np.ascontiguousarray(arrays["velocity"], np.float32),
            solid=np.ascontiguousarray(arrays["solid"], np.uint8),
            time=time,
            spacing=float(attributes.get("spacing", 1.0)),
            sphere_centres=np.asarray(attributes.get("sphere_centres", ()), np.float64).reshape(-1, 3),
            sphere_radius=float(attributes.get("sphere_radius", 0.0)),
            cylinder_radius=float(attributes.get("cylinder_radius", 0.0)),
            speed_units=str(attributes.get("velocity/units", "")),
            length_units=str(attributes.get("spacing/units", "")),
            time_units=str(attributes.get("time/units", "")),
        )

    @property
    def extent(self) -> tuple[float, float, float]:
        """Size of the grid in x, y and z."""
        nz, ny, nx = self.solid.shape
        return nx * self.spacing, ny * self.spacing, nz * self.spacing

    @property
    def outer_radius(self) -> float:
        """How far the picture reaches from the axis."""
        return self.cylinder_radius or 0.5 * min(self.extent[:2])

    def same_solid(self, other: FlowFields) -> bool:
        """True if what was drawn of the other's solid need not be drawn again."""
        return (
            self.spacing == other.spacing
            and self.sphere_radius == other.sphere_radius
            and self.cylinder_radius == other.cylinder_radius
            and self.length_units == other.length_units
            and np.array_equal(self.sphere_centres, other.sphere_centres)
            and np.array_equal(self.solid, other.solid)
        )
