# SPDX-License-Identifier: Apache-2.0
"""Removes the rings that detector pixels with a different response leave in slices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter

from forebay.errors import InvalidArgumentError

__all__ = ["remove_rings"]


def remove_rings(lines: NDArray[Any], columns: int = 9) -> NDArray[np.float32]:
    """Line integrals without stripes, by sorting (Vo, Atwood, Drakopoulos, Optics Express 26, 2018, 28396, section 3).

    The values of each column are sorted along the angles. In that order neighbouring columns of an object are alike, so
    a median over columns takes out what one column has alone. The values then go back to their angles.

    Parameters
    ----------
    lines : array, shape (angles, rows, columns)
        Of the whole scan: few angles do not show what is a stripe.
    columns : int
        Width of the median, odd: above twice that of the widest stripe. A wider one blurs fine edges.

    Returns
    -------
    array, shape (angles, rows, columns)
    """
    if columns < 3 or columns % 2 == 0:
        raise InvalidArgumentError(f"the median's width is an odd number of columns from 3 on, not {columns}")
    order = np.argsort(lines, axis=0, kind="stable")
    smooth = median_filter(np.take_along_axis(lines, order, 0), (1, 1, columns), mode="nearest")
    result = np.empty(lines.shape, np.float32)
    np.put_along_axis(result, order, smooth.astype(np.float32), 0)
    return result
