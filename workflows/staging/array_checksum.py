# SPDX-License-Identifier: Apache-2.0
"""CRC-32C of arrays. Apart from that of files, for which nobody waits for NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay

__all__ = ["array_checksum", "value_bytes"]


def array_checksum(array: NDArray[Any]) -> int:
    """CRC-32C of the elements in C order."""
    return forebay.crc32c(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def value_bytes(array: NDArray[Any]) -> bytes:
    """The elements' bytes with the padding of long double cleared: copies of single values need not keep it."""
    if array.dtype != np.longdouble:
        return array.tobytes()
    data = np.frombuffer(array.tobytes(), np.uint8).reshape(-1, 16).copy()
    data[:, 10:] = 0
    return data.tobytes()
