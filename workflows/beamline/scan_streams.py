# SPDX-License-Identifier: Apache-2.0
"""A scan as two streams: the archive, which loses no frame, and the preview, which may.

The archive has the layout of a scan that `forebay reconstruct` reads: steps are batches of frames, with

- ``projections``: (frames, rows, columns), as the detector gave them, and ``theta``: (frames), in degrees;
- ``white`` and ``dark``: (frames, rows, columns), in steps before whose projections such fields were taken; fields
  after the last projection are a step of their own;
- ``frame``, ``white_frame`` and ``dark_frame``: the detector's own number of each; ``acquired``: (frames), seconds
  since the epoch.

The preview has a step for each frame, ``image`` (rows, columns), with ``theta`` and ``frame``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay.closing import ClosingOnSuccess
from forebay.datatypes import common_dtype, plain_array
from forebay.errors import ForebayError, InvalidArgumentError
from forebay.instance import InstanceLike

__all__ = ["ImageKey", "ScanSettings", "ScanStreams"]

_ROWS_PER_BLOCK = 64
_MISSING_NAMED_MAX = 100


class ImageKey(IntEnum):
    """What a frame shows; the values are NeXus' (NXtomo)."""

    PROJECTION = 0
    WHITE = 1
    DARK = 2


_FIELDS = {ImageKey.WHITE: "white", ImageKey.DARK: "dark"}


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """How the streams of a scan are written.

    Attributes
    ----------
    frames_per_step : int
        Projections in a step of the archive.
    block_timeout : float or None
        Seconds that the archive waits for space. Then the acquisition fails: no frame is dropped.
    archive_last : int or None
        For scans that are larger than the reservation: of the archive's steps that are staged out, this many of the
        newest stay. None: all stay until the scan is removed.
    preview : bool
        Whether there is a preview stream.
    preview_last : int
        How many frames the preview keeps, unless the reservation is full.
    units : mapping
        Unit of each variable, for example ``{"projections": "counts"}``.
    """

    frames_per_step: int = 10
    block_timeout: float | None = 60.0
    archive_last: int | None = None
    preview: bool = True
    preview_last: int = 10
    units: Mapping[str, str] = field(default_factory=lambda: {"projections": "counts"})


