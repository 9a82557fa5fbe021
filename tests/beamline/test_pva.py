# SPDX-License-Identifier: Apache-2.0
"""Frames of EPICS PV Access, from a soft IOC in this process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.workflows.beamline import ImageKey, ScanSettings, ScanStreams

pytest.importorskip("p4p")

from p4p.client.thread import Context
from p4p.nt import NTNDArray
from p4p.server import Server
from p4p.server.thread import SharedPV

from forebay.workflows.beamline.pva import follow_pv


def frame(number: int, unique: int | None = None, seconds: int = 0, shape: tuple[int, ...] = (24, 40)) -> Any:
    """As areaDetector sends it: the fastest dimension first, and a number of its own."""
    value = NTNDArray().wrap(np.full(shape, number, np.uint16))
    value["uniqueId"] = 1000 + number if unique is None else unique
    value["timeStamp.secondsPastEpoch"] = seconds or 1_800_000_000 + number
    return value


@contextmanager
def source(values: Callable[[], Iterable[Any]]) -> Iterator[tuple[Context, Callable[[], None]]]:
    """A soft IOC that posts these values, over and over until the end, once it was triggered."""
    pv = empty()
    with Server(providers=[{"SIM:Image": pv}], isolate=True) as server:
        context = Context("pva", conf=server.conf(), useenv=False, nt=False)
        connected, over = threading.Event(), threading.Event()

        def post() -> None:
            connected.wait(60)
            for value in values():
                if over.is_set():
                    return
                pv.post(value)

        ioc = threading.Thread(target=post)
        ioc.start()
        try:
            with context:
                yield context, connected.set
        finally:
            over.set()
            connected.set()
            ioc.join(60)


def follow(scan: ScanStreams, frames: int, values: Callable[[], Iterable[Any]], timeout: float = 60.0) -> int:
    with source(values) as (context, ready):
        return follow_pv(
            "SIM:Image",
            scan,
            frames,
            context=context,
            ready=ready,
            timeout=timeout,
            skip=lambda image: image.shape == (1, 1),
        )


def pixels_of(address: str) -> list[int]:
    with forebay.open(address, timeout=0) as stream:
        return [int(image[0, 0]) for step in stream for image in step["projections"][...]]


def empty() -> SharedPV:
    """A PV that takes values as they are sent."""
    return SharedPV(initial=NTNDArray().wrap(np.zeros((1, 1), np.uint16)))


def test_frames_of_a_pv_become_a_scan(beamline: str) -> None:
    pv = empty()
    sent = [number for number in range(20) if number != 7]
    with Server(providers=[{"SIM:Image": pv}], isolate=True) as server:
        context = Context("pva", conf=server.conf(), useenv=False, nt=False)
        connected = threading.Event()

        def trigger() -> None:
            connected.wait(60)
            for number in sent:
                pv.post(frame(number))

        ioc = threading.Thread(target=trigger)
        ioc.start()
        with context, ScanStreams(f"{beamline}/pva", expected=20, settings=ScanSettings(frames_per_step=5)) as scan:
            written = follow_pv(
                "SIM:Image",
                scan,
                20,
                theta=lambda number: 9.0 * number,
                key=lambda number: ImageKey.WHITE if number == 0 else ImageKey.PROJECTION,
                context=context,
                ready=connected.set,
                skip=lambda image: image.shape == (1, 1),
            )
        ioc.join(60)
    assert written == 19
    assert scan.missing == [7]
    with forebay.open(f"{beamline}/pva", timeout=0) as stream:
        found = [
            (int(number), float(angle))
            for step in stream
            for number, angle in zip(step["frame"][...], step["theta"][...], strict=True)
        ]
        assert found == [(number, 9.0 * number) for number in sent[1:]]
        assert stream[0]["projections"].shape == (5, 24, 40)
        assert [int(image[0, 0]) for step in stream for image in step["projections"][...]] == sent[1:]
        assert int(stream[0]["white"][0, 0, 0]) == 0


def test_a_detector_that_falls_silent_is_told(beamline: str) -> None:
    pv = SharedPV(initial=frame(0))
    with Server(providers=[{"SIM:Image": pv}], isolate=True) as server:
        context = Context("pva", conf=server.conf(), useenv=False, nt=False)
        with context, ScanStreams(f"{beamline}/pva", expected=20) as scan:
            silence = pytest.raises(forebay.StepTimeoutError, match="after 1 of 20")
            with silence:
                follow_pv("SIM:Image", scan, 20, context=context, timeout=2.0)
    assert scan.frames_written == 1


def test_a_frame_that_comes_again_is_written_once(beamline: str) -> None:
    with ScanStreams(f"{beamline}/pva", expected=3) as scan:
        written = follow(scan, 3, lambda: [frame(0), frame(1), frame(1), frame(0), frame(2)])
    assert (written, scan.missing) == (3, [])
    assert pixels_of(f"{beamline}/pva") == [0, 1, 2]


@pytest.mark.parametrize("uniques", [[7, 8, 0, 1, 2], [0, 0, 0, 0, 0], [5, 6, 6, 7, 8]])
def test_a_detector_that_counts_anew_does_not_end_the_scan(beamline: str, uniques: list[int]) -> None:
    """An IOC that was restarted, and detectors that do not count."""
    with ScanStreams(f"{beamline}/pva", expected=5) as scan:
        written = follow(scan, 5, lambda: [frame(number, unique) for number, unique in enumerate(uniques)])
    assert (written, scan.missing) == (5, [])
    assert pixels_of(f"{beamline}/pva") == [0, 1, 2, 3, 4]


def test_a_colour_image_is_refused_at_once(beamline: str) -> None:
    with (
        pytest.raises(forebay.UnsupportedError, match=r"have 3 dimensions.*ColorConvert"),
        ScanStreams(f"{beamline}/pva") as scan,
    ):
        follow(scan, 3, lambda: [frame(0), frame(1, shape=(24, 40, 3))])
    assert pixels_of(f"{beamline}/pva") == [0]  # what was taken before is there


def test_what_is_skipped_does_not_prolong_the_wait(beamline: str) -> None:
    def endless() -> Iterator[Any]:
        for number in itertools.count():
            time.sleep(0.01)
            yield frame(number, shape=(1, 1))

    with ScanStreams(f"{beamline}/pva") as scan, pytest.raises(forebay.StepTimeoutError, match="after 0 of 3"):
        follow(scan, 3, endless, timeout=1.0)


def test_compressed_frames_are_refused(beamline: str) -> None:
    compressed = frame(0)
    compressed["codec.name"] = "lz4"
    with ScanStreams(f"{beamline}/pva") as scan:
        with pytest.raises(forebay.UnsupportedError, match="compressed by 'lz4'"):
            follow(scan, 3, lambda: [compressed])
        short = frame(0)
        short["value"] = np.zeros(7, np.uint16)
        with pytest.raises(forebay.InvalidArgumentError, match="24 x 40 has 7 elements"):
            follow(scan, 3, lambda: [short])
