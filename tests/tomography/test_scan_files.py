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
from tests.support.time_limits import seconds
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
    *_, slices = tomography.reconstruct(address, rows=[0], center=scan(ANGLES)[2], timeout=seconds(60))
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


def test_scan_writer_keeps_no_array_of_the_camera(reservation: str) -> None:
    buffer = np.empty((2, 4), np.uint16)
    with tomography.ScanWriter(f"{reservation}/scan", angles_per_step=10) as writer:
        for number in range(3):
            buffer[:] = 100 + number
            writer.white(buffer)
        for number in range(10):
            buffer[:] = number
            writer.projection(buffer, float(number))
    with forebay.open(f"{reservation}/scan") as stream:
        assert stream[0]["projections"][:, 0, 0].tolist() == list(range(10))
        assert stream[0]["white"][:, 0, 0].tolist() == [100, 101, 102]


@pytest.mark.parametrize("layout", ["data-exchange", "zarr"])
def test_export_keeps_the_values_of_each_type(reservation: str, tmp_path: Path, layout: Any) -> None:
    """Fields that are means, darks below zero, and projections whose type changes."""
    with tomography.ScanWriter(f"{reservation}/scan", angles_per_step=2) as writer:
        writer.white(np.full((2, 4), 70000.5))
        writer.dark(np.full((2, 4), -3, np.int16))
        for number in range(2):
            writer.projection(np.full((2, 4), 65535 - number, np.uint16), float(number))
        for number in range(2):
            writer.projection(np.full((2, 4), 70000 + number, np.uint32), float(number))
        writer.projection(np.full((2, 4), 0.25, np.float32), 4.0)
    tomography.export(f"{reservation}/scan", tmp_path / "out", layout)
    names = ("data", "data_white", "data_dark")
    if layout == "zarr":
        group = zarr.open_group(tmp_path / "out", mode="r")
        data, white, dark = (group[name][...] for name in names)
    else:
        with h5py.File(tmp_path / "out") as file:
            data, white, dark = (file["exchange"][name][...] for name in names)
    assert data[:, 0, 0].tolist() == [65535, 65534, 70000, 70001, 0.25]
    assert white[0, 0, 0] == 70000.5
    assert dark[0, 0, 0] == -3


def test_export_refuses_types_that_no_type_holds_exactly(reservation: str, tmp_path: Path) -> None:
    with tomography.ScanWriter(f"{reservation}/scan", angles_per_step=1) as writer:
        writer.projection(np.full((2, 4), 2**63, np.uint64), 0.0)
        writer.projection(np.full((2, 4), -1, np.int64), 1.0)
    with pytest.raises(forebay.InvalidArgumentError, match="no type holds all of uint64, int64 exactly"):
        tomography.export(f"{reservation}/scan", tmp_path / "out.h5")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("angle", [float("nan"), float("inf")])
def test_projection_without_an_angle_is_refused(reservation: str, tmp_path: Path, angle: float) -> None:
    with (
        pytest.raises(forebay.InvalidArgumentError, match="has an angle in degrees, not"),
        tomography.ScanWriter(f"{reservation}/scan") as writer,
    ):
        writer.projection(np.zeros((2, 4)), angle)
    with forebay.open(f"{reservation}/other", mode="w") as stream, stream.step() as step:
        step["white"] = step["dark"] = np.zeros((1, 2, 4))
        step["projections"] = np.zeros((3, 2, 4))
        step["theta"] = np.array([0.0, angle, 2.0])
    with pytest.raises(forebay.InvalidArgumentError, match=r"1 of the step's 3 projections have no angle"):
        list(tomography.reconstruct(f"{reservation}/other", timeout=seconds(60)))
    with pytest.raises(forebay.InvalidArgumentError, match="angle of projection 1 is not finite"):
        tomography.recon(np.zeros((3, 2, 4)), np.array([0.0, angle, 2.0]))


