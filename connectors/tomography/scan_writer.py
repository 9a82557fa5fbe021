# SPDX-License-Identifier: Apache-2.0
"""A scan as a stream: a step is a batch of angles, a block a band of detector rows.

So the sinogram of some rows is read without the others. A step has

- ``projections``: (angles, rows, columns), as the detector gave them;
- ``theta``: (angles), in degrees;
- ``white`` and ``dark``: (frames, rows, columns), in steps before whose projections such fields were taken. They count
  from that step on, until others are taken.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import forebay
from forebay import Address, StepBeingWritten
from forebay.closing import ClosingOnSuccess
from forebay.datatypes import common_dtype, plain_array
from forebay.errors import InvalidArgumentError

__all__ = ["ScanWriter"]

Array = NDArray[Any]


class ScanWriter(ClosingOnSuccess):
    """Writes frames, pushed one by one or many at a time, as batches. A context manager; one thread.

    Leaving the ``with`` block without an error writes the frames that are left, and ends the stream.

    Parameters
    ----------
    address : str or Address
        ``"RES/STREAM"``; a stream of that name is replaced.
    angles_per_step : int
        Projections in a step.
    rows_per_block : int
        Detector rows in a block: what a reader of some rows reads at least.
    **options
        Of :func:`forebay.open`, for example ``instance``, ``retention`` and ``durability``.
    """

    def __init__(
        self, address: str | Address, *, angles_per_step: int = 10, rows_per_block: int = 16, **options: Any
    ) -> None:
        if min(angles_per_step, rows_per_block) < 1:
            raise InvalidArgumentError("angles_per_step and rows_per_block are at least 1")
        self._angles_per_step, self._rows_per_block = angles_per_step, rows_per_block
        self._frames: list[Array] = []
        self._theta: list[float] = []
        self._fields: dict[str, list[Array]] = {"white": [], "dark": []}
        self._extents: tuple[int, int] | None = None
        self._stream = forebay.open(address, mode="w", **options)
        self._stream.attributes["theta/units"] = "degrees"
        self._stream.attributes["forebay/layout"] = "scan"

    def projection(self, frame: Array, theta: float) -> None:
        """Adds a projection, (rows, columns), taken at ``theta`` degrees. The array may be used again at once.

        Raises
        ------
        InvalidArgumentError
            The frame has another shape than the first, or masked pixels; or the angle is not finite.
        """
        if not math.isfinite(theta):
            raise InvalidArgumentError(
                f"a projection has an angle in degrees, not {theta}: leave the frame out, or find its angle",
                f"stream {self._stream.address}",
            )
        self._frames.append(self._checked(frame))
        self._theta.append(float(theta))
        if len(self._frames) >= self._angles_per_step:
            self._write()

    def white(self, frame: Array) -> None:
        """Adds a white (flat) field, which counts for the projections that come after it."""
        self.field("white", frame)

    def dark(self, frame: Array) -> None:
        """Adds a dark field, which counts for the projections that come after it."""
        self.field("dark", frame)

    def field(self, kind: Literal["white", "dark"], frame: Array) -> None:
        """Adds a white or dark field."""
        # It counts from its step on, so projections from before it have to be in an earlier one.
        if self._frames:
            self._write()
        self._fields[kind].append(self._checked(frame))

    def close(self) -> None:
        """Writes the frames that are left and ends the stream. Idempotent."""
        if self._frames:
            self._write()
        self._stream.close()

    def abandon(self) -> None:
        """Leaves the stream interrupted, without the frames that are left. Idempotent."""
        self._stream.abandon()

    def _checked(self, frame: Array) -> Array:
        if frame.ndim != 2 or (self._extents is not None and frame.shape != self._extents):
            raise InvalidArgumentError(
                f"a frame has the shape (rows, columns){f' of the first, {self._extents}' if self._extents else ''}, "
                f"not {frame.shape}",
                f"stream {self._stream.address}",
            )
        self._extents = (frame.shape[0], frame.shape[1])
        # A camera may use its memory again at once.
        return np.array(plain_array(frame, "frame"))

    def _write(self) -> None:
        with self._stream.step() as step:
            self._write_bands(step, "projections", self._frames)
            step["theta"] = np.array(self._theta)
            for name, frames in self._fields.items():
                if frames:
                    self._write_bands(step, name, frames)
        self._frames, self._theta = [], []
        self._fields = {"white": [], "dark": []}

    def _write_bands(self, step: StepBeingWritten, name: str, frames: list[Array]) -> None:
        what = f"{name} of stream {self._stream.address}"
        stack = np.stack(frames, dtype=common_dtype((frame.dtype for frame in frames), what))
        for row in range(0, stack.shape[1], self._rows_per_block):
            band = stack[:, row : row + self._rows_per_block]
            step.write(name, band, shape=stack.shape, start=(0, row, 0))
