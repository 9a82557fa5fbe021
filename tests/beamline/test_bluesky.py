# SPDX-License-Identifier: Apache-2.0
"""Bluesky's real RunEngine with a detector of ophyd-async whose frames go into a reservation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.workflows.beamline import ImageKey, ScanLog, ScanSettings

pytest.importorskip("bluesky")

import bluesky.plan_stubs as bps
import bluesky.plans as bp
from bluesky import RunEngine
from bluesky.utils import RequestAbort

from forebay.workflows.beamline.bluesky import (
    DocumentRecorder,
    Exposure,
    ReplayDetector,
    ScanHandler,
    tomography,
)

Documents = list[tuple[str, dict[str, Any]]]


class Camera:
    """Frames that tell their number; loses the triggers that it is told to."""

    shape = (24, 40)
    dtype = np.dtype(np.uint16)

    def __init__(self, lost: tuple[int, ...] = ()) -> None:
        self.lost = lost
        self.exposed = 0

    def expose(self, exposure: Exposure) -> NDArray[Any] | None:
        number, self.exposed = self.exposed, self.exposed + 1
        return None if number in self.lost else np.full(self.shape, 100 * int(exposure.key) + number, self.dtype)


@pytest.fixture
def log(beamline: str) -> Iterator[ScanLog]:
    with ScanLog(beamline) as opened:
        yield opened


def engine_with(log: ScanLog, *detectors: ReplayDetector) -> tuple[RunEngine, Documents]:
    engine = RunEngine(context_managers=[])  # no signal handlers: tests run in threads
    documents: Documents = []
    engine.subscribe(lambda name, document: documents.append((name, document)))
    engine.subscribe(DocumentRecorder(log, detectors))
    return engine, documents


def detector_of(camera: Camera, **options: Any) -> ReplayDetector:
    return ReplayDetector(camera, reservation="beamline", prefix="tooth", name="camera", **options)


def test_documents_name_the_stream_and_the_handler_opens_it(log: ScanLog) -> None:
    detector = detector_of(Camera(), settings=ScanSettings(frames_per_step=4))
    engine, documents = engine_with(log, detector)
    engine(tomography(detector, np.linspace(0, 180, 10), whites=2, darks=1, sample="tooth", experiment="day1"))
    [resource] = [document for name, document in documents if name == "stream_resource"]
    assert (resource["uri"], resource["mimetype"]) == ("forebay://beamline/tooth-0001", "application/x-forebay")
    data = [document for name, document in documents if name == "stream_datum"]
    assert (data[0]["indices"]["start"], data[-1]["indices"]["stop"]) == (0, 13)
    frames = np.concatenate([ScanHandler(resource)(document) for document in data])
    assert frames.shape == (13, 24, 40)
    assert list(frames[:, 0, 0]) == [100, 101, 202, *range(3, 13)]
    [record] = ScanLog.records("beamline")
    assert (record.scan, record.exit_status) == ("tooth-0001", "success")
    assert record.start["image_keys"] == [1, 1, 2] + [0] * 10
    assert record.start["theta"][-1] == 180.0
    assert record.stop is not None
    assert (record.stop["frames_expected"], record.stop["frames_written"]) == (13, 13)
    assert [kind for kind, _ in record.documents] == ["stream_resource"]
    with forebay.open("beamline/tooth-0001", timeout=0) as stream:
        assert stream.info.status == "ended"
        assert stream.latest.attributes["experiment"] == "day1"
        assert [float(angle) for step in stream for angle in step["theta"][...]] == list(np.linspace(0, 180, 10))


def test_scans_of_a_day_have_names_of_their_own(log: ScanLog) -> None:
    detector = detector_of(Camera())
    engine, _ = engine_with(log, detector)
    for _ in range(5):
        engine(tomography(detector, [0.0, 90.0]))
    assert [record.scan for record in ScanLog.records("beamline")] == [f"tooth-000{n}" for n in range(1, 6)]
    assert {record.exit_status for record in ScanLog.records("beamline")} == {"success"}


def test_frames_that_are_triggered_one_by_one_are_all_kept(log: ScanLog) -> None:
    detector = detector_of(Camera(), settings=ScanSettings(frames_per_step=2))
    engine, documents = engine_with(log, detector)
    engine(bp.count([detector], num=5))
    [resource] = [document for name, document in documents if name == "stream_resource"]
    data = [document for name, document in documents if name == "stream_datum"]
    assert [document["indices"] for document in data] == [{"start": n, "stop": n + 1} for n in range(5)]
    frames = np.concatenate([ScanHandler(resource)(document) for document in data])
    assert list(frames[:, 0, 0]) == list(range(5))
    [record] = ScanLog.records("beamline")
    assert record.stop is not None
    assert (record.exit_status, record.stop["frames_written"], record.stop["frames_missing"]) == ("success", 5, [])


def test_each_detector_of_a_run_has_a_scan_in_the_record(log: ScanLog) -> None:
    detectors = [ReplayDetector(Camera(), reservation="beamline", name=name) for name in ("front", "back")]
    engine, documents = engine_with(log, *detectors)
    engine(bp.count(detectors, num=3))
    assert len([name for name, _ in documents if name == "stream_resource"]) == 2
    records = ScanLog.records("beamline")
    assert sorted(record.scan for record in records) == ["scan-0001", "scan-0002"]
    assert len({record.uid for record in records}) == 1
    for record in records:
        assert record.stop is not None
        assert (record.exit_status, record.stop["frames_written"]) == ("success", 3)
        assert [kind for kind, _ in record.documents] == ["stream_resource"]
        with forebay.open(f"beamline/{record.scan}", timeout=0) as stream:
            assert [int(image[0, 0]) for step in stream for image in step["projections"][...]] == [0, 1, 2]


def test_scans_of_a_run_that_was_lost_are_all_ended(beamline: str) -> None:
    with ScanLog(beamline) as log:
        for name in ("scan-0001", "scan-0002"):
            log.begin(name, uid="run")
        log.end("run", scan="scan-0002")
    with ScanLog(beamline):
        assert [(record.scan, record.exit_status) for record in ScanLog.records(beamline)] == [
            ("scan-0001", "fail"),
            ("scan-0002", "success"),
        ]


def test_a_lost_trigger_is_in_the_record(log: ScanLog) -> None:
    detector = detector_of(Camera(lost=(2, 5)))
    engine, _ = engine_with(log, detector)
    engine(tomography(detector, np.arange(8.0)))
    [record] = ScanLog.records("beamline")
    assert record.stop is not None
    assert (record.stop["frames_expected"], record.stop["frames_written"]) == (8, 6)
    assert record.stop["frames_missing"] == [2, 5]


def test_a_scan_that_is_aborted_says_so_and_keeps_its_frames(log: ScanLog) -> None:
    detector = detector_of(Camera(), settings=ScanSettings(frames_per_step=1))
    engine, _ = engine_with(log, detector)

    def abort() -> Iterator[Any]:
        yield from bps.sleep(0.5)
        raise RequestAbort("the beam was lost")

    engine(tomography(detector, np.arange(1000.0), exposure=0.01, between=abort))
    [record] = ScanLog.records("beamline")
    assert record.stop is not None
    assert record.exit_status == "abort"
    assert record.stop["frames_expected"] == 1000
    with forebay.open("beamline/tooth-0001", timeout=0) as stream:
        assert stream.info.status == "ended"
        assert 0 < len(stream) == record.stop["frames_written"] < 1000
    # The next one begins as if nothing had been.
    engine(tomography(detector, [0.0]))
    assert [record.exit_status for record in ScanLog.records("beamline")][1:] == ["success"]


def test_an_archive_that_is_full_fails_the_run(log: ScanLog) -> None:
    class Large(Camera):
        shape = (1024, 1024)

    detector = detector_of(Large(), settings=ScanSettings(frames_per_step=1, block_timeout=0.2))
    engine, _ = engine_with(log, detector)
    with pytest.raises(Exception, match=r"(?i)space|full|status"):
        engine(tomography(detector, np.arange(60.0)))
    [record] = ScanLog.records("beamline")
    assert record.stop is not None
    assert record.exit_status == "fail"
    with forebay.open("beamline/tooth-0001", timeout=0) as stream:
        assert len(stream) == record.stop["frames_written"] < 60
        assert [int(step["frame"][0]) for step in stream] == list(range(len(stream)))


def test_keys_are_those_of_nexus() -> None:
    assert [int(key) for key in (ImageKey.PROJECTION, ImageKey.WHITE, ImageKey.DARK)] == [0, 1, 2]
