# SPDX-License-Identifier: Apache-2.0
"""Scans from files of three facilities, and back to files that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import zarr

import forebay
from forebay.connectors import tomography
from tests.tomography.phantom import error_of, scan

ANGLES = 60


def counts() -> tuple[np.ndarray, np.ndarray]:
    """What a detector counts behind the phantom, and the angles."""
    lines, theta, _ = scan(ANGLES)
    return (10 + 60000 * np.exp(-lines / 50)).astype(np.uint16), theta


def field(value: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.full(shape, value, np.uint16)


def write_nxtomo(path: Path, *, units: str = "deg", fields_at_end: bool = False) -> None:
    """Frames of all kinds in one stack; every white field in the middle is half as bright."""
    data, theta = counts()
    shape = data.shape[1:]
    half = ANGLES // 2
    dim = (10 + (data[half:].astype(int) - 10) // 2).astype(np.uint16)
    dark, white, second = ([field(value, shape)] * 2 for value in (10, 60010, 30010))
    if fields_at_end:
        parts: list[tuple[int, Any]] = [(0, data), (2, dark), (1, white)]
    else:
        parts = [(2, dark), (1, white), (0, data[:half]), (3, [data[0]]), (1, second), (0, dim)]
    frames = np.concatenate([np.asarray(stack) for _, stack in parts])
    keys = np.concatenate([np.full(len(stack), key) for key, stack in parts])
    angles = np.zeros(len(keys))
    angles[keys == 0] = theta
    with h5py.File(path, "w") as file:
        entry = file.create_group("entry1/tomo_entry")
        entry.attrs["NX_class"] = "NXsubentry"
        entry["definition"] = "NXtomo"
        entry["instrument/detector/data"] = frames
        entry["instrument/detector/image_key"] = keys
        entry["sample/rotation_angle"] = np.radians(angles) if units == "rad" else angles
        entry["sample/rotation_angle"].attrs["units"] = units


def write_als(path: Path) -> None:
    """One dataset for each frame, named as beamline 8.3.2 does; first and last angle are included."""
    lines, _, _ = scan(ANGLES)
    data, _ = counts()
    with h5py.File(path, "w") as file:
        group = file.create_group("20261124_tooth")
        group.attrs["nangles"], group.attrs["arange"], group.attrs["i0cycle"] = str(ANGLES), "177.0", "0"
        for number in range(ANGLES):
            group[f"20261124_tooth_0000_{number:04d}.tif"] = data[number][np.newaxis]
        for number in range(3):
            for at in (0, ANGLES - 1):
                group[f"20261124_toothbak_{number:04d}_{at:04d}.tif"] = field(60010, lines.shape[1:])[np.newaxis]
            group[f"20261124_toothdrk_{number:04d}_{ANGLES - 1:04d}.tif"] = field(10, lines.shape[1:])[np.newaxis]


def last_slice(address: str) -> np.ndarray:
    *_, slices = tomography.reconstruct(address, rows=[0], center=scan(ANGLES)[2], timeout=60)
    assert slices.angles == ANGLES
    image: np.ndarray = 50 * slices.image[0]
    return image


@pytest.mark.parametrize("units", ["deg", "rad"])
def test_nxtomo_scan_keeps_fields_that_were_taken_again(reservation: str, tmp_path: Path, units: str) -> None:
    write_nxtomo(tmp_path / "scan.nxs", units=units)
    address = f"{reservation}/scan"
    assert tomography.ingest(tmp_path / "scan.nxs", address, angles_per_step=10) == ANGLES
    with forebay.open(address) as stream:
        assert [number for number in range(len(stream)) if "white" in stream[number]] == [0, 3]
        assert stream[0]["dark"].shape[0] == 2
        assert stream[5]["theta"][...][-1] == pytest.approx(177.0)
        assert stream[0]["projections"].dtype == np.uint16
    assert error_of(last_slice(address)) < 0.08


def test_fields_after_the_projections_count_from_the_beginning(reservation: str, tmp_path: Path) -> None:
    write_nxtomo(tmp_path / "scan.nxs", fields_at_end=True)
    address = f"{reservation}/scan"
    tomography.ingest(tmp_path / "scan.nxs", address)
    with forebay.open(address) as stream:
        assert {"white", "dark"} <= set(stream[0])
    assert error_of(last_slice(address)) < 0.08


def test_als_scan_is_read(reservation: str, tmp_path: Path) -> None:
    write_als(tmp_path / "scan.h5")
    address = f"{reservation}/scan"
    assert tomography.ingest(tmp_path / "scan.h5", address, angles_per_step=16) == ANGLES
    with forebay.open(address) as stream:
        assert stream[0]["white"].shape[0] == 3
        assert stream[0]["dark"].shape[0] == 3
        assert stream[3]["theta"][...][-1] == pytest.approx(177.0)
    assert error_of(last_slice(address)) < 0.08


def test_files_that_are_no_scan_say_why(reservation: str, tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w") as file:
        file["other"] = 1
    with pytest.raises(forebay.InvalidArgumentError, match="no scan that is known"):
        tomography.ingest(path, f"{reservation}/scan")
    with h5py.File(path, "w") as file:
        file["entry/instrument/detector/data"] = np.zeros((2, 3, 4))
        file["entry/instrument/detector/image_key"] = np.zeros(2)
    with pytest.raises(forebay.InvalidArgumentError, match="sample/rotation_angle"):
        tomography.ingest(path, f"{reservation}/scan")
    with h5py.File(path, "a") as file:
        file["entry/sample/rotation_angle"] = np.zeros(2)
    with pytest.raises(forebay.InvalidArgumentError, match="no dark fields"):
        tomography.ingest(path, f"{reservation}/scan")
    with forebay.Admin() as admin, pytest.raises(forebay.NotFoundError):
        admin.stream(f"{reservation}/scan")  # nothing was replaced by a file that is no scan


def ingested(reservation: str, tmp_path: Path) -> str:
    write_nxtomo(tmp_path / "scan.nxs")
    tomography.ingest(tmp_path / "scan.nxs", f"{reservation}/scan", angles_per_step=8)
    return f"{reservation}/scan"


def test_exported_data_exchange_file_is_the_scan(reservation: str, tmp_path: Path) -> None:
    address = ingested(reservation, tmp_path)
    assert tomography.export(address, tmp_path / "out.h5") == ANGLES
    with h5py.File(tmp_path / "out.h5", "r") as file, h5py.File(tmp_path / "scan.nxs", "r") as source:
        keys = source["entry1/tomo_entry/instrument/detector/image_key"][...]
        frames = source["entry1/tomo_entry/instrument/detector/data"][...]
        np.testing.assert_array_equal(file["exchange/data"], frames[keys == 0])
        np.testing.assert_array_equal(file["exchange/data_white"], frames[keys == 1])
        np.testing.assert_array_equal(file["exchange/data_dark"], frames[keys == 2])
        np.testing.assert_allclose(file["exchange/theta"], np.arange(0, 180, 3))
        assert file["exchange/theta_white"][...].tolist() == [0.0, 0.0, 90.0, 90.0]
        assert file["exchange/data"].attrs["axes"] == "theta:y:x"
    # And it is a scan again.
    assert tomography.ingest(tmp_path / "out.h5", f"{reservation}/again") == ANGLES


def test_exported_tiff_stack_and_zarr_are_the_scan(reservation: str, tmp_path: Path) -> None:
    address = ingested(reservation, tmp_path)
    tomography.export(address, tmp_path / "stack", "tiff")
    tomography.export(address, tmp_path / "scan.zarr", "zarr")
    with forebay.open(address) as stream:
        frames = np.concatenate([stream[number]["projections"][...] for number in range(len(stream))])
    names = sorted(path.name for path in (tmp_path / "stack").glob("projection_*.tif"))
    assert names == [f"projection_{number:06d}.tif" for number in range(ANGLES)]
    np.testing.assert_array_equal(np.stack([tifffile.imread(tmp_path / "stack" / name) for name in names]), frames)
    assert len(list((tmp_path / "stack").glob("white_*.tif"))) == 4
    assert [float(line) for line in (tmp_path / "stack/theta.txt").read_text().split()] == list(range(0, 180, 3))
    group = zarr.open_group(tmp_path / "scan.zarr", mode="r")
    np.testing.assert_array_equal(group["data"][...], frames)
    assert group["data_dark"].shape[0] == 2
    assert group["theta_white"][...].tolist() == [0.0, 0.0, 90.0, 90.0]


def test_export_refuses_what_it_cannot_do_whole(reservation: str, tmp_path: Path) -> None:
    address = ingested(reservation, tmp_path)
    (tmp_path / "there.h5").write_text("mine")
    with pytest.raises(forebay.AlreadyExistsError):
        tomography.export(address, tmp_path / "there.h5")
    assert (tmp_path / "there.h5").read_text() == "mine"
    with pytest.raises(forebay.InvalidArgumentError, match="layout is one of"):
        tomography.export(address, tmp_path / "other", "nifti")  # type: ignore[arg-type]
    with tomography.ScanWriter(f"{reservation}/short", angles_per_step=1, retention="last:2") as writer:
        for number in range(5):
            writer.projection(np.zeros((2, 4)), float(number))
    with pytest.raises(forebay.InvalidArgumentError, match="only a whole scan"):
        tomography.export(f"{reservation}/short", tmp_path / "short.h5")
    with forebay.open(f"{reservation}/flow", mode="w") as stream, stream.step() as step:
        step["T"] = np.zeros(4)
    with pytest.raises(forebay.InvalidArgumentError, match="no scan"):
        tomography.export(f"{reservation}/flow", tmp_path / "flow.h5")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scan.nxs", "there.h5"]
