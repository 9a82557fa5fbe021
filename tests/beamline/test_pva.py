# SPDX-License-Identifier: Apache-2.0
"""Frames of EPICS PV Access, from a soft IOC in this process."""

from __future__ import annotations

import threading

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


def frame(number: int) -> object:
    """As areaDetector sends it: the fastest dimension first, and a number of its own."""
    value = NTNDArray().wrap(np.full((24, 40), number, np.uint16))
    value["uniqueId"] = 1000 + number
    return value


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
