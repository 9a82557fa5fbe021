# SPDX-License-Identifier: Apache-2.0
"""Bluesky and ophyd-async: a detector whose frames go into a reservation, documents that name them, and their handler.

Needs the extra ``forebay[beamline]``.

>>> detector = ReplayDetector(Phantom(), name="camera", reservation="beamline")
>>> with ScanLog("beamline") as log:
...     engine = RunEngine()
...     engine.subscribe(DocumentRecorder(log))
...     engine(tomography(detector, np.linspace(0, 180, 181), whites=10, darks=10))
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import bluesky.plan_stubs as bps
import bluesky.preprocessors as bpp
import numpy as np
from numpy.typing import NDArray
from ophyd_async.core import (
    DetectorAcquireLogic,
    DetectorDataLogic,
    DetectorTriggerLogic,
    StandardDetector,
    StreamableDataProvider,
    StreamResourceDataProvider,
    StreamResourceInfo,
    TriggerInfo,
    soft_signal_r_and_setter,
)

import forebay
from forebay.errors import ForebayError
from forebay.instance import InstanceLike
from forebay.workflows.beamline.scan_log import ScanLog
from forebay.workflows.beamline.scan_streams import ImageKey, ScanSettings, ScanStreams

__all__ = [
    "MIMETYPE",
    "DocumentRecorder",
    "Exposure",
    "FrameSource",
    "ReplayDetector",
    "ScanHandler",
    "tomography",
]

#: Of stream resources whose uri is a stream: ``forebay://RES/SCAN``.
MIMETYPE = "application/x-forebay"


@dataclass(frozen=True, slots=True)
class Exposure:
    """One frame that a scan wants."""

    key: ImageKey
    theta: float = float("nan")  #: degrees, of a projection


class FrameSource(Protocol):
    """What stands in for the hardware: a camera simulated, or replayed from a file."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def expose(self, exposure: Exposure) -> NDArray[Any] | None:
        """The frame; None: the trigger was lost, and there is none."""


class ReplayDetector(StandardDetector):  # type: ignore[misc]
    """A detector of ophyd-async that takes frames from a source, and writes them into a scan of the reservation.

    A scan begins with `prepare`, and ends with `unstage`. It is called ``PREFIX-0001`` and so on.

    Parameters
    ----------
    source : FrameSource
        Where frames come from.
    reservation : str
        Where scans are written.
    prefix : str
        Of the scans' names, for example the sample or the experiment.
    settings, instance
        As for :class:`ScanStreams`.
    """

    def __init__(
        self,
        source: FrameSource,
        *,
        reservation: str,
        prefix: str = "scan",
        settings: ScanSettings | None = None,
        instance: InstanceLike | None = None,
        name: str = "",
    ) -> None:
        self.camera = _Camera(source, reservation, prefix, settings, instance)
        self.add_detector_logics(_Trigger(self.camera), _Acquire(self.camera), _Data(self.camera))
        super().__init__(name=name)

    def plan(self, exposures: Sequence[Exposure], attributes: Mapping[str, Any] | None = None) -> None:
        """What the next scan exposes, in order, and attributes of its streams."""
        self.camera.exposures = list(exposures)
        self.camera.attributes = dict(attributes or {})


# Two detectors of a run are prepared at once, and each takes the first name that is free.
_naming = threading.Lock()


