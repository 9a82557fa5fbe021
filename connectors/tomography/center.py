# SPDX-License-Identifier: Apache-2.0
"""Finds the axis of rotation on the detector from the projections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import InvalidArgumentError

__all__ = ["find_center"]

# Below this range of angles (degrees) the fit of a sine says nothing about its middle.
_FIT_RANGE_MIN = 120.0
# How far from a half turn a pair of projections may be, in degrees.
_HALF_TURN_TOLERANCE = 2.0


def find_center(lines: NDArray[Any], theta: NDArray[Any]) -> float:
    """Column of the axis of rotation.

    Compares the two projections that are nearest to a half turn apart, one of them mirrored. Without such a pair it is
    the middle of the sine that the centre of mass follows, for which the object must stay in view.

    Parameters
    ----------
    lines : array, shape (angles, rows, columns)
        Line integrals.
    theta : array, shape (angles)
        Degrees.

    Raises
    ------
    InvalidArgumentError
        The angles span less than 120 degrees: give the centre.
    """
    columns = lines.shape[2]
    apart = np.abs(np.abs(theta[:, np.newaxis] - theta) - 180.0)
    first, second = np.unravel_index(int(apart.argmin()), apart.shape)
    if apart[first, second] <= _HALF_TURN_TOLERANCE:
        return _center_of_pair(lines[first], lines[second][:, ::-1])
    if np.ptp(theta) < _FIT_RANGE_MIN:
        raise InvalidArgumentError(
            f"the centre of rotation cannot be found from {np.ptp(theta):.0f} degrees: give it, or wait for "
            f"{_FIT_RANGE_MIN:.0f} degrees"
        )
    mass = lines.sum((1, 2))
    place = (lines.sum(1) @ np.arange(columns)) / np.where(mass == 0, 1, mass)
    angles = np.radians(theta)
    matrix = np.stack([np.ones_like(angles), np.cos(angles), np.sin(angles)], 1)
    return float(np.linalg.lstsq(matrix, place, rcond=None)[0][0])


def _center_of_pair(straight: NDArray[Any], mirrored: NDArray[Any]) -> float:
    """A point at column c is at 2 * center - c half a turn later; mirrored, it is shifted by 2 * center - last."""
    columns = straight.shape[1]
    reach = columns // 2
    differences = []
    for shift in range(-reach, reach + 1):
        here = straight[:, max(0, shift) : columns + min(0, shift)]
        there = mirrored[:, max(0, -shift) : columns - max(0, shift)]
        differences.append(float(np.mean((here - there) ** 2)))
    best = int(np.argmin(differences))
    refined = 0.0
    if 0 < best < len(differences) - 1:
        # The minimum of the parabola through three neighbours.
        left, middle, right = differences[best - 1 : best + 2]
        curvature = left - 2 * middle + right
        refined = 0.5 * (left - right) / curvature if curvature > 0 else 0.0
    return float(columns - 1 + best - reach + refined) / 2
