# SPDX-License-Identifier: Apache-2.0
"""Reconstructs slices from line integrals; the signature is that of TomoPy's ``recon``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.connectors.tomography.backends import Request, backend_of
from forebay.errors import InvalidArgumentError

__all__ = ["recon"]

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
    backend: str = "scikit-image",
    filter_name: str = "ramp",
    num_iter: int = 1,
    extended: bool = False,
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
    algorithm : str
        What the backend has: ``fbp`` (filtered back-projection) and ``sart`` (simultaneous algebraic technique) of
        scikit-image; ``fbp`` and ``dfi`` (direct Fourier inversion) of algotom; ``fbp``, ``sart``, ``sirt`` and
        ``cgls`` of ASTRA; whatever TomoPy has.
    init_recon : array, shape (rows, columns, columns), optional
        What iterative algorithms begin with.
    ncore, nchunk : int, optional
        Taken for TomoPy's sake; slices are computed one after another.
    backend : {"scikit-image", "algotom", "astra", "tomopy"}
        Who computes. All but the first must be installed by you.
    filter_name : str
        Filter of ``fbp``: ``ramp``, ``shepp-logan``, ``cosine``, ``hamming`` or ``hann``.
    num_iter : int
        Passes of iterative algorithms.
    extended : bool
        The scan is one of 360 degrees about an axis near an edge of the detector: each line of one side was seen once,
        those near the axis twice. Slices reach as far as the longer side.

    Returns
    -------
    array, shape (rows, columns, columns)
        Attenuation per pixel; the axis lies in the middle, and what is outside the circle is 0. With ``extended`` both
        extents are the odd number that is twice the longer side.

    Raises
    ------
    UnsupportedError
        The backend is not installed, or does not have the algorithm.
    """
    library = backend_of(backend, algorithm)
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
    radians = np.asarray(theta, np.float64)
    if not np.isfinite(radians).all():
        raise InvalidArgumentError(
            f"the angle of projection {np.flatnonzero(~np.isfinite(radians))[0]} is not finite: leave it out"
        )
    if extended:
        if init_recon is not None:
            raise InvalidArgumentError("init_recon does not go with extended")
        sinograms = sinograms * _weights_of_full_turn(columns, axis)
    slices: list[NDArray[Any]] = []
    for row in range(rows):
        wide, margin = _centred(sinograms[row], axis)
        first = None
        if init_recon is not None:
            first = np.pad(np.asarray(init_recon[row], np.float64), _paddings(margin, columns, wide.shape[1]))
        image = library.slice(Request(wide, radians, algorithm, filter_name, num_iter, first))
        slices.append(image if extended else image[margin : margin + columns, margin : margin + columns])
    return np.stack(slices).astype(np.float32, copy=False)


def _weights_of_full_turn(columns: int, axis: float) -> FloatArray:
    """Weights by which a line that was seen twice in a full turn counts as much as one that was seen once.

    They grow linearly over the columns that lie as near to the axis as the nearer edge, so that filtering sees no step
    (displaced detector: Wang, Medical Physics 29, 2002, 1634).
    """
    distance = np.arange(columns, dtype=np.float64) - axis
    reach = max(min(axis, columns - 1 - axis), 0.5)
    if axis > columns - 1 - axis:
        distance = -distance
    return np.asarray(1.0 + np.clip(distance / reach, -1.0, 1.0), np.float32)


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