class _Camera:
    """What the three parts of the detector share."""

    def __init__(
        self,
        source: FrameSource,
        reservation: str,
        prefix: str,
        settings: ScanSettings | None,
        instance: InstanceLike | None,
    ) -> None:
        self.source = source
        self.reservation = reservation
        self.prefix = prefix
        self.settings = settings
        self.instance = instance
        self.exposures: list[Exposure] = []
        self.attributes: dict[str, Any] = {}
        self.count = 0  #: exposures of the next acquisition
        self.period = 0.0
        self._exposed = 0  #: by the acquisitions of this scan
        self._turn = threading.Lock()  # of the scan, which the acquisition and the recorder write
        self._halted = False
        self.scan: ScanStreams | None = None
        self.last: ScanStreams | None = None  #: the one before, closed
        self.written, self._set_written = soft_signal_r_and_setter(int)

    def next_name(self) -> str:
        """No scan of this name is there, nor is one in the log."""
        with forebay.Admin(self.instance) as admin:
            taken = {info.name for info in admin.streams(self.reservation)}
        taken |= {record.scan for record in ScanLog.records(self.reservation, instance=self.instance)}
        number = 1
        while f"{self.prefix}-{number:04d}" in taken:
            number += 1
        return f"{self.prefix}-{number:04d}"

    def open(self) -> str:
        with _naming:
            self.scan = ScanStreams(
                f"{self.reservation}/{self.next_name()}",
                # Triggered one by one, as many come as the plan likes.
                expected=self.count if self.exposures or self.count > 1 else None,
                attributes=self.attributes,
                settings=self.settings,
                instance=self.instance,
            )
        self._halted = False
        self._exposed = 0
        self._set_written(0)
        return str(self.scan.address)

    async def acquire(self) -> None:
        """Exposes one frame after another; the streams' waits are not the event loop's.

        A scan may have several acquisitions, one for each trigger: their frames count on.
        """
        assert self.scan is not None
        first, began = self._exposed, time.monotonic()
        numbers = range(first, first + self.count)
        if self.exposures:
            numbers = numbers[: max(0, len(self.exposures) - first)]
        for number in numbers:
            await asyncio.sleep(began + (number - first) * self.period - time.monotonic())
            exposure = self.exposures[number] if self.exposures else Exposure(ImageKey.PROJECTION, float(number))
            await asyncio.to_thread(self._expose, exposure, number)
            self._exposed = number + 1
            # Bluesky counts exposures; the log says which of them have no frame.
            self._set_written(self._exposed)
        await asyncio.to_thread(self._flush)

    def _expose(self, exposure: Exposure, number: int) -> None:
        image = self.source.expose(exposure)
        with self._turn:
            if image is None or self.scan is None or self._halted:
                return
            try:
                self.scan.frame(image, theta=exposure.theta, key=exposure.key, number=number)
            except ForebayError:
                self._halted = True  # a scan without this frame is not gone on with
                raise

    def _flush(self) -> None:
        """What was exposed is written."""
        with self._turn:
            if self.scan is not None and not self._halted:
                self.scan.flush()

    def halt(self) -> None:
        """What was exposed is written, and nothing comes after it."""
        with self._turn:
            halted, self._halted = self._halted, True
            if self.scan is not None and not halted:
                self.scan.flush()

    async def close(self) -> None:
        scan, self.scan = self.scan, None
        if scan is not None:
            self.last = scan
            await asyncio.to_thread(self._end, scan)

    def _end(self, scan: ScanStreams) -> None:
        with self._turn:
            try:
                scan.close()
            except ForebayError:
                # The run has failed by the same reason; its archive says interrupted.
                scan.abandon()


class _Trigger(DetectorTriggerLogic):  # type: ignore[misc]
    def __init__(self, camera: _Camera) -> None:
        self._camera = camera

    async def prepare_internal(self, num: int, livetime: float, deadtime: float) -> None:
        self._camera.count, self._camera.period = num, livetime + deadtime

    async def default_trigger_info(self) -> TriggerInfo:
        return TriggerInfo()


