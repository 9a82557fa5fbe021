# SPDX-License-Identifier: Apache-2.0
"""Who reconstructs: scikit-image, and algotom, the ASTRA toolbox and TomoPy where they are installed.

Each computes what its own algorithm of that name is. No algorithm is taken for another.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from forebay.errors import InvalidArgumentError, UnsupportedError

__all__ = ["BACKENDS", "Backend", "Request", "backend_of"]

FloatArray: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class Request:
    """One slice to reconstruct.

    Attributes
    ----------
    sinogram : array, shape (angles, columns)
        The axis of rotation is the middle column; an odd number of columns.
    theta : array, shape (angles)
        Radians.
    first : array, shape (columns, columns), optional
        What iterative algorithms begin with.
    """

    sinogram: FloatArray
    theta: NDArray[np.float64]
    algorithm: str
    filter_name: str
    num_iter: int
    first: NDArray[Any] | None


@dataclass(frozen=True)
class Backend:
    """A library.

    Attributes
    ----------
    module : str
        What is imported.
    algorithms : tuple of str
        Names that it takes; empty: its own function decides.
    slice : callable
        Reconstructs (columns, columns).
    """

    module: str
    algorithms: tuple[str, ...]
    slice: Callable[[Request], NDArray[Any]]

    @property
    def installed(self) -> bool:
        """True if it can be imported."""
        return importlib.util.find_spec(self.module) is not None


def _scikit_image(request: Request) -> NDArray[Any]:
    from skimage.transform import iradon, iradon_sart

    degrees = np.degrees(request.theta)
    if request.algorithm == "fbp":
        image: NDArray[Any] = iradon(request.sinogram.T, theta=degrees, filter_name=request.filter_name, circle=True)
        return image
    current = request.first
    for _ in range(request.num_iter):
        current = iradon_sart(request.sinogram.T.astype(np.float64), theta=degrees, image=current)
    assert current is not None
    return current


def _algotom(request: Request) -> NDArray[Any]:
    from algotom.rec import reconstruction

    center = (request.sinogram.shape[1] - 1) / 2
    if request.algorithm == "dfi":
        image: NDArray[Any] = reconstruction.dfi_reconstruction(
            request.sinogram, center, angles=request.theta, apply_log=False, filter_name=None
        )
        return image
    if request.filter_name not in ("ramp", "hann", "hamming"):
        raise UnsupportedError(f"algotom's fbp has no filter {request.filter_name!r}: take ramp, hann or hamming")
    window = None if request.filter_name == "ramp" else request.filter_name
    made: NDArray[Any] = reconstruction.fbp_reconstruction(
        request.sinogram, center, angles=request.theta, filter_name=window, apply_log=False, gpu=False
    )
    return made


def _astra(request: Request) -> NDArray[Any]:
    import astra

    columns = request.sinogram.shape[1]
    rays = astra.create_proj_geom("parallel", 1.0, columns, request.theta)
    area = astra.create_vol_geom(columns, columns)
    projector = astra.create_projector("linear", rays, area)
    counts = astra.data2d.create("-sino", rays, request.sinogram)
    start = np.zeros((columns, columns), np.float32) if request.first is None else request.first
    image = astra.data2d.create("-vol", area, np.ascontiguousarray(start, np.float32))
    made = [counts, image]
    settings = astra.astra_dict(request.algorithm.upper())
    settings |= {"ProjectorId": projector, "ProjectionDataId": counts, "ReconstructionDataId": image}
    if request.algorithm == "fbp":
        names = {"ramp": "ram-lak", "shepp-logan": "shepp-logan", "cosine": "cosine", "hamming": "hamming"}
        settings["option"] = {"FilterType": names.get(request.filter_name, request.filter_name)}
    algorithm = astra.algorithm.create(settings)
    try:
        # SART's iterations are single projections.
        passes = request.num_iter * (len(request.theta) if request.algorithm == "sart" else 1)
        astra.algorithm.run(algorithm, 1 if request.algorithm == "fbp" else passes)
        result: NDArray[Any] = astra.data2d.get(image)
        return result
    finally:
        astra.algorithm.delete(algorithm)
        astra.projector.delete(projector)
        astra.data2d.delete(made)


def _tomopy(request: Request) -> NDArray[Any]:
    import tomopy

    options: dict[str, Any] = {}
    if request.algorithm in ("gridrec", "fbp"):
        options["filter_name"] = {"ramp": "ramlak", "shepp-logan": "shepp"}.get(
            request.filter_name, request.filter_name
        )
    else:
        options["num_iter"] = request.num_iter
        if request.first is not None:
            options["init_recon"] = np.ascontiguousarray(request.first, np.float32)[np.newaxis]
    result: NDArray[Any] = tomopy.recon(
        request.sinogram[:, np.newaxis],
        request.theta,
        center=(request.sinogram.shape[1] - 1) / 2,
        algorithm=request.algorithm,
        **options,
    )
    image: NDArray[Any] = result[0]
    return image


#: By the names that ``recon(backend=…)`` takes.
BACKENDS = {
    "scikit-image": Backend("skimage", ("fbp", "sart"), _scikit_image),
    "algotom": Backend("algotom", ("fbp", "dfi"), _algotom),
    "astra": Backend("astra", ("fbp", "sart", "sirt", "cgls"), _astra),
    "tomopy": Backend("tomopy", (), _tomopy),
}


def backend_of(name: str, algorithm: str) -> Backend:
    """The backend of a name.

    Raises
    ------
    InvalidArgumentError
        There is none of that name.
    UnsupportedError
        It is not installed, or does not have the algorithm; the text names those that have.
    """
    backend = BACKENDS.get(name)
    if backend is None:
        raise InvalidArgumentError(f"the backend is one of {', '.join(BACKENDS)}, not {name!r}")
    if backend.algorithms and algorithm not in backend.algorithms:
        others = [other for other, known in BACKENDS.items() if algorithm in known.algorithms]
        instead = f"; {' and '.join(others)} have" if others else ""
        raise UnsupportedError(
            f"{name} has no algorithm {algorithm!r}, but {', '.join(backend.algorithms)}{instead}; "
            "backend='tomopy' calls TomoPy itself where it is installed"
        )
    if not backend.installed:
        raise UnsupportedError(f"the backend {name} needs the Python package {backend.module}, which is not installed")
    return backend
