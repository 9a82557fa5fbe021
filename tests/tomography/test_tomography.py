# SPDX-License-Identifier: Apache-2.0
"""Scans over a real server: a phantom of known truth, and the real scan of a tooth where it is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
from PIL import Image

import forebay
from forebay.connectors import tomography
from tests.support.processes import PythonProcess
from tests.support.staging_server import StagingServer
from tests.support.time_limits import seconds
from tests.tomography.phantom import COLUMNS, OFFSET, error_of, scan

ROOT = Path(__file__).resolve().parents[2]


def tooth() -> Path:
    """The scan of a tooth: where $FOREBAY_TOOTH says, else beside the repository."""
    named = os.environ.get("FOREBAY_TOOTH")
    path = Path(named) if named else ROOT.parent / "shared/data/tooth.h5"
    if not path.is_file():
        pytest.skip(f"the scan tooth.h5 is not there: set FOREBAY_TOOTH to its path, or put it at {path}")
    return path


def write_detector_scan(path: Path, *, units: str = "degrees", angles: int = 45) -> None:
    """A Data Exchange file of what a detector would count: whites around 1000, darks around 10."""
    lines, theta, _ = scan(angles)
    counts = 10 + 1000 * np.exp(-lines / 50)
    with h5py.File(path, "w") as file:
        file["implements"] = "exchange:measurement"
        exchange = file.create_group("exchange")
        exchange["data"] = counts.astype(np.float32)
        exchange["data_white"] = np.full((2, *counts.shape[1:]), 1010, np.float32)
        exchange["data_dark"] = np.full((3, *counts.shape[1:]), 10, np.float32)
        exchange["theta"] = np.radians(theta) if units == "radians" else theta
        exchange["theta"].attrs["units"] = units


def test_phantom_is_reconstructed_about_an_axis_off_the_middle() -> None:
    lines, theta, axis = scan()
    image = tomography.recon(lines, np.radians(theta), center=axis)
    error = error_of(image[0])
    print(f"root mean square error {error:.4f}")
    assert error < 0.035
    np.testing.assert_allclose(image[1], 0.5 * image[0], atol=1e-4)
    ordered = tomography.recon(lines.swapaxes(0, 1), np.radians(theta), center=axis, sinogram_order=True)
    np.testing.assert_array_equal(ordered, image)


def test_algebraic_technique_is_another_algorithm() -> None:
    lines, theta, axis = scan(60)
    image = tomography.recon(lines[:, :1], np.radians(theta), center=axis, algorithm="sart", num_iter=2)
    assert error_of(image[0]) < 0.09
    with pytest.raises(forebay.UnsupportedError, match="no algorithm 'gridrec'"):
        tomography.recon(lines, np.radians(theta), algorithm="gridrec")


def test_rings_are_removed_and_the_object_stays() -> None:
    lines, theta, axis = scan()
    striped = lines.copy()
    for column in (90, 120, 121, 170):  # pixels that count too little
        striped[:, 0, column] += 10.0
    kept = tomography.remove_rings(striped)

    def error(given: np.ndarray) -> float:
        return error_of(tomography.recon(given[:, :1], np.radians(theta), center=axis)[0])

    assert error(striped) > 0.06
    assert error(kept) < 0.042  # 0.034 without stripes and without removal
    with pytest.raises(forebay.InvalidArgumentError, match="odd number"):
        tomography.remove_rings(lines, 4)


@pytest.mark.parametrize("last", [180.0, 150.0])
def test_centre_is_found_by_pair_and_by_fit(last: float) -> None:
    lines, _, axis = scan(180)
    theta = np.linspace(0.0, 180.0, 180, endpoint=False)
    chosen = theta < last
    assert tomography.find_center(lines[chosen], theta[chosen]) == pytest.approx(axis, abs=1.0)


def test_centre_is_not_guessed_from_few_angles() -> None:
    lines, theta, _ = scan(180)
    with pytest.raises(forebay.InvalidArgumentError, match="120 degrees"):
        tomography.find_center(lines[:60], theta[:60])


def test_last_preview_equals_the_whole() -> None:
    lines, theta, axis = scan(90)
    live = tomography.LiveReconstruction(center=axis)
    for first in range(0, 90, 8):  # the last batch is smaller
        image = live.add(lines[first : first + 8], theta[first : first + 8])
    whole = tomography.recon(lines, np.radians(theta), center=axis)
    assert np.abs(image - whole).max() <= 1e-5 * np.abs(whole).max()


def test_slices_come_while_the_detector_runs(reservation: str) -> None:
    lines, theta, _ = scan(90)
    address = f"{reservation}/scan"
    counts = (10 + 1000 * np.exp(-lines / 50)).astype(np.float32)
    seen_first = threading.Event()

    def detector() -> None:
        with tomography.ScanWriter(address, angles_per_step=15, rows_per_block=1) as writer:
            writer.dark(np.full(counts.shape[1:], 10, np.float32))
            writer.white(np.full(counts.shape[1:], 1010, np.float32))
            for number in range(90):
                if number == 45:
                    assert seen_first.wait(60)  # no more frames before a slice was seen
                    writer.white(np.full(counts.shape[1:], 510, np.float32))  # the beam is half as bright from here on
                scale = 1.0 if number < 45 else 0.5
                writer.projection(10 + scale * (counts[number] - 10), theta[number])

    running = threading.Thread(target=detector)
    running.start()
    angles = []
    for slices in tomography.reconstruct(address, rows=[0], timeout=seconds(60)):
        seen_first.set()
        angles.append(slices.angles)
    running.join()
    assert angles == [15, 30, 45, 60, 75, 90]
    assert slices.center == pytest.approx(COLUMNS // 2 + 16 + OFFSET, abs=0.5)
    assert error_of(50 * slices.image[0]) < 0.06


DETECTOR_THAT_DIES = """
    import os, sys
    import numpy as np
    from forebay.connectors import tomography
    writer = tomography.ScanWriter(sys.argv[1], angles_per_step=2, rows_per_block=1)
    writer.dark(np.zeros((1, 8), np.float32))
    writer.white(np.ones((1, 8), np.float32))
    for number in range(4):
        writer.projection(np.full((1, 8), 0.5, np.float32), 45.0 * number)
    print("written")
    input()
    os._exit(1)
