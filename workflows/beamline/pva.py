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

from forebay.errors import InvalidArgumentError, StepTimeoutError, UnsupportedError
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
    ``missing``. A frame that comes twice is written once. If the numbers begin again, as after a restart of the IOC,
    they continue where the scan is.

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
        Seconds that one frame may take, whatever else comes meanwhile; then StepTimeoutError.
    context : p4p.client.thread.Context, optional
        One that gives plain values (``nt=False``). Not given: one of its own, as the environment says
        (``EPICS_PVA_ADDR_LIST``).
    ready : callable, optional
        Called when the PV has connected: a trigger before that is lost.
    skip : callable, optional
        Whether an image is none of the scan's: a PV sends what it holds when a client connects.

    Raises
    ------
    StepTimeoutError
        No frame came within ``timeout``.
    UnsupportedError
        The frames are compressed, or are no images of two dimensions (a colour image has three).
    InvalidArgumentError
        A frame has fewer or more elements than its dimensions say, or another shape than the first.
    """
    from p4p.client.thread import Context, Disconnected

    own = Context("pva", nt=False) if context is None else context
    arrived: queue.Queue[Any] = queue.Queue()
    subscription = own.monitor(
        name, arrived.put, request=f"record[queueSize={_QUEUE_FRAMES},pipeline=true]field()", notify_disconnect=True
    )
    numbers = _FrameNumbers()
    written = 0
    deadline = time.monotonic() + timeout
    try:
        while True:
            try:
                value = arrived.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise StepTimeoutError(
                    f"no frame came within {timeout:g} s, after {written} of {frames}", f"PV {name}"
                ) from None
            if isinstance(value, Disconnected):
                continue
            if isinstance(value, Exception):
                raise value
            image = _image_of(value, name)
            if ready is not None:
                ready()
                ready = None
            if image is None or (skip is not None and skip(image)):
                continue
            number = numbers.of(int(value["uniqueId"]), _stamp_of(value))
            if number is None:
                continue
            attributes = {attribute["name"]: attribute["value"] for attribute in value["attribute"]}
            scan.frame(
                image,
                theta=theta(number) if theta else float(attributes.get("theta", float("nan"))),
                key=key(number) if key else ImageKey(int(attributes.get("image_key", 0))),
                number=number,
                acquired=_time_of(value),
            )
            written += 1
            deadline = time.monotonic() + timeout
            if number >= frames - 1:
                return written
    finally:
        subscription.close()
        if context is None:
            own.close()


class _FrameNumbers:
    """Numbers of frames within a scan, from the detector's own."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._last = 0
        self._last_stamp = (0, 0)
        self._next = 0

    def of(self, unique: int, stamp: tuple[int, int]) -> int | None:
        """The number of the frame; None if it came before.

        Parameters
        ----------
        stamp : tuple of int
            Seconds and nanoseconds. They tell a frame that comes again from another one of the same number.
        """
        if self._first is None:
            self._first = unique
        elif unique <= self._last:
            came = stamp == self._last_stamp if unique == self._last else (0, 0) < stamp <= self._last_stamp
            if came:
                return None
            # The detector counts anew, or does not count. How many it left out meanwhile is not known.
            self._first = unique - self._next
        self._last, self._last_stamp = unique, stamp
        number = unique - self._first
        self._next = number + 1
        return number


def _image_of(value: Any, name: str) -> NDArray[Any] | None:
    """The frame, (rows, columns); None where there is none yet."""
    pixels = value["value"]
    extents = [int(dimension["size"]) for dimension in value["dimension"]]
    if pixels is None or not extents:
        return None
    codec = str(value["codec"]["name"])
    if codec:
        raise UnsupportedError(
            f"its frames are compressed by {codec!r}: let the IOC send them as they are (plugin Codec, Compressor "
            "'None', or no Codec before PVA)",
            f"PV {name}",
        )
    if len(extents) != 2:
        raise UnsupportedError(
            f"its frames have {len(extents)} dimensions, {extents}, fastest first, not rows and columns: a colour "
            "image is to be converted before (plugin ColorConvert, Mono)",
            f"PV {name}",
        )
    pixels = np.asarray(pixels)
    if pixels.size != extents[0] * extents[1]:
        raise InvalidArgumentError(f"a frame of {extents[1]} x {extents[0]} has {pixels.size} elements", f"PV {name}")
    # The fastest dimension comes first.
    return pixels.reshape(extents[::-1])


def _stamp_of(value: Any) -> tuple[int, int]:
    return int(value["timeStamp"]["secondsPastEpoch"]), int(value["timeStamp"]["nanoseconds"])


def _time_of(value: Any) -> float:
    whole, nanoseconds = _stamp_of(value)
    seconds = whole + nanoseconds * 1e-9
    return seconds if seconds > 0 else time.time()
