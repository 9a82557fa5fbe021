# SPDX-License-Identifier: Apache-2.0
"""Scans as streams: no archive frame is lost, the preview may lose some, and the record says what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.records import WaitKind
from forebay.workflows.beamline import ImageKey, ScanLog, ScanSettings, ScanStreams
from tests.support.load import until
from tests.support.time_limits import seconds


def image(number: int, rows: int = 16, columns: int = 32) -> NDArray[np.uint16]:
    return np.full((rows, columns), number, np.uint16)


def numbers(address: str) -> list[int]:
    with forebay.open(address, timeout=0) as stream:
        return [int(n) for step in stream if "frame" in step for n in np.atleast_1d(step["frame"][...])]


def test_a_scan_has_its_frames_fields_angles_and_expectations(beamline: str) -> None:
    settings = ScanSettings(frames_per_step=4)
    with ScanStreams(f"{beamline}/tooth", expected=13, attributes={"sample": "tooth"}, settings=settings) as scan:
        scan.frame(image(1000), key=ImageKey.WHITE)
        scan.frame(image(1), key=ImageKey.DARK)
        for angle in range(10):
            scan.frame(image(angle), theta=18.0 * angle)
        scan.frame(image(1001), key=ImageKey.WHITE)  # after the last projection
    with forebay.open(f"{beamline}/tooth", timeout=0) as stream:
        assert [step["projections"].shape[0] if "projections" in step else 0 for step in stream] == [4, 4, 2, 0]
        assert [float(angle) for step in stream[:3] for angle in step["theta"][...]] == [18.0 * n for n in range(10)]
        first, last = stream[0], stream[3]
        assert first["projections"].dtype == np.uint16
        assert (first["white"][0, 0, 0], first["dark"][0, 0, 0], last["white"][0, 0, 0]) == (1000, 1, 1001)
        assert [list(first[name][...]) for name in ("white_frame", "dark_frame", "frame")] == [[0], [1], [2, 3, 4, 5]]
        told = {name: first.attributes[name] for name in ("sample", "scan/frames_expected", "theta/units")}
        assert told == {"sample": "tooth", "scan/frames_expected": 13, "theta/units": "degrees"}
        assert first.attributes["projections/units"] == "counts"
    assert scan.frames_written == 13
    assert scan.missing == []
    with forebay.open(f"{beamline}/tooth.preview", timeout=0) as preview:
        assert int(preview.latest["image"][0, 0]) == 9


def test_lost_triggers_are_named(beamline: str) -> None:
    with ScanStreams(f"{beamline}/tooth", expected=8) as scan:
        for number in (0, 1, 4, 5, 7):
            scan.frame(image(number), theta=0.0, number=number)
        with pytest.raises(forebay.InvalidArgumentError, match="frame 5 comes after frame 7"):
            scan.frame(image(5), number=5)
    assert scan.missing == [2, 3, 6]
    assert numbers(f"{beamline}/tooth") == [0, 1, 4, 5, 7]


def fill(scan: ScanStreams) -> None:
    for number in range(400):
        scan.frame(image(number, 512, 512), theta=0.0)


# crash-matrix: A scan of a beamline | the reservation fills up in the middle of a scan | preview frames may be dropped, archive frames never: the scan waits, and then fails with the reason; what it wrote is there
def test_a_full_reservation_costs_previews_and_then_the_scan_but_no_archive_frame(beamline: str) -> None:
    settings = ScanSettings(frames_per_step=1, block_timeout=0.2, preview_last=10)
    scan = ScanStreams(f"{beamline}/tooth", settings=settings)
    with pytest.raises((forebay.NoSpaceError, forebay.DeadlineExceededError)), scan:
        fill(scan)
    written = numbers(f"{beamline}/tooth")
    assert len(written) > 50
    assert written == list(range(scan.frames_written))
    # The frame that failed was shown, and previews have made room for previews.
    assert numbers(f"{beamline}/tooth.preview")[-1] == scan.frames_written
    assert len(numbers(f"{beamline}/tooth.preview")) <= 11
    with forebay.Admin() as admin:
        assert admin.stream(f"{beamline}/tooth").status == "interrupted"
        assert all(step.precious for step in admin.steps(f"{beamline}/tooth"))


def test_space_that_a_stage_out_frees_lets_a_scan_outgrow_its_reservation(beamline: str) -> None:
    settings = ScanSettings(frames_per_step=1, archive_last=1, preview=False)
    staged: set[int] = set()
    with ScanStreams(f"{beamline}/tooth", settings=settings) as scan, forebay.Admin() as admin:
        for number in range(300):  # 150 MiB
            scan.frame(image(number, 512, 512), theta=0.0)
            if number % 50 == 49:
                # As a stage-out does, for steps that are safe elsewhere.
                steps = admin.steps(f"{beamline}/tooth")
                admin.mark_staged(f"{beamline}/tooth", steps[0].epoch, [step.number for step in steps], "receipt")
                staged |= {step.number for step in steps}
    assert scan.frames_written == 300
    assert staged == set(range(300))


# crash-matrix: A scan of a beamline | the reservation fills up in the middle of a scan, and a stage-out frees space again and again | the scan waits and goes on; all frames are archived, previews may be missing
def test_a_scan_that_waits_for_space_goes_on_and_loses_no_archive_frame(beamline: str) -> None:
    address = f"{beamline}/tooth"
    archived: dict[int, int] = {}
    stops: list[int] = []
    ended = threading.Event()

    def archive() -> None:
        with forebay.Admin() as admin:
            while True:
                was_ended = ended.is_set()
                waits = is_there(address, 1) and any(
                    wait.kind is WaitKind.SPACE for wait in admin.stream(address).waits
                )
                if not waits and not was_ended:
                    continue
                # Only now: the scan stands still until this has copied what is there.
                kept = [step for step in admin.steps(address) if not step.staged]
                with forebay.open(address, timeout=0) as stream:
                    for step in kept:
                        with stream[step.number] as read:
                            archived[int(read["frame"][0])] = int(read["projections"][0, 100, 200])
                admin.mark_staged(address, kept[0].epoch, [step.number for step in kept], "receipt")
                if was_ended:
                    return
                stops.append(len(kept))

    settings = ScanSettings(frames_per_step=1, archive_last=1, block_timeout=60.0)
    with ThreadPoolExecutor(1) as pool:
        archiving = pool.submit(archive)
        try:
            with ScanStreams(address, settings=settings) as scan:
                for number in range(300):  # 150 MiB through 64
                    scan.frame(image(number, 512, 512), theta=0.0)
        finally:
            ended.set()
        archiving.result(60)
    assert archived == {number: number for number in range(300)}
    assert len(stops) >= 2
    assert scan.frames_written == 300
    # What the preview has is true, and ends with the last frame that it took.
    shown = numbers(f"{address}.preview")
    assert len(shown) <= 11
    assert shown == sorted(shown)
    assert shown[-1] >= 299 - scan.previews_lost


KILLED = """
import sys, numpy as np
from forebay.workflows.beamline import ScanLog, ScanSettings, ScanStreams
with ScanLog("beamline") as log:
    log.begin("tooth", frames_expected=100, experiment="day1")
    with ScanStreams("beamline/tooth", expected=100, settings=ScanSettings(frames_per_step=4)) as scan:
        for number in range(10):
            scan.frame(np.full((16, 32), number, np.uint16), theta=1.0 * number)
        print("ready", flush=True)
        sys.stdin.read()
