# SPDX-License-Identifier: Apache-2.0
"""Test doubles of a followed stream: steps from memory, given in any order and number of times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class RecordedStep:
    """One step with its variables in memory."""

    number: int
    variables: dict[str, NDArray[Any]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    rewound: bool = False
    acknowledged: bool = False

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def __iter__(self) -> Iterator[str]:
        return iter(self.variables)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.variables[name]

    def ack(self) -> None:
        self.acknowledged = True


def swirling_step(number: int, *, spheres: bool = True, rewound: bool = False) -> RecordedStep:
    """A small made-up flow around two spheres in a tube; it depends on the step's number."""
    nz, ny, nx = 20, 12, 12
    centres = np.array([[4.0, 5.0, 7.0], [8.0, 7.0, 13.0]])
    z, y, x = np.meshgrid(*(np.arange(extent) + 0.5 for extent in (nz, ny, nx)), indexing="ij")
    solid = np.hypot(x - nx / 2, y - ny / 2) >= 5
    for cx, cy, cz in centres:
        solid |= (x - cx) ** 2 + (y - cy) ** 2 + (z - cz) ** 2 < 2.5**2
    strength = 0.01 * number / (number + 3)
    velocity = np.stack([np.sin(z + number) * 0.2, np.cos(z) * 0.2, np.ones_like(z)], axis=-1) * strength
    velocity[solid] = 0
    attributes: dict[str, Any] = {"spacing": np.float64(1.0), "cylinder_radius": np.float64(5.0)}
    if spheres:
        attributes |= {"sphere_centres": centres.ravel(), "sphere_radius": np.float64(2.5)}
    variables: dict[str, NDArray[Any]] = {
        "velocity": velocity.astype(np.float32),
        "solid": solid.astype(np.uint8),
        "time": np.array(10.0 * number),
    }
    return RecordedStep(number, variables, attributes, rewound)
