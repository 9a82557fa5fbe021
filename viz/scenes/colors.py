# SPDX-License-Identifier: Apache-2.0
"""Colours of values: one table for a layer and for the bar that explains it, with ends that do not flicker."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import colormaps
from numpy.typing import NDArray
from vtkmodules.vtkCommonCore import vtkLookupTable

__all__ = ["ColorScale", "color_table", "round_top"]

_COLORS = 256
_ROUND = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


class ColorScale:
    """Colours of a layer's values.

    Parameters
    ----------
    variable : str
        What is coloured.
    colors : str
        Matplotlib's name of a map.
    fixed : pair of float, optional
        Ends of the scale; None: those of each step.
    """

    def __init__(self, variable: str, colors: str, fixed: tuple[float, float] | None) -> None:
        self.variable = variable
        self.colors = colors
        self.table = vtkLookupTable()
        self.table.SetNumberOfTableValues(_COLORS)
        for index, color in enumerate(color_table(colors)):
            self.table.SetTableValue(index, (*color, 1.0))
        self.table.SetNanColor(0.25, 0.25, 0.28, 1.0)
        self._fixed = fixed

    def fit(self, values: NDArray[Any]) -> tuple[float, float]:
        """The scale's ends for a step: those that the scene says, or those of the finite values."""
        return self._set(self._fixed or _range_of(values))

    def fit_from_zero(self, values: NDArray[Any]) -> tuple[float, float]:
        """The same, but from 0 to a round number where the scene says no ends."""
        return self._set(self._fixed or (0.0, round_top(values)))

    def _set(self, ends: tuple[float, float]) -> tuple[float, float]:
        self.table.SetTableRange(*ends)
        return ends


def color_table(colors: str) -> NDArray[np.float64]:
    """256 colours from the lower to the upper end, values 0 to 1."""
    table: NDArray[np.float64] = colormaps[colors](np.linspace(0.0, 1.0, _COLORS))[:, :3]
    return table


def round_top(values: NDArray[Any]) -> float:
    """A round number just above nearly all values.

    It depends on this step alone, so a frame that is drawn again looks the same; being round, it changes a few times
    while a flow starts and then stays.
    """
    finite = values[np.isfinite(values)]
    top = float(np.percentile(finite, 99.5)) if finite.size else 0.0
    if top < 1e-12:
        return 1.0  # at rest; any range shows it
    magnitude: float = 10.0 ** np.floor(np.log10(top))
    return next(value * magnitude for value in _ROUND if value * magnitude >= top * (1 - 1e-9))


def _range_of(values: NDArray[Any]) -> tuple[float, float]:
    """Smallest and largest finite value; apart where they are one, so that there is a range."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    return (low, high) if low < high else (low, low + max(abs(low), 1.0) * 1e-6)
