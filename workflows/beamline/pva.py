# SPDX-License-Identifier: Apache-2.0
"""Frames of EPICS PV Access (NTNDArray, as areaDetector's NDPluginPva sends them), written into a scan.

Needs the extra ``forebay[beamline]``.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.errors import StepTimeoutError
from forebay.workflows.beamline.scan_streams import ImageKey, ScanStreams

__all__ = ["follow_pv"]

#: The server keeps as many updates for a client that is slow, before it joins some: then numbers are missing.
_QUEUE_FRAMES = 64

Angles = Callable[[int], float]
Keys = Callable[[int], ImageKey]


def follow_pv(
    name: str,
    scan: ScanStreams,
    frames: int,
    *,
    theta: Angles | None = None,
    key: Keys | None = None,
    timeout: float = 60.0,
    context: Any = None,
    ready: Callable[[], object] | None = None,
    skip: Callable[[NDArray[Any]], bool] | None = None,
) -> int:
    """Writes frames of a PV into a scan until the one whose number is the last that is expected, and returns how many.

    The frames' own numbers (``uniqueId``) count from the first that comes. Those that are left out are the scan's
    ``missing``.

    Parameters
    ----------
    name : str
        Of the PV, an NTNDArray of two dimensions.
    scan : ScanStreams
        Stays open.
    frames : int
        How many are expected, in numbers of the detector.
    theta, key : callable, optional
        Angle in degrees and kind of a frame, by its number from 0. Not given: the frame's attributes ``theta`` and
        ``image_key``, else none and a projection.
    timeout : float
        Seconds that one frame may take; then StepTimeoutError.
    context : p4p.client.thread.Context, optional
        One that gives plain values (``nt=False``). Not given: one of its own, as the environment says
        (``EPICS_PVA_ADDR_LIST``).
    ready : callable, optional
        Called when the PV has connected: a trigger before that is lost.
    skip : callable, optional
        Whether an image is none of the scan's: a PV sends what it holds when a client connects.
    """
    from p4p.client.thread import Context, Disconnected

    own = Context("pva", nt=False) if context is None else context
    arrived: queue.Queue[Any] = queue.Queue()
    subscription = own.monitor(
        name, arrived.put, request=f"record[queueSize={_QUEUE_FRAMES},pipeline=true]field()", notify_disconnect=True
    )
    first: int | None = None
    written = 0
    try:
        while True:
            try:
                value = arrived.get(timeout=timeout)
            except queue.Empty:
                raise StepTimeoutError(
                    f"no frame came within {timeout:g} s, after {written} of {frames}", f"PV {name}"
                ) from None
            if isinstance(value, Disconnected):
                continue
            if isinstance(value, Exception):
                raise value
            image = _image_of(value)
            if ready is not None:
                ready()
                ready = None
            if image is None or (skip is not None and skip(image)):
                continue
            unique = int(value["uniqueId"])
            first = unique if first is None else first
            number = unique - first
            attributes = {attribute["name"]: attribute["value"] for attribute in value["attribute"]}
            scan.frame(
                image,
                theta=theta(number) if theta else float(attributes.get("theta", float("nan"))),
                key=key(number) if key else ImageKey(int(attributes.get("image_key", 0))),
                number=number,
                acquired=_time_of(value),
            )
            written += 1
            if number >= frames - 1:
                return written
    finally:
        subscription.close()
        if context is None:
            own.close()


def _image_of(value: Any) -> NDArray[Any] | None:
    """The frame, (rows, columns); None where there is none yet."""
    pixels = value["value"]
    extents = [int(dimension["size"]) for dimension in value["dimension"]]
    if pixels is None or len(extents) != 2:
        return None
    # The fastest dimension comes first.
    return np.asarray(pixels).reshape(extents[::-1])


def _time_of(value: Any) -> float:
    stamp = value["timeStamp"]
    seconds = float(stamp["secondsPastEpoch"]) + float(stamp["nanoseconds"]) * 1e-9
    return seconds if seconds > 0 else time.time()