class ScanStreams(ClosingOnSuccess):
    """Writes one scan. One thread. A context manager: an exception leaves the archive interrupted, with all frames.

    Parameters
    ----------
    address : str
        ``"RES/SCAN"``, the archive; the preview is ``"RES/SCAN.preview"``. A scan of that name is replaced, unless it
        has frames that are not staged out.
    expected : int, optional
        How many frames the scan will have, of all kinds.
    attributes : mapping
        Further attributes of the archive: texts and numbers.
    settings : ScanSettings
        See there.
    instance : Instance or path, optional
        As in :func:`forebay.open`.
    """

    def __init__(
        self,
        address: str,
        *,
        expected: int | None = None,
        attributes: Mapping[str, Any] | None = None,
        settings: ScanSettings | None = None,
        instance: InstanceLike | None = None,
    ) -> None:
        self.address = forebay.Address.parse(address)
        self.expected = expected
        self._settings = settings or ScanSettings()
        if self._settings.frames_per_step < 1:
            raise InvalidArgumentError("frames_per_step is at least 1")
        self._kept: list[NDArray[Any]] = []
        self._of_kept: list[tuple[float, int, float]] = []  # theta, frame, acquired
        self._fields: dict[str, list[tuple[int, NDArray[Any]]]] = {"white": [], "dark": []}
        self._shape: tuple[int, ...] | None = None
        self._next_number = 0
        self._missing: list[int] = []
        self.frames_written = 0  #: in the archive, of all kinds
        self.projections_written = 0
        self.previews_lost = 0
        self._failed = False  # a step could not be written
        last = self._settings.archive_last
        # Every step stays until it is staged out, and a full reservation makes the detector wait, and then fail.
        self._archive = forebay.open(
            self.address,
            "w",
            instance=instance,
            retention="precious:1" if last is None else f"last:{last},precious:1",
            when_full="block",
            block_timeout=self._settings.block_timeout,
        )
        self._preview: forebay.WritableStream | None = None
        try:
            self._describe(self._archive, attributes or {})
            if self._settings.preview:
                self._preview = forebay.open(
                    f"{self.address}.preview",
                    "w",
                    instance=instance,
                    retention=f"last:{self._settings.preview_last}",
                    when_full="drop_oldest",
                    block_timeout=0.0,
                )
                self._describe(self._preview, attributes or {})
        except BaseException:
            self._archive.abandon()
            raise

    def _describe(self, stream: forebay.WritableStream, attributes: Mapping[str, Any]) -> None:
        stream.attributes["forebay/layout"] = "scan" if stream is self._archive else "preview"
        stream.attributes["theta/units"] = "degrees"
        for name, unit in self._settings.units.items():
            stream.attributes[f"{name}/units"] = unit
        if self.expected is not None:
            stream.attributes["scan/frames_expected"] = self.expected
        for name, value in attributes.items():
            stream.attributes[name] = value

    @property
    def missing(self) -> list[int]:
        """Numbers that the detector left out, up to a hundred: triggers without a frame."""
        return list(self._missing)

    def frame(
        self,
        image: NDArray[Any],
        *,
        theta: float = float("nan"),
        key: ImageKey = ImageKey.PROJECTION,
        number: int | None = None,
        acquired: float | None = None,
    ) -> None:
        """Adds a frame, (rows, columns).

        Parameters
        ----------
        theta : float
            Degrees; of a projection.
        number : int, optional
            The detector's own, counted from 0 through the scan. Numbers that are left out are noted as missing.
        acquired : float, optional
            Seconds since the epoch; not given: now.

        Raises
        ------
        NoSpaceError, DeadlineExceededError
            The reservation is full, and was for ``block_timeout``. The frame is not in the archive.
        InvalidArgumentError
            The frame has another shape than the first, masked pixels, or a number that was there.
        """
        if image.ndim != 2 or (self._shape is not None and image.shape != self._shape):
            raise InvalidArgumentError(
                f"a frame has the shape (rows, columns){'' if self._shape is None else f' of the first, {self._shape}'}"
                f", not {image.shape}",
                f"scan {self.address}",
            )
        number = self._next_number if number is None else number
        if number < self._next_number:
            raise InvalidArgumentError(
                f"frame {number} comes after frame {self._next_number - 1}", f"scan {self.address}"
            )
        self._shape = image.shape
        # The detector may use its memory again at once.
        image = np.array(plain_array(image, "image"))
        if key is ImageKey.PROJECTION:
            self._show(image, theta, number)
            self._kept.append(image)
            self._of_kept.append((theta, number, time.time() if acquired is None else acquired))
            if len(self._kept) >= self._settings.frames_per_step:
                self.flush()
        else:
            # A field counts from its step on, so projections from before it are in an earlier one.
            if self._kept:
                self.flush()
            self._fields[_FIELDS[key]].append((number, image))
        room = _MISSING_NAMED_MAX - len(self._missing)
        self._missing += range(self._next_number, number)[:room]
        self._next_number = number + 1

    def flush(self) -> None:
        """Writes the frames that are kept for the next step."""
        try:
            self._flush()
        except BaseException:
            self._failed = True
            raise

    def _flush(self) -> None:
        fields = sum(len(frames) for frames in self._fields.values())
        if not self._kept and not fields:
            return
        with self._archive.step() as step:
            if self._kept:
                self._write_frames(step, "projections", self._kept)
                theta, numbers, acquired = zip(*self._of_kept, strict=True)
                step["theta"] = np.array(theta)
                step["frame"] = np.array(numbers, np.int64)
                step["acquired"] = np.array(acquired)
            for name, frames in self._fields.items():
                if frames:
                    self._write_frames(step, name, [image for _, image in frames])
                    step[f"{name}_frame"] = np.array([number for number, _ in frames], np.int64)
        self.projections_written += len(self._kept)
        self.frames_written += len(self._kept) + fields
        self._kept, self._of_kept = [], []
        self._fields = {"white": [], "dark": []}

    def close(self) -> None:
        """Writes what is left and ends both streams. Idempotent."""
        self.flush()
        self._archive.close()
        self._end_preview()

    def abandon(self) -> None:
        """Leaves the archive interrupted, with the frames of its steps. Idempotent."""
        self._archive.abandon()
        self._end_preview()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self._failed:
            # The frames that were taken are kept, too. What ended the scan is the error to report.
            with suppress(ForebayError):
                self.flush()
        super().__exit__(kind, error, trace)

    def _end_preview(self) -> None:
        if self._preview is not None:
            self._preview.close()

    def _show(self, image: NDArray[Any], theta: float, number: int) -> None:
        """The preview never stops the scan: what it has no room for is left out, and counted."""
        if self._preview is None:
            return
        try:
            with self._preview.step() as step:
                step["image"] = image
                step["theta"] = theta
                step["frame"] = number
        except ForebayError:
            self.previews_lost += 1

    def _write_frames(self, step: forebay.StepBeingWritten, name: str, frames: list[NDArray[Any]]) -> None:
        what = f"{name} of scan {self.address}"
        stack = np.stack(frames, dtype=common_dtype((frame.dtype for frame in frames), what))
        for row in range(0, stack.shape[1], _ROWS_PER_BLOCK):
            step.write(name, stack[:, row : row + _ROWS_PER_BLOCK], shape=stack.shape, start=(0, row, 0))