"""


def test_what_a_scan_waits_for_is_told(reservation: str) -> None:
    address = f"{reservation}/scan"
    told: list[forebay.Notice] = []
    with PythonProcess(DETECTOR_THAT_DIES, address) as detector:
        assert detector.line() == "written"
        slices = tomography.reconstruct(address, center=3.5, timeout=seconds(5), on_notice=told.append)
        next(slices)
        detector.tell()
        with pytest.raises(forebay.StepTimeoutError):
            list(slices)
    assert [notice.status for notice in told] == [forebay.StreamStatus.INTERRUPTED]


def test_rows_are_read_without_the_others(reservation: str) -> None:
    address = f"{reservation}/rows"
    with tomography.ScanWriter(address, angles_per_step=4, rows_per_block=2) as writer:
        for number in range(8):
            writer.projection(np.full((6, 10), number, np.uint16), 10.0 * number)
    with forebay.open(address) as stream:
        variable = stream[1]["projections"]
        assert [block.start for block in variable.blocks] == [(0, 0, 0), (0, 2, 0), (0, 4, 0)]
        assert variable.dtype == np.uint16
        assert not variable[:, 2:4].flags.owndata


@pytest.mark.parametrize("units", ["degrees", "radians"])
def test_data_exchange_file_becomes_a_stream(reservation: str, tmp_path: Path, units: str) -> None:
    write_detector_scan(tmp_path / "scan.h5", units=units)
    assert tomography.ingest(tmp_path / "scan.h5", f"{reservation}/scan", angles_per_step=20) == 45
    with forebay.open(f"{reservation}/scan") as stream:
        assert [stream[number]["projections"].shape[0] for number in range(3)] == [20, 20, 5]
        assert stream[2]["theta"][...][-1] == pytest.approx(176.0)
        assert stream[0]["dark"].shape[0] == 3


def test_file_that_is_no_scan_says_what_is_missing(reservation: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["exchange/data"] = np.zeros((3, 2, 4))
    with pytest.raises(forebay.InvalidArgumentError, match="data_white, data_dark, theta"):
        tomography.ingest(tmp_path / "other.h5", f"{reservation}/scan")


def test_scan_of_another_instance_than_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FOREBAY_SOCKET", raising=False)
    monkeypatch.setenv("FOREBAY_ROOT", str(tmp_path / "nowhere"))
    with StagingServer(tmp_path / "root") as server:
        with forebay.Admin(server.root) as admin:
            admin.create("beamline", "16MiB")
        with tomography.ScanWriter("beamline/scan", instance=server.root) as writer:
            writer.dark(np.zeros((2, 8)))
            writer.white(np.ones((2, 8)))
            for degrees in range(0, 180, 20):
                writer.projection(np.full((2, 8), 0.5), float(degrees))
        slices = list(tomography.reconstruct("beamline/scan", instance=server.root, center=3.5, timeout=seconds(30)))
        assert slices[-1].angles == 9


def test_stream_that_is_no_scan_is_refused(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream, stream.step() as step:
        step["T"] = np.zeros(4)
    with pytest.raises(forebay.InvalidArgumentError, match="no variable projections"):
        next(tomography.reconstruct(f"{reservation}/flow", timeout=seconds(30)))
    with tomography.ScanWriter(f"{reservation}/bare") as writer:
        writer.projection(np.zeros((2, 8)), 0.0)
    with pytest.raises(forebay.InvalidArgumentError, match="no white and dark fields"):
        next(tomography.reconstruct(f"{reservation}/bare", timeout=seconds(30)))
    with pytest.raises(forebay.InvalidArgumentError, match="from 0 to 1"):
        next(tomography.reconstruct(f"{reservation}/bare", rows=[2], timeout=seconds(30)))


def test_command_writes_preview_and_slices(reservation: str, tmp_path: Path) -> None:
    write_detector_scan(tmp_path / "scan.h5")
    tomography.ingest(tmp_path / "scan.h5", f"{reservation}/scan")
    command = [
        sys.executable,
        "-m",
        "forebay",
        "reconstruct",
        f"{reservation}/scan",
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run(
        [*command, "--rows", "0:2", "--consumer", "recon", "--json"],
        capture_output=True,
        text=True,
        timeout=seconds(110),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["angles"] == 45
    slices = [tifffile.imread(path) for path in told["slices"]]
    assert len(slices) == 2
    np.testing.assert_allclose(slices[1], 0.5 * slices[0], atol=1e-4)
    assert Image.open(tmp_path / "out/preview.png").size == slices[0].shape
    with forebay.open(f"{reservation}/scan") as stream:
        assert stream.lag("recon") == 0


def test_tooth_is_reconstructed_live(reservation: str) -> None:
    path = tooth()
    address = f"{reservation}/tooth"
    assert tomography.ingest(path, address) == 181
    previews = list(tomography.reconstruct(address, rows=[0], timeout=seconds(60)))
    assert [slices.angles for slices in previews][-1] == 181
    last = previews[-1]
    # What algotom's search and a pair of projections find for this scan: 295 to 296.
    assert 294.5 <= last.center <= 296.5
    # A tooth: dense, bounded, and empty around it.
    image = last.image[0]
    size = image.shape[0]
    y, x = np.mgrid[:size, :size] - size // 2
    outside, inside = np.hypot(x, y) > 0.47 * size, np.hypot(x, y) < 0.25 * size
    assert image[inside].mean() > 10 * abs(image[outside & (np.hypot(x, y) < 0.49 * size)].mean())