"""


# crash-matrix: A scan of a beamline | the acquisition is killed within a frame | the steps before it are whole, the stream says interrupted; the next acquisition writes the stop document, with the frames that are there
def test_an_acquisition_that_is_killed_leaves_a_truthful_record(beamline: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "ready\n"
        [record] = ScanLog.records(beamline)
        assert record.exit_status == "running"
        killed.kill()
    until(lambda: status(f"{beamline}/tooth") == "interrupted", "the server has noticed", timeout=seconds(60))
    assert numbers(f"{beamline}/tooth") == list(range(8))
    until(lambda: status(f"{beamline}/scans") == "interrupted", "the log is free", timeout=seconds(60))
    with ScanLog(beamline) as log:
        uid = log.begin("tooth-2")
        log.end(uid, "abort", "by hand")
    [first, second] = ScanLog.records(beamline)
    assert (first.scan, first.exit_status, first.stop and first.stop["frames_written"]) == ("tooth", "fail", 8)
    assert first.start["frames_expected"] == 100
    assert (second.exit_status, second.stop and second.stop["reason"]) == ("abort", "by hand")


def status(address: str) -> str:
    with forebay.Admin() as admin:
        return str(admin.stream(address).status)


def test_scans_that_are_staged_out_are_retired_by_experiment(beamline: str) -> None:
    with ScanLog(beamline) as log:
        for number in range(6):
            name = f"scan-{number}"
            uid = log.begin(name, experiment="day1" if number < 4 else "day2")
            with ScanStreams(f"{beamline}/{name}", settings=ScanSettings(frames_per_step=1)) as scan:
                scan.frame(image(number), theta=0.0)
            log.end(uid)
    with forebay.Admin() as admin:
        for number in (0, 1, 2, 4, 5):
            admin.mark_staged(f"{beamline}/scan-{number}", 1, [0], "receipt")
        # Number 3 is the newest of its experiment, and is not staged out.
        assert ScanLog.retire(beamline, experiment="day1", keep=0) == ["scan-2", "scan-1", "scan-0"]
        assert ScanLog.retire(beamline, keep=2) == []
        names = {info.name for info in admin.streams(beamline)}
    assert names == {"scans"} | {f"scan-{n}{end}" for n in (3, 4, 5) for end in ("", ".preview")}
    assert len(ScanLog.records(beamline)) == 6


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "forebay", "beamline", *arguments],
        capture_output=True,
        text=True,
        timeout=seconds(110),
        check=False,
        **options,
    )


def test_the_log_is_shown(beamline: str) -> None:
    with ScanLog(beamline) as log:
        log.end(log.begin("tooth", frames_expected=4), "abort", "the beam was lost", frames_written=3)
    told = run("scans", beamline)
    assert told.returncode == 0, told.stderr
    assert "tooth  abort     3       4         the beam was lost" in told.stdout


def test_a_signal_ends_a_scan_as_aborted(beamline: str) -> None:
    """Ctrl-C in an acquisition that replays a file is told as an abort, and the frames before it are there."""
    code = """
import h5py, numpy as np, sys
from forebay.workflows.beamline.chain import acquire
with h5py.File(sys.argv[1], "w") as file:
    file["exchange/data"] = np.zeros((400, 4, 8), np.uint16)
    file["exchange/data_white"] = np.ones((2, 4, 8), np.uint16)
acquire(sys.argv[1], "beamline/tooth", period=0.02)
"""
    file = os.path.join(os.environ["FOREBAY_ROOT"], "..", "scan.h5")
    with subprocess.Popen([sys.executable, "-c", code, file], stderr=subprocess.DEVNULL) as acquisition:
        until(lambda: is_there("beamline/tooth", 2), "two steps are there", timeout=seconds(60))
        acquisition.send_signal(signal.SIGINT)
        acquisition.wait(60)
    [record] = ScanLog.records(beamline)
    assert record.exit_status == "abort"
    assert record.stop is not None
    assert record.stop["frames_written"] == len(numbers("beamline/tooth")) + 2


def is_there(address: str, steps: int) -> bool:
    with forebay.Admin() as admin:
        try:
            return len(admin.steps(address)) >= steps
        except forebay.NotFoundError:
            return False