def test_masked_frame_is_refused(reservation: str) -> None:
    frame = np.ma.masked_equal(np.arange(8).reshape(2, 4), 3)
    with tomography.ScanWriter(f"{reservation}/scan") as writer:
        with pytest.raises(forebay.InvalidArgumentError, match="stream has no mask"):
            writer.projection(frame, 0.0)
        writer.projection(np.ma.array(np.ones((2, 4))), 0.0)  # nothing is hidden


def virtual_scan(folder: Path) -> Path:
    """An NXtomo file whose frames lie in another, ``frames.h5``; some tens of them only in ``more.h5``."""
    write_nxtomo(folder / "scan.nxs")
    path = "entry1/tomo_entry/instrument/detector/data"
    with h5py.File(folder / "scan.nxs", "r+") as file:
        frames = file[path][...]
        del file[path]
        layout = h5py.VirtualLayout(frames.shape, frames.dtype)
        for name, first, last in (("frames.h5", 0, 40), ("more.h5", 40, len(frames))):
            with h5py.File(folder / name, "w") as source:
                source["data"] = frames[first:last]
            layout[first:last] = h5py.VirtualSource(name, "data", frames[first:last].shape)
        file.create_virtual_dataset(path, layout)
    return folder / "scan.nxs"


def test_virtual_frames_are_read_where_they_are_all_there(reservation: str, tmp_path: Path) -> None:
    assert tomography.ingest(virtual_scan(tmp_path), f"{reservation}/scan") == ANGLES
    with forebay.open(f"{reservation}/scan") as stream:
        assert stream[-1]["projections"][...].min() > 0


@pytest.mark.parametrize("what", ["file", "dataset", "frames"])
def test_virtual_frames_that_are_away_are_not_read_as_zeros(reservation: str, tmp_path: Path, what: str) -> None:
    scan_file = virtual_scan(tmp_path)
    with h5py.File(tmp_path / "more.h5", "w") as source:
        if what == "frames":
            source["data"] = np.ones((3, 2, 4), np.uint16)
    if what == "file":
        (tmp_path / "more.h5").unlink()
    expected = {"file": "no source file more.h5", "dataset": "more.h5 has no data", "frames": "smaller than"}[what]
    with pytest.raises(forebay.InvalidArgumentError, match=expected):
        tomography.ingest(scan_file, f"{reservation}/scan")
    with forebay.Admin() as admin:
        assert not [info for info in admin.streams(reservation) if info.name == "scan"]


def test_frames_that_were_never_written_are_not_read_as_zeros(reservation: str, tmp_path: Path) -> None:
    path = "entry1/tomo_entry/instrument/detector/data"
    for chunks, expected in ((None, "never written"), ((1, 2, 4), "chunks were never written")):
        write_nxtomo(tmp_path / "scan.nxs")
        with h5py.File(tmp_path / "scan.nxs", "r+") as file:
            shape = file[path].shape
            del file[path]
            made = file.create_dataset(path, (shape[0], 2, 4), np.uint16, chunks=chunks)
            if chunks:
                made[:10] = 1
        with pytest.raises(forebay.InvalidArgumentError, match=expected):
            tomography.ingest(tmp_path / "scan.nxs", f"{reservation}/scan")
        (tmp_path / "scan.nxs").unlink()


def test_frames_for_the_alignment_are_no_projections(reservation: str, tmp_path: Path) -> None:
    write_nxtomo(tmp_path / "scan.nxs")
    detector = "entry1/tomo_entry/instrument/detector"
    with h5py.File(tmp_path / "scan.nxs", "r+") as file:
        control = file[f"{detector}/image_key"][...].astype(np.int8)
        control[-3:] = -1
        file[f"{detector}/image_key_control"] = control
    assert tomography.ingest(tmp_path / "scan.nxs", f"{reservation}/scan") == ANGLES - 3
    with forebay.open(f"{reservation}/scan") as stream:
        assert float(stream[-1]["theta"][-1]) == 3.0 * (ANGLES - 4)
