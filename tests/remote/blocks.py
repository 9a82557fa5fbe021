# SPDX-License-Identifier: Apache-2.0
"""What the programs of these tests write and expect: arrays that follow from the step's number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["small", "temperature"]

_EDGE = 1536  # 18 MiB a step: several windows and frames


def temperature(step: int) -> NDArray[np.float64]:
    """A large array, no two elements of which are alike, nor two steps."""
    return np.arange(_EDGE * _EDGE, dtype=np.float64).reshape(_EDGE, _EDGE) + step * 1e8


def small(step: int) -> NDArray[np.int32]:
    """A small one, which shares pages with others."""
    return np.arange(11, dtype=np.int32) * (step + 1)
