# SPDX-License-Identifier: Apache-2.0
"""Reconstructs slices from line integrals with scikit-image; the signature is that of TomoPy's ``recon``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skimage.transform import iradon, iradon_sart

from forebay.errors import InvalidArgumentError, UnsupportedError

__all__ = ["ALGORITHMS", "recon"]

#: What scikit-image has; other names are refused, never taken for one of these.
ALGORITHMS = ("fbp", "sart")

FloatArray = NDArray[np.float32]


def recon(
    tomo: NDArray[Any],
    theta: NDArray[Any],
    center: float | None = None,
    sinogram_order: bool = False,
    algorithm: str = "fbp",
    init_recon: NDArray[Any] | None = None,
    ncore: int | None = None,
    nchunk: int | None = None,
    *,
    filter_name: str = "ramp",
    num_iter: int = 1,
) -> FloatArray:
    """Reconstructs slices of a parallel-beam scan.

    Parameters
    ----------
    tomo : array, shape (angles, rows, columns)
        Line integrals of attenuation; (rows, angles, columns) with ``sinogram_order``.
    theta : array, shape (angles)
        Angles in radians.
    center : float, optional
        Column of the axis of rotation; None: the middle.
    algorithm : {"fbp", "sart"}
        Filtered back-projection, or the simultaneous algebraic technique with ``num_iter`` passes.
    init_recon : array, shape (rows, columns, columns), optional
        What ``sart`` begins with.
    ncore, nchunk : int, optional
        Taken for TomoPy's sake; slices are computed one after another.
    filter_name : str
        Filter of ``fbp``: ``ramp``, ``shepp-logan``, ``cosine``, ``hamming`` or ``hann``.

    Returns
    -------
    array, shape (rows, columns, columns)
        Attenuation per pixel; the axis lies in the middle, and what is outside the circle is 0.

    Raises
    ------
    UnsupportedError
        scikit-image does not have the algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise UnsupportedError(
            f"scikit-image has no algorithm {algorithm!r}: take one of {', '.join(ALGORITHMS)}, or call TomoPy itself"
        )
    sinograms = np.asarray(tomo, np.float32)
    if sinograms.ndim != 3:
        raise InvalidArgumentError(f"projections are (angles, rows, columns), not {sinograms.shape}")
    if not sinogram_order:
        sinograms = sinograms.swapaxes(0, 1)
    rows, angles, columns = sinograms.shape
    if np.shape(theta) != (angles,):
        raise InvalidArgumentError(
            f"there must be one angle for each of the {angles} projections, not {np.shape(theta)}"
        )
    axis = (columns - 1) / 2 if center is None else float(center)
    if not 0 <= axis <= columns - 1:
        raise InvalidArgumentError(f"the centre of rotation is a column from 0 to {columns - 1}, not {axis:g}")
    degrees = np.degrees(theta)
    result = np.empty((rows, columns, columns), np.float32)
    for row in range(rows):
        centred, margin = _centred(sinograms[row], axis)
        if algorithm == "fbp":
            image = iradon(centred.T, theta=degrees, filter_name=filter_name, circle=True)
        else:
            image = None
            if init_recon is not None:
                image = np.pad(np.asarray(init_recon[row], np.float64), _paddings(margin, columns, centred.shape[1]))
            for _ in range(num_iter):
                image = iradon_sart(centred.T.astype(np.float64), theta=degrees, image=image)
        result[row] = image[margin : margin + columns, margin : margin + columns]
    return result


def _centred(sinogram: FloatArray, axis: float) -> tuple[FloatArray, int]:
    """The sinogram with zeros added so that the axis is in the middle column, where scikit-image takes it to be.

    Returns it, and where the columns of the result begin in the larger image.
    """
    columns = sinogram.shape[1]
    half = math.ceil(max(axis, columns - 1 - axis))
    places = axis + np.arange(-half, half + 1)
    before = np.floor(places).astype(int)
    weight = (places - before).astype(np.float32)
    padded = np.pad(sinogram, ((0, 0), (half + 1, half + 2)))
    taken = padded[:, before + half + 1] * (1 - weight) + padded[:, before + half + 2] * weight
    return taken, half - columns // 2


def _paddings(margin: int, columns: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    sides = (margin, width - columns - margin)
    return (sides, sides)
