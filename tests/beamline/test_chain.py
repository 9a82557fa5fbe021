# SPDX-License-Identifier: Apache-2.0
"""The chain from a detector to the archive, as a service and as a Snakemake workflow, on a real scan of a tooth."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay.workflows.beamline import ScanLog
from tests.support.instance import CommandLineInstance
from tests.support.snakemake import PYTHON, command, needs_snakemake
from tests.support.time_limits import seconds

h5py = pytest.importorskip("h5py")
pytest.importorskip("skimage")
tifffile = pytest.importorskip("tifffile")

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "18_beamline"
TOOTH = Path(__file__).parent.parent.parent.parent / "shared" / "data" / "tooth.h5"
needs_tooth = pytest.mark.skipif(not TOOTH.exists(), reason="the scan of a tooth is not here: ../shared/data/tooth.h5")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLineInstance]:
    with CommandLineInstance(tmp_path / "root", capacity="1GiB") as up:
        up.ask("create", "beamline", "--capacity", "512MiB", "--persistent")
        monkeypatch.setenv("FOREBAY_ROOT", str(up.root))
        yield up


def phantom(path: Path, angles: int = 40) -> None:
    """A disk of 12 pixels' radius and attenuation 0.02, seen from all sides alike."""
    columns = np.arange(64) - 31.5
    line = 2 * np.sqrt(np.clip(12.0**2 - columns**2, 0, None)) * 0.02
    counts = (900 * np.exp(-line) + 100).round().astype(np.uint16)
    with h5py.File(path, "w") as file:
        file["implements"] = "exchange:measurement"
        file["exchange/data"] = np.broadcast_to(counts, (angles, 2, 64))
        file["exchange/data_white"] = np.full((3, 2, 64), 1000, np.uint16)
        file["exchange/data_dark"] = np.full((3, 2, 64), 100, np.uint16)
        file["exchange/theta"] = np.linspace(0, 180, angles, endpoint=False)


def run(instance: CommandLineInstance, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forebay", "beamline", "run", str(folder / "tooth.toml"), "--json"],
        env=os.environ | instance.environment,
        capture_output=True,
        text=True,
        timeout=seconds(240),
        check=False,
    )


def example(tmp_path: Path) -> Path:
    folder = tmp_path / "chain"
    shutil.copytree(EXAMPLE, folder)
    return folder


def check_archive(archive: Path, projections: int) -> None:
    """All frames are there, with a receipt."""
    found = 0
    for path in sorted(archive.rglob("*.h5")):
        with h5py.File(path) as file:
            found += len(file["projections"]) if "projections" in file else 0
    assert found == projections
    assert list(archive.rglob("*receipt*")) or list(archive.parent.rglob("*receipt*"))


def check_nxtomo(path: Path, projections: int) -> None:
    """The same in one file."""
    with h5py.File(path) as file:
        assert np.count_nonzero(file["entry/instrument/detector/image_key"][...] == 0) == projections
        assert len(file["entry/data/data"]) == len(file["entry/data/image_key"])
    assert (path.parent / "receipt.json").exists()


def test_the_service_takes_a_phantom_from_detector_to_archive(instance: CommandLineInstance, tmp_path: Path) -> None:
    folder = example(tmp_path)
    phantom(folder / "tooth.h5")
    done = run(instance, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["scan"], told["frames"], told["failed"]) == ("beamline/tooth-0001", 46, {})
    results = Path(told["results"])
    image = tifffile.imread(results / "slices" / "slice_00000.tif")
    assert np.median(image[28:36, 28:36]) == pytest.approx(0.02, rel=0.1)
    assert abs(np.median(image[4:8, 28:36])) < 0.003
    assert (results / "slices.png").stat().st_size > 100
    check_archive(results / "archive", 40)
    [record] = ScanLog.records("beamline")
    assert (record.exit_status, record.stop and record.stop["frames_written"]) == ("success", 46)
    with forebay.Admin() as admin:
        assert all(step.staged for step in admin.steps("beamline/tooth-0001"))
    assert run(instance, folder).returncode == 0
    assert [record.scan for record in ScanLog.records("beamline")] == ["tooth-0001", "tooth-0002"]
    assert instance.ask("beamline", "retire", "beamline", "--keep", "1")["removed"] == ["tooth-0001"]
    assert instance.run("doctor").returncode == 0