class _Acquire(DetectorAcquireLogic):  # type: ignore[misc]
    def __init__(self, camera: _Camera) -> None:
        self._camera = camera
        self._task: asyncio.Task[None] | None = None

    async def start_acquiring(self) -> None:
        self._task = asyncio.create_task(self._camera.acquire())

    async def wait_for_idle(self) -> None:
        if self._task is not None:
            await self._task

    async def ensure_stopped(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


class _Data(DetectorDataLogic):  # type: ignore[misc]
    def __init__(self, camera: _Camera) -> None:
        self._camera = camera

    async def prepare_unbounded(self, datakey_name: str) -> StreamableDataProvider:
        camera = self._camera
        address = await asyncio.to_thread(camera.open)
        rows, columns = camera.source.shape
        frames = StreamResourceInfo(
            data_key=datakey_name,
            shape=(rows, columns),
            chunk_shape=(1, rows, columns),
            dtype_numpy=camera.source.dtype.str,
            parameters={"dataset": "frames"},
        )
        return StreamResourceDataProvider(
            uri=f"forebay://{address}",
            resources=[frames],
            mimetype=MIMETYPE,
            collections_written_signal=camera.written,
        )

    async def stop(self) -> None:
        await self._camera.close()

    def get_hinted_fields(self, datakey_name: str) -> Sequence[str]:
        return [datakey_name]


class DocumentRecorder:
    """Writes the documents of a RunEngine into the log: ``engine.subscribe(DocumentRecorder(log))``.

    The start document comes into the log with the first document that names the scan, before the first frame.
    """

    def __init__(self, log: ScanLog, detectors: Iterable[ReplayDetector] = ()) -> None:
        self._log = log
        self._detectors = list(detectors)
        self._begun: dict[str, Mapping[str, Any]] = {}
        self._scans: dict[str, list[str]] = {}  # the streams of each run

    def __call__(self, name: str, document: Mapping[str, Any]) -> None:
        if name == "start":
            self._begun[document["uid"]] = document
        elif name == "descriptor":
            for key in document["data_keys"].values():
                if str(key["source"]).startswith("forebay://"):
                    self._write_start(document["run_start"], forebay.Address.parse(key["source"]).path)
        elif name == "stream_resource" and document.get("mimetype") == MIMETYPE:
            uid = document.get("run_start") or next(reversed(self._begun))
            path = forebay.Address.parse(document["uri"]).path
            self._write_start(uid, path)
            self._log.document(name, {**document, "run_start": uid, "scan": forebay.Address.parse(path).stream})
        elif name == "stop" and document["run_start"] in self._scans:
            for path in self._scans[document["run_start"]]:
                self._write_stop(document, path)

    def _write_start(self, uid: str, path: str) -> None:
        scans = self._scans.setdefault(uid, [])
        if path not in scans:
            scans.append(path)
            start = {key: value for key, value in self._begun[uid].items() if key not in ("uid", "scan")}
            self._log.begin(forebay.Address.parse(path).stream, uid=uid, **start)

    def _write_stop(self, document: Mapping[str, Any], path: str) -> None:
        counts: dict[str, Any] = {}
        for detector in self._detectors:
            scan = detector.camera.scan or detector.camera.last
            if scan is not None and str(scan.address) == path:
                detector.camera.halt()
                counts = {
                    "frames_expected": scan.expected,
                    "frames_written": scan.frames_written,
                    "frames_missing": scan.missing,
                    "previews_lost": scan.previews_lost,
                }
        name = forebay.Address.parse(path).stream
        self._log.end(document["run_start"], document["exit_status"], document.get("reason", ""), scan=name, **counts)


class ScanHandler:
    """Opens what stream resources name: ``ScanHandler(resource)(datum)`` gives the frames of a stream datum.

    Parameters
    ----------
    resource : mapping
        A stream resource document, with a uri ``forebay://RES/SCAN``.
    instance : Instance or path, optional
        As in :func:`forebay.open`.
    """

    def __init__(self, resource: Mapping[str, Any], *, instance: InstanceLike | None = None) -> None:
        self._stream = forebay.open(resource["uri"], instance=instance)

    def __call__(self, datum: Mapping[str, Any]) -> NDArray[Any]:
        """Frames in the order in which they were exposed, (frames, rows, columns).

        Exposures that have no frame are left out.
        """
        indices = datum["indices"]
        return np.stack(list(_between(self.frames(), indices["start"], indices["stop"])))

    def frames(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Each frame with the number of its exposure."""
        for step in self._stream:
            found: list[tuple[int, NDArray[Any]]] = []
            for name, numbers in (("white", "white_frame"), ("dark", "dark_frame"), ("projections", "frame")):
                if name in step:
                    found += zip(map(int, step[numbers][...]), step[name][...], strict=True)
            yield from sorted(found, key=lambda frame: frame[0])


def _between(frames: Iterable[tuple[int, NDArray[Any]]], start: int, stop: int) -> Iterator[NDArray[Any]]:
    return (image for number, image in frames if start <= number < stop)


def tomography(
    detector: ReplayDetector,
    theta: Sequence[float] | NDArray[Any],
    *,
    whites: int = 0,
    darks: int = 0,
    exposure: float = 0.0,
    sample: str = "",
    experiment: str = "",
    metadata: Mapping[str, Any] | None = None,
    between: Callable[[], Iterator[Any]] | None = None,
) -> Iterator[Any]:
    """A plan: white and dark fields, then a projection at each angle, as one fly scan.

    Parameters
    ----------
    theta : sequence of float
        Degrees.
    exposure : float
        Seconds between two frames; 0: as fast as the detector can.
    between : callable, optional
        A plan that runs beside the acquisition.
    """
    exposures = [Exposure(ImageKey.WHITE)] * whites + [Exposure(ImageKey.DARK)] * darks
    exposures += [Exposure(ImageKey.PROJECTION, float(angle)) for angle in theta]
    attributes = {"sample": sample, "experiment": experiment, "scan/whites": whites, "scan/darks": darks}
    document = {
        "plan_name": "tomography",
        "sample": sample,
        "experiment": experiment,
        "frames_expected": len(exposures),
        "theta": [float(angle) for angle in theta],
        "image_keys": [int(wanted.key) for wanted in exposures],
        "units": {"theta": "degrees"},
        **(metadata or {}),
    }

    @bpp.stage_decorator([detector])  # type: ignore[untyped-decorator]
    @bpp.run_decorator(md=document)  # type: ignore[untyped-decorator]
    def scan() -> Iterator[Any]:
        detector.plan(exposures, attributes)
        yield from bps.prepare(detector, TriggerInfo(number_of_events=len(exposures), livetime=exposure), wait=True)
        yield from bps.declare_stream(detector, name="primary", collect=True)
        yield from bps.kickoff(detector, wait=True)
        if between is not None:
            yield from between()
        yield from bps.complete(detector, group="complete", wait=False)
        done = False
        while not done:
            try:
                yield from bps.wait(group="complete", timeout=0.2)
            except TimeoutError:
                pass
            else:
                done = True
            yield from bps.collect(detector, name="primary", return_payload=False)

    yield from scan()
