# SPDX-License-Identifier: Apache-2.0
"""Finds the axis of rotation on the detector from the projections."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.connectors.tomography.reconstruction import recon
from forebay.errors import InvalidArgumentError

__all__ = ["find_center", "search_center"]

# Below this range of angles (degrees) the fit of a sine says nothing about its middle.
_FIT_RANGE_MIN = 120.0
# How far from a half turn a pair of projections may be, in degrees.
_HALF_TURN_TOLERANCE = 2.0


def find_center(lines: NDArray[Any], theta: NDArray[Any], *, extended: bool = False) -> float:
    """Column of the axis of rotation.

    Compares the two projections that are nearest to a half turn apart, one of them mirrored. Without such a pair it is
    the middle of the sine that the centre of mass follows, for which the object must stay in view.

    Parameters
    ----------
    lines : array, shape (angles, rows, columns)
        Line integrals.
    theta : array, shape (angles)
        Degrees.
    extended : bool
        The axis lies near an edge of the detector: the object does not stay in view, and a pair overlaps little.

    Raises
    ------
    InvalidArgumentError
        The angles span less than 120 degrees: give the centre. Or ``extended`` and no pair is a half turn apart.
    """
    columns = lines.shape[2]
    apart = np.abs(np.abs(theta[:, np.newaxis] - theta) - 180.0)
    first, second = np.unravel_index(int(apart.argmin()), apart.shape)
    if apart[first, second] <= _HALF_TURN_TOLERANCE:
        return _center_of_pair(lines[first], lines[second][:, ::-1], extended)
    if extended:
        raise InvalidArgumentError("the centre of rotation of an extended scan needs projections a half turn apart")
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


def search_center(
    lines: NDArray[Any], theta: NDArray[Any], around: float | None = None, *, width: float = 8.0
) -> float:
    """Column of the axis of rotation for which the slice of the middle row is sharpest, to an eighth of a column.

    Reconstructs the row by filtered back-projection at trial columns and takes the one whose slice has the least sum of
    absolute values: off the axis, streaks add to it that do not cancel (Donath et al., J. Opt. Soc. Am. A 23, 2006,
    1048).

    Parameters
    ----------
    lines, theta
        As of :func:`find_center`. They span 180 or 360 degrees: slices of fewer have streaks of their own.
    around : float, optional
        Where to look; None: what :func:`find_center` gives.
    width : float
        How many columns to each side.
    """
    middle = find_center(lines, theta) if around is None else float(around)
    row = np.asarray(lines[:, lines.shape[1] // 2 : lines.shape[1] // 2 + 1], np.float32)
    radians = np.radians(theta)
    columns = row.shape[2]
    y, x = np.mgrid[:columns, :columns] - (columns - 1) / 2
    # What each trial reaches from both edges of the detector: beyond it slices are incomplete. The same for all.
    reached = min(middle, columns - 1 - middle) - width
    inside = np.hypot(x, y) < max(reached, 0.1 * columns)

    def blur(center: float) -> float:
        return float(np.abs(recon(row, radians, center)[0][inside]).mean())

    step = 1.0
    best = middle
    reach = width
    while step >= 0.125:
        trials = np.arange(best - reach, best + reach + step / 2, step)
        trials = trials[(trials >= 1) & (trials <= columns - 2)]
        if not len(trials):
            raise InvalidArgumentError(f"no column within {width:g} of {middle:g} lies on the detector")
        best = float(min(trials, key=blur))
        reach, step = step, step / 2
    return best


def _center_of_pair(straight: NDArray[Any], mirrored: NDArray[Any], extended: bool) -> float:
    """A point at column c is at 2 * center - c half a turn later; mirrored, it is shifted by 2 * center - last."""
    columns = straight.shape[1]
    reach = int(0.9 * columns) if extended else columns // 2
    differences = []
    for shift in range(-reach, reach + 1):
        here = straight[:, max(0, shift) : columns + min(0, shift)]
        there = mirrored[:, max(0, -shift) : columns - max(0, shift)]
        difference = float(np.mean((here - there) ** 2))
        if extended:
            # Relative to what is there; an overlap without an object tells nothing.
            content = float(np.mean(here**2) + np.mean(there**2))
            difference = difference / content if content > 0.1 * float(np.mean(straight**2)) else np.inf
        differences.append(difference)
    best = int(np.argmin(differences))
    refined = 0.0
    if 0 < best < len(differences) - 1:
        # The minimum of the parabola through three neighbours.
        left, middle, right = differences[best - 1 : best + 2]
        curvature = left - 2 * middle + right
        refined = 0.5 * (left - right) / curvature if 0 < curvature < np.inf else 0.0
    return float(columns - 1 + best - reach + refined) / 2