def test_a_part_that_fails_does_not_cost_the_archive(instance: CommandLineInstance, tmp_path: Path) -> None:
    folder = example(tmp_path)
    phantom(folder / "tooth.h5")
    config = (folder / "tooth.toml").read_text()
    (folder / "tooth.toml").write_text(config.replace('"0:2"', '"7:9"').replace('format = "hdf5"', 'format = "nxtomo"'))
    done = run(instance, folder)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert list(told["failed"]) == ["reconstruct"]
    check_nxtomo(Path(told["results"]) / "archive" / "tooth-0001.nxs", 40)
    with forebay.Admin() as admin:
        assert all(step.staged for step in admin.steps("beamline/tooth-0001"))


@pytest.mark.parametrize(
    ("line", "replaced", "named"),
    [
        ('replay = "tooth.h5"', "", "[detector] replay is missing"),
        ("period = 0.0", 'period = "fast"', "period"),
        ("[output]", "[outputs]", "'outputs'"),
        ("frames_per_step = 10", "frames_in_step = 10", "'frames_in_step'"),
        ('format = "hdf5"', 'format = "tiff"', "hdf5 or nxtomo, not 'tiff'"),
    ],
)
def test_a_wrong_configuration_is_told(
    instance: CommandLineInstance, tmp_path: Path, line: str, replaced: str, named: str
) -> None:
    folder = example(tmp_path)
    config = (folder / "tooth.toml").read_text()
    assert line in config
    (folder / "tooth.toml").write_text(config.replace(line, replaced))
    done = run(instance, folder)
    assert done.returncode == 1
    assert named in done.stdout


@needs_tooth
def test_the_service_reconstructs_the_tooth(instance: CommandLineInstance, tmp_path: Path) -> None:
    folder = example(tmp_path)
    shutil.copy(TOOTH, folder / "tooth.h5")
    done = run(instance, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    results = Path(json.loads(done.stdout)["results"])
    image = tifffile.imread(results / "slices" / "slice_00000.tif")
    assert image.shape == (640, 640)
    # The tooth is denser than the air around it.
    assert np.percentile(image[200:440, 200:440], 90) > 5 * abs(np.median(image[20:60, 300:340]))
    check_archive(results / "archive", 181)


@needs_snakemake
@needs_tooth
def test_the_workflow_reconstructs_the_tooth(instance: CommandLineInstance, tmp_path: Path) -> None:
    folder = example(tmp_path)
    line = [word if word != "2" else "3" for word in command()]
    done = subprocess.run(
        [*line, f"file={TOOTH}"],
        cwd=folder,
        env=os.environ | instance.environment | {"PATH": f"{PYTHON.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=seconds(280),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert tifffile.imread(folder / "workflow" / "slices" / "slice_00001.tif").shape == (640, 640)
    assert (folder / "workflow" / "slices.png").exists()
    check_archive(folder / "workflow" / "archive", 181)
    check_nxtomo(folder / "workflow" / "nxtomo" / "tooth.nxs", 181)
    assert instance.run("doctor").returncode == 0


def test_fields_after_the_last_projection_are_exported_and_reconstructed_past(
    instance: CommandLineInstance, tmp_path: Path
) -> None:
    from forebay.connectors import tomography
    from forebay.workflows.beamline import ImageKey, ScanStreams

    with ScanStreams("beamline/tooth") as scan:
        scan.frame(np.full((2, 64), 1000, np.uint16), key=ImageKey.WHITE)
        scan.frame(np.full((2, 64), 100, np.uint16), key=ImageKey.DARK)
        for angle in range(0, 180, 9):
            scan.frame(np.full((2, 64), 500, np.uint16), theta=float(angle))
        scan.frame(np.full((2, 64), 1001, np.uint16), key=ImageKey.WHITE)
    assert tomography.export("beamline/tooth", tmp_path / "tooth.h5") == 20
    with h5py.File(tmp_path / "tooth.h5") as file:
        assert file["exchange/data_white"][:, 0, 0].tolist() == [1000, 1001]
        assert file["exchange/theta_white"][0] == 0.0
        assert np.isnan(file["exchange/theta_white"][1])
    *_, last = tomography.reconstruct("beamline/tooth", rows=[0])
    assert last.angles == 20
