# SPDX-License-Identifier: Apache-2.0
"""A scan as one NXtomo file: read back by h5py, with a receipt, its steps marked as staged out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.workflows.beamline import ImageKey, ScanSettings, ScanStreams
from forebay.workflows.beamline.nxtomo import export_nxtomo
from forebay.workflows.staging import publication

h5py = pytest.importorskip("h5py")
ANGLES = 10


def image(number: int) -> NDArray[np.uint16]:
    pixels = np.arange(16 * 32, dtype=np.uint16).reshape(16, 32)
    return (pixels * (number + 1)).astype(np.uint16)


def take(address: str) -> dict[int, NDArray[np.uint16]]:
    """Fields, projections without number 5, and fields once more; the frames by their numbers."""
    frames: dict[int, NDArray[np.uint16]] = {}
    with ScanStreams(address, expected=15, attributes={"sample": "a tooth"}, settings=ScanSettings(4)) as scan:

        def take_one(number: int, key: ImageKey, theta: float = float("nan")) -> None:
            frames[number] = image(number)
            scan.frame(frames[number], key=key, theta=theta, number=number, acquired=1.8e9 + number)

        take_one(0, ImageKey.WHITE)
        take_one(1, ImageKey.DARK)
        take_one(2, ImageKey.WHITE)
        for angle in range(ANGLES):
            # The detector lost the trigger after the second projection.
            take_one(3 + angle + (angle > 1), ImageKey.PROJECTION, 18.0 * angle)
        take_one(14, ImageKey.WHITE)
    return frames


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forebay", "beamline", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_an_exported_scan_is_nxtomo_with_all_frames_and_a_receipt(beamline: str, tmp_path: Path) -> None:
    frames = take(f"{beamline}/tooth")
    done = run("export", f"{beamline}/tooth", str(tmp_path / "archive"), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["frames"], told["projections"], told["marked"]) == (14, ANGLES, True)
    with h5py.File(told["path"]) as file:
        assert file["entry/definition"].asstr()[()] == "NXtomo"
        kinds = {name: file[name].attrs["NX_class"] for name in ("entry", "entry/instrument/detector", "entry/sample")}
        assert list(kinds.values()) == ["NXentry", "NXdetector", "NXsample"]
        detector = file["entry/instrument/detector"]
        assert detector["sequence_number"][...].tolist() == sorted(frames)
        assert detector["image_key"][...].tolist() == [1, 2, 1, *[0] * ANGLES, 1]
        assert np.array_equal(detector["data"], [frames[number] for number in sorted(frames)])
        assert file["entry/data/data"] == detector["data"]
        assert detector["data"].dtype == np.uint16
        angles = [18.0 * angle for angle in range(ANGLES)]
        assert file["entry/sample/rotation_angle"][...].tolist() == [0.0, 0.0, 0.0, *angles, angles[-1]]
        assert file["entry/sample/rotation_angle"].attrs["units"] == "degree"
        assert file["entry/sample/name"].asstr()[()] == "a tooth"
        assert file["entry/start_time"].asstr()[()] == "2027-01-15T08:00:03+00:00"
        assert file["entry/forebay/acquired"][3:5].tolist() == [1.8e9 + 3, 1.8e9 + 4]
        assert file["entry/forebay"].attrs["scan/frames_expected"] == 15
    receipt = json.loads(Path(told["receipt"]).read_text())
    [entry] = receipt["steps"]
    assert (entry["format"], entry["output"], entry["complete"]) == ("nxtomo", "tooth.nxs", True)
    assert (entry["verified"], entry["steps"]) == ("checksums", [[step, 1] for step in range(4)])
    assert entry["files"][0]["crc32c"] == f"{forebay.crc32c(Path(told['path']).read_bytes()):08x}"
    with forebay.Admin() as admin:
        assert all(step.staged and not step.precious for step in admin.steps(f"{beamline}/tooth"))


@pytest.mark.parametrize("dataset", ["entry/sample/rotation_angle", "entry/instrument/detector/data"])
def test_what_reads_back_otherwise_gets_no_name_and_no_step_is_marked(
    beamline: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str
) -> None:
    take(f"{beamline}/tooth")
    sync = publication.sync_tree

    def damage(path: Path) -> None:
        sync(path)
        with h5py.File(path, "r+") as file:
            file[dataset][7] += 1

    monkeypatch.setattr(publication, "sync_tree", damage)
    with pytest.raises(forebay.CorruptError, match=f"{dataset} of frames .* reads back as something else"):
        export_nxtomo(f"{beamline}/tooth", tmp_path / "archive")
    assert list((tmp_path / "archive").glob("*.nxs")) == []
    with forebay.Admin() as admin:
        assert not any(step.staged for step in admin.steps(f"{beamline}/tooth"))


def test_what_is_exported_comes_back_as_the_same_scan(beamline: str, tmp_path: Path) -> None:
    from forebay.connectors import tomography

    frames = take(f"{beamline}/tooth")
    assert run("export", f"{beamline}/tooth", str(tmp_path)).returncode == 0
    assert tomography.ingest(tmp_path / "tooth.nxs", f"{beamline}/again") == ANGLES
    with forebay.open(f"{beamline}/again", timeout=0) as stream:
        found = [frame for step in stream if "projections" in step for frame in step["projections"][...]]
        theta = [float(angle) for step in stream if "theta" in step for angle in step["theta"][...]]
    assert np.array_equal(found, [frames[number] for number in sorted(frames)[3:13]])
    assert theta == [18.0 * angle for angle in range(ANGLES)]


def test_an_export_is_repeated_and_replaces_nothing_that_is_not_its_own(beamline: str, tmp_path: Path) -> None:
    take(f"{beamline}/tooth")
    target = tmp_path / "tooth.nxs"
    target.write_text("mine")
    refused = run("export", f"{beamline}/tooth", str(tmp_path))
    assert refused.returncode == 1
    assert "is in no receipt" in refused.stdout + refused.stderr
    assert target.read_text() == "mine"
    assert run("export", f"{beamline}/tooth", str(tmp_path), "--replace").returncode == 0
    before = target.stat().st_ino
    assert run("export", f"{beamline}/tooth", str(tmp_path)).returncode == 0
    assert target.stat().st_ino == before
    # One that was damaged is made again.
    with target.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    assert run("export", f"{beamline}/tooth", str(tmp_path)).returncode == 0
    assert target.stat().st_ino != before
    assert sorted(path.name for path in tmp_path.glob("*.nxs")) == ["tooth.nxs"]
    assert not list(tmp_path.glob(".tooth*"))


def test_a_scan_that_runs_or_lost_steps_is_not_exported(beamline: str, tmp_path: Path) -> None:
    from forebay.workflows.beamline.nxtomo import export_nxtomo

    with ScanStreams(f"{beamline}/tooth", settings=ScanSettings(1)) as scan:
        scan.frame(image(0), theta=0.0)
        with pytest.raises(forebay.InvalidArgumentError, match="has not ended"):
            export_nxtomo(f"{beamline}/tooth", tmp_path)
        scan.frame(image(1), theta=1.0)
    with forebay.Admin() as admin:
        admin.mark_staged(f"{beamline}/tooth", 1, [0], "elsewhere")
        admin.drop_steps(f"{beamline}/tooth", [0])
    with pytest.raises(forebay.InvalidArgumentError, match="steps of it were dropped"):
        export_nxtomo(f"{beamline}/tooth", tmp_path)
    with forebay.open(f"{beamline}/flow", "w") as stream:
        stream.write("T", 1.0)
    with pytest.raises(forebay.InvalidArgumentError, match="is no scan"):
        export_nxtomo(f"{beamline}/flow", tmp_path)
    assert not list(tmp_path.glob("*.nxs"))


def test_a_scan_with_more_than_nxtomo_has_is_not_marked(beamline: str, tmp_path: Path) -> None:
    with forebay.open(f"{beamline}/tooth", "w", retention="precious:1") as stream, stream.step() as step:
        step["projections"] = np.stack([image(0), image(1)])
        step["theta"] = np.array([0.0, 90.0])
        step["current"] = 1.0
    done = run("export", f"{beamline}/tooth", str(tmp_path))
    assert done.returncode == 0
    assert "not marked as staged out" in done.stderr
    [entry] = json.loads((tmp_path / "receipt.json").read_text())["steps"]
    assert (entry["complete"], [variable["name"] for variable in entry["variables"]]) == (
        False,
        ["projections", "theta"],
    )
    with forebay.Admin() as admin:
        assert [step.staged for step in admin.steps(f"{beamline}/tooth")] == [False]
    with h5py.File(tmp_path / "tooth.nxs") as file:
        assert file["entry/instrument/detector/sequence_number"][...].tolist() == [-1, -1]


def test_an_interrupted_scan_is_exported_with_the_frames_that_it_has(beamline: str, tmp_path: Path) -> None:
    from forebay.workflows.beamline.nxtomo import export_nxtomo

    scan = ScanStreams(f"{beamline}/tooth", settings=ScanSettings(2))
    for number in range(5):
        scan.frame(image(number), theta=float(number))
    scan.abandon()
    done = export_nxtomo(f"{beamline}/tooth", tmp_path)
    assert (done.frames, done.projections) == (4, 4)
    with h5py.File(done.path) as file:
        assert np.array_equal(file["entry/data/data"], [image(number) for number in range(4)])


def test_frames_of_several_types_keep_their_values(beamline: str, tmp_path: Path) -> None:
    with ScanStreams(f"{beamline}/mixed", settings=ScanSettings(2)) as scan:
        scan.frame(np.full((4, 8), 70000.5), key=ImageKey.WHITE)
        scan.frame(np.full((4, 8), -3, np.int16), key=ImageKey.DARK)
        scan.frame(np.full((4, 8), 65535, np.uint16), theta=0.0)
        scan.frame(np.full((4, 8), 0.25, np.float32), theta=1.0)
    done = export_nxtomo(f"{beamline}/mixed", tmp_path)
    with h5py.File(done.path) as file:
        assert file["entry/instrument/detector/data"][:, 0, 0].tolist() == [70000.5, -3, 65535, 0.25]


def test_a_projection_without_an_angle_gets_none_from_its_neighbours(beamline: str, tmp_path: Path) -> None:
    with ScanStreams(f"{beamline}/angles", settings=ScanSettings(2)) as scan:
        scan.frame(image(0), key=ImageKey.WHITE)
        scan.frame(image(1), theta=7.0)
        scan.frame(image(2))
        scan.frame(image(3))
        scan.frame(image(4), key=ImageKey.WHITE)
    done = export_nxtomo(f"{beamline}/angles", tmp_path)
    with h5py.File(done.path) as file:
        np.testing.assert_array_equal(file["entry/sample/rotation_angle"], [7.0, 7.0, np.nan, np.nan, 7.0])


def test_a_masked_image_is_refused(beamline: str) -> None:
    with ScanStreams(f"{beamline}/masked") as scan:
        with pytest.raises(forebay.InvalidArgumentError, match="stream has no mask"):
            scan.frame(np.ma.masked_equal(np.arange(8).reshape(2, 4), 3), theta=0.0)
        scan.frame(np.zeros((2, 4)), theta=0.0)
