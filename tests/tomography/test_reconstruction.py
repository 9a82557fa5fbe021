# SPDX-License-Identifier: Apache-2.0
"""Backends side by side, scans of a full turn, and the search for the axis."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import forebay
from forebay.connectors import tomography
from forebay.connectors.tomography.backends import BACKENDS
from tests.support.time_limits import seconds
from tests.tomography.phantom import COLUMNS, error_of, phantom, scan


def needs(backend: str) -> None:
    if not BACKENDS[backend].installed:
        pytest.skip(f"{backend} is not installed")


@pytest.mark.parametrize(
    ("backend", "algorithm", "limit"),
    [
        ("scikit-image", "fbp", 0.035),
        ("algotom", "fbp", 0.06),
        ("algotom", "dfi", 0.08),
        ("astra", "fbp", 0.06),
        ("astra", "cgls", 0.08),
        ("astra", "sart", 0.1),
        ("tomopy", "gridrec", 0.08),
    ],
)
def test_backend_reconstructs_the_phantom_about_an_axis_off_the_middle(
    backend: str, algorithm: str, limit: float
) -> None:
    needs(backend)
    lines, theta, axis = scan()
    image = tomography.recon(
        lines,
        np.radians(theta),
        axis,
        algorithm=algorithm,
        backend=backend,
        num_iter={"cgls": 15, "sart": 3}.get(algorithm, 1),
    )
    error = error_of(image[0])
    print(f"{backend} {algorithm}: root mean square error {error:.4f}")
    assert error < limit
    assert image.shape == (2, lines.shape[2], lines.shape[2])
    assert np.sqrt(np.mean((image[1] - 0.5 * image[0]) ** 2)) < 2e-3


@pytest.mark.parametrize("backend", ["scikit-image", "algotom", "astra"])
def test_algorithm_that_a_backend_lacks_is_refused_with_who_has_it(backend: str) -> None:
    lines, theta, _ = scan(20)
    with pytest.raises(forebay.UnsupportedError, match=f"{backend} has no algorithm 'gridrec'"):
        tomography.recon(lines, np.radians(theta), algorithm="gridrec", backend=backend)
    with pytest.raises(forebay.UnsupportedError, match="algotom have"):
        tomography.recon(lines, np.radians(theta), algorithm="dfi")


def test_backend_that_is_not_there_is_not_replaced() -> None:
    lines, theta, _ = scan(20)
    with pytest.raises(forebay.InvalidArgumentError, match="the backend is one of"):
        tomography.recon(lines, np.radians(theta), backend="matlab")
    if importlib.util.find_spec("tomopy") is None:
        with pytest.raises(forebay.UnsupportedError, match="needs the Python package tomopy"):
            tomography.recon(lines, np.radians(theta), algorithm="gridrec", backend="tomopy")


def test_full_turn_about_the_middle_is_a_scan_as_any_other() -> None:
    lines, theta, axis = scan(360, turn=360.0)
    assert tomography.find_center(lines, theta) == pytest.approx(axis, abs=0.5)
    assert error_of(tomography.recon(lines, np.radians(theta), axis)[0]) < 0.035


@pytest.mark.parametrize("mirrored", [False, True])
def test_full_turn_about_an_axis_near_the_edge_shows_the_whole_object(mirrored: bool) -> None:
    lines, theta, axis = scan(360, turn=360.0)
    # The detector reaches 40 columns beyond the axis on one side.
    first = round(axis) - 40
    lines, axis = lines[:, :, first:], axis - first
    if mirrored:
        lines, theta, axis = lines[:, :, ::-1], -theta, lines.shape[2] - 1 - axis
    assert tomography.find_center(lines, theta, extended=True) == pytest.approx(axis, abs=0.75)
    image = tomography.recon(lines, np.radians(theta), axis, extended=True)[0]
    assert image.shape[0] >= COLUMNS
    if mirrored:
        image = image[:, ::-1]  # turning the other way
    error = error_of(image)
    print(f"extended: root mean square error {error:.4f}")
    assert error < 0.05
    live = tomography.LiveReconstruction(center=axis, extended=True)
    for part in range(0, 360, 45):
        added = live.add(lines[part : part + 45], theta[part : part + 45])
    whole = tomography.recon(lines, np.radians(theta), axis, extended=True)
    assert np.abs(added - whole).max() <= 1e-5 * np.abs(whole).max()


def test_axis_is_searched_to_a_fraction_of_a_column() -> None:
    lines, theta, axis = scan(120)
    assert tomography.search_center(lines, theta, axis + 5) == pytest.approx(axis, abs=0.5)
    assert tomography.search_center(lines, theta, axis - 3, width=5) == pytest.approx(axis, abs=0.5)
    with pytest.raises(forebay.InvalidArgumentError, match="lies on the detector"):
        tomography.search_center(lines, theta, 5000.0)


def test_phantom_is_not_what_an_empty_slice_is() -> None:
    assert error_of(np.zeros((288, 288))) > 0.1
    assert phantom().max() > 0.9


def test_rings_are_removed_when_the_scan_has_ended(reservation: str) -> None:
    lines, theta, axis = scan(90)
    lines = lines.copy()
    lines[:, 0, [90, 120, 121, 170]] += 10.0
    address = f"{reservation}/scan"
    counts = (10 + 1000 * np.exp(-lines / 50)).astype(np.float32)
    with tomography.ScanWriter(address, angles_per_step=45) as writer:
        writer.dark(np.full(counts.shape[1:], 10, np.float32))
        writer.white(np.full(counts.shape[1:], 1010, np.float32))
        for frame, angle in zip(counts, theta, strict=True):
            writer.projection(frame, angle)
    seen = list(tomography.reconstruct(address, rows=[0], center=axis, timeout=seconds(60), without_rings=True))
    assert [slices.angles for slices in seen] == [45, 90, 90]
    assert error_of(50 * seen[2].image[0]) < 0.8 * error_of(50 * seen[1].image[0])
