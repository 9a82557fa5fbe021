# SPDX-License-Identifier: Apache-2.0
"""Colours of speeds: one table for surfaces, lines and the colour bar, and a range that does not flicker."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from vtkmodules.vtkCommonCore import vtkLookupTable

__all__ = ["SPEED_COLORS", "lookup_table", "speed_range"]

#: 256 colours from rest to full speed, values 0 to 1.
SPEED_COLORS: NDArray[np.float64] = colormaps["inferno"](np.linspace(0.0, 1.0, 256))[:, :3]

_ROUND = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


def lookup_table() -> vtkLookupTable:
    """:data:`SPEED_COLORS` as VTK takes them."""
    table = vtkLookupTable()
    table.SetNumberOfTableValues(len(SPEED_COLORS))
    for index, color in enumerate(SPEED_COLORS):
        table.SetTableValue(index, (*color, 1.0))
    return table


def speed_range(speed: NDArray[np.floating], solid: NDArray[np.uint8]) -> float:
    """Upper end of the colour bar: a round number just above nearly all speeds.

    It depends on this step alone, so a frame that is rendered again looks the same; being round, it changes a few times
    while a flow starts and then stays.
    """
    moving = speed[solid == 0]
    top = float(np.percentile(moving, 99.5)) if moving.size else 0.0
    if top < 1e-12:
        return 1.0  # at rest; any range shows it
    magnitude: float = 10.0 ** np.floor(np.log10(top))
    return next(value * magnitude for value in _ROUND if value * magnitude >= top * (1 - 1e-9))
