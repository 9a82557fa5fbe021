# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays over a segment's bytes: no copy, and the array keeps the mapping and the pin alive."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from forebay import _core

__all__ = ["array_over"]


def array_over(
    memory: _core.Memory, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None = None
) -> NDArray[Any]:
    """An array of this shape on ``memory``; read-only where the memory is.

    Parameters
    ----------
    strides : tuple of int, optional
        Bytes per dimension; C order if not given.
    """
    # NumPy's types know only some of the classes that have the buffer protocol.
    return np.ndarray(shape, dtype, cast(memoryview, memory), 0, strides)
