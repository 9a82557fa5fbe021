# SPDX-License-Identifier: Apache-2.0
"""Converts detector counts to line integrals of attenuation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["minus_log", "normalize"]

# A detector that saw nothing would make the integral infinite.
_TRANSMISSION_MIN = 1e-6


def normalize(projections: NDArray[Any], white: NDArray[Any], dark: NDArray[Any]) -> NDArray[np.float32]:
    """Transmission, ``(projections - dark) / (white - dark)``, with the means of the white and dark fields.

    Parameters
    ----------
    projections : array, shape (angles, rows, columns)
    white, dark : array, shape (frames, rows, columns)

    Returns
    -------
    array, shape (angles, rows, columns)
        Where white is not above dark the detector is dead, and the transmission is taken as 1.
    """
    low = dark.mean(0, dtype=np.float64)
    span = white.mean(0, dtype=np.float64) - low
    alive = span > 0
    result = np.ones(projections.shape, np.float32)
    np.divide(projections - low, span, out=result, where=np.broadcast_to(alive, projections.shape), casting="same_kind")
    return result


def minus_log(transmission: NDArray[Any]) -> NDArray[np.float32]:
    """Line integrals of attenuation; transmissions below 1e-6 are taken as 1e-6."""
    lines: NDArray[np.float32] = -np.log(np.maximum(transmission, np.float32(_TRANSMISSION_MIN)))
    return lines
