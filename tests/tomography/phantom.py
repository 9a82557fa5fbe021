# SPDX-License-Identifier: Apache-2.0
"""A phantom of known truth, its line integrals, and how far a slice is from it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.data import shepp_logan_phantom
from skimage.transform import radon, resize

__all__ = ["COLUMNS", "OFFSET", "error_of", "phantom", "scan"]

COLUMNS = 256
# Columns that the phantom's axis is away from the detector's middle.
OFFSET = 7

Array = NDArray[Any]


def phantom() -> NDArray[np.float64]:
    """What the slices should show."""
    image: NDArray[np.float64] = resize(shepp_logan_phantom(), (COLUMNS, COLUMNS))
    return image


def scan(angles: int = 180, *, turn: float = 180.0) -> tuple[Array, Array, float]:
    """Line integrals (angles, 2 rows, columns), angles in degrees, and the column of the axis."""
    theta = np.linspace(0.0, turn, angles, endpoint=False)
    lines = radon(phantom(), theta).T
    shifted = np.roll(np.pad(lines, ((0, 0), (16, 16))), OFFSET, axis=1)
    # skimage turns about column n // 2.
    return np.stack([shifted, 0.5 * shifted], 1).astype(np.float32), theta, COLUMNS // 2 + 16 + OFFSET


def error_of(image: Array) -> float:
    """Root mean square of the difference to the phantom, within the circle."""
    size = image.shape[0]
    margin = size // 2 - COLUMNS // 2
    inner = image[margin : margin + COLUMNS, margin : margin + COLUMNS]
    y, x = np.mgrid[:COLUMNS, :COLUMNS] - COLUMNS // 2
    inside = np.hypot(x, y) < 0.95 * COLUMNS / 2
    return float(np.sqrt(np.mean((inner - phantom())[inside] ** 2)))
