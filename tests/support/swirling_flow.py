# SPDX-License-Identifier: Apache-2.0
"""A small made-up flow around two spheres in a tube, written to streams of tests; it depends on the step's number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay

__all__ = ["FLOW_SCENE", "swirl", "write_swirl_steps"]

#: What is drawn of it.
FLOW_SCENE = """
title = "swirl"
label = "speed"
size = [320, 240]
axes = true
shadows = true
[camera]
direction = [0.80, 0.44, -0.22]
up = [0.0, 1.0, 0.0]
zoom = 1.24
sway = 7.0
[[layer]]
kind = "cutaway"
variable = "velocity"
solid = "solid"
[[layer]]
kind = "streaks"
variable = "velocity"
[[layer]]
kind = "arrow"
variable = "velocity"
[[layer]]
kind = "ruler"
"""

_CENTRES = np.array([[4.0, 5.0, 7.0], [8.0, 7.0, 13.0]])


def swirl(number: int) -> dict[str, NDArray[Any]]:
    """The variables of a step."""
    nz, ny, nx = 20, 12, 12
    z, y, x = np.meshgrid(*(np.arange(extent) + 0.5 for extent in (nz, ny, nx)), indexing="ij")
    solid = np.hypot(x - nx / 2, y - ny / 2) >= 5
    for cx, cy, cz in _CENTRES:
        solid |= (x - cx) ** 2 + (y - cy) ** 2 + (z - cz) ** 2 < 2.5**2
    strength = 0.01 * number / (number + 3)
    velocity = np.stack([np.sin(z + number) * 0.2, np.cos(z) * 0.2, np.ones_like(z)], axis=-1) * strength
    velocity[solid] = 0
    return {
        "velocity": velocity.astype(np.float32),
        "solid": solid.astype(np.uint8),
        "time": np.array(10.0 * number),
    }


def write_swirl_steps(
    stream: forebay.WritableStream, steps: Iterable[Mapping[str, Any]], *, spheres: bool = True, **attributes: Any
) -> None:
    """Writes steps of such variables, with the attributes that describe the solid and those given."""
    stream.attributes["spacing"] = 1.0
    stream.attributes["cylinder_radius"] = 5.0
    if spheres:
        stream.attributes["sphere_centres"] = _CENTRES.ravel()
        stream.attributes["sphere_radius"] = 2.5
    for name, value in attributes.items():
        stream.attributes[name.replace("__", "/")] = value
    for variables in steps:
        with stream.step() as step:
            for name, value in variables.items():
                step[name] = value
