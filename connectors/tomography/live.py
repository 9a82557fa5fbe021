# SPDX-License-Identifier: Apache-2.0
"""Slices of a scan while its projections arrive.

Filtered back-projection is a sum over angles: a batch of projections adds its part, and the last preview is the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay import Address, Notice, Step, Stream, VariableNotFoundError
from forebay.connectors.opening import followed_stream
from forebay.connectors.tomography.center import find_center
from forebay.connectors.tomography.projections import minus_log, normalize
from forebay.connectors.tomography.reconstruction import recon
from forebay.connectors.tomography.rings import remove_rings
from forebay.errors import InvalidArgumentError
from forebay.instance import InstanceLike

__all__ = ["LiveReconstruction", "Slices", "reconstruct"]

# A new estimate of the centre is worth back-projecting all angles again when it differs by this many columns.
_CENTER_CHANGE_MIN = 0.25


@dataclass(frozen=True)
class Slices:
    """Slices after some of the projections.

    Attributes
    ----------
    image : array, shape (rows, columns, columns)
        Attenuation per pixel.
    angles : int
        Projections that are in it.
    center : float
        Column of the axis of rotation that was used.
    step : int
        Number of the last step that is in it.
    rows : list of int
        Detector rows of the slices.
    """

    image: NDArray[np.float32]
    angles: int
    center: float
    step: int
    rows: list[int]


class LiveReconstruction:
    """Adds up the back-projections of batches of angles. One thread.

    Parameters
    ----------
    center : float, optional
        Column of the axis of rotation. None: it is found from the projections, as soon as they span enough angles;
        until then it is the middle. When the estimate changes, all batches are back-projected again.
    filter_name : str
        As in :func:`recon`.
    extended : bool
        As in :func:`recon`: the axis is near an edge. Previews before 360 degrees lack a part.
    """

    def __init__(self, *, center: float | None = None, filter_name: str = "ramp", extended: bool = False) -> None:
        self._given, self._filter_name, self._extended = center, filter_name, extended
        self._center = center
        self._lines: list[NDArray[np.float32]] = []
        self._theta: list[NDArray[np.float64]] = []
        self._sum: NDArray[np.float64] | None = None
        self._angles = 0

    @property
    def angles(self) -> int:
        """How many projections have been added."""
        return self._angles

    @property
    def center(self) -> float | None:
        """The centre of rotation in use; None before the first batch."""
        return self._center

    def add(self, lines: NDArray[np.float32], theta: NDArray[Any]) -> NDArray[np.float32]:
        """Adds a batch and returns the slices so far, shape (rows, columns, columns).

        Parameters
        ----------
        lines : array, shape (angles, rows, columns)
            Line integrals of attenuation.
        theta : array, shape (angles)
            Degrees.
        """
        if self._lines and lines.shape[1:] != self._lines[0].shape[1:]:
            raise InvalidArgumentError(
                f"the batch has frames of {lines.shape[1:]}, those before it of {self._lines[0].shape[1:]}"
            )
        self._lines.append(lines)
        self._theta.append(np.asarray(theta, np.float64))
        self._angles += len(lines)
        center = self._estimate()
        if self._sum is None or self._center is None or abs(center - self._center) >= _CENTER_CHANGE_MIN:
            self._center = center
            # Equal in exact arithmetic to one sum over all angles.
            self._sum = self._part(np.concatenate(self._lines), np.concatenate(self._theta))
        else:
            self._sum += self._part(lines, self._theta[-1])
        return (self._sum / self._angles).astype(np.float32)

    def without_rings(self) -> NDArray[np.float32]:
        """The slices of all projections so far, after :func:`remove_rings`."""
        if not self._lines:
            raise InvalidArgumentError("there are no projections yet")
        lines = remove_rings(np.concatenate(self._lines))
        return (self._part(lines, np.concatenate(self._theta)) / self._angles).astype(np.float32)

    def _part(self, lines: NDArray[np.float32], theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The back-projection of some angles, weighted by their number: ``recon`` gives the mean over its angles."""
        image = recon(lines, np.radians(theta), self._center, filter_name=self._filter_name, extended=self._extended)
        return image.astype(np.float64) * len(lines)

    def _estimate(self) -> float:
        if self._given is not None:
            return self._given
        try:
            return find_center(np.concatenate(self._lines), np.concatenate(self._theta), extended=self._extended)
        except InvalidArgumentError:
            return float(self._lines[0].shape[2] - 1) / 2


def reconstruct(
    address: str | Address | Stream,
    *,
    instance: InstanceLike | None = None,
    rows: Sequence[int] | None = None,
    center: float | None = None,
    consumer: str = "",
    timeout: float | None = None,
    filter_name: str = "ramp",
    extended: bool = False,
    without_rings: bool = False,
    on_notice: Callable[[Notice], object] | None = None,
    **opening: Any,
) -> Iterator[Slices]:
    """Follows a scan and yields its slices after each batch of angles, until the scan has ended.

    Only the bands of rows that are asked for are read.

    Parameters
    ----------
    address : str, Address or Stream
        A stream that :class:`ScanWriter` or :func:`ingest` writes, or has written.
    instance : Instance or path, optional
        The instance that has the stream, as in :func:`forebay.open`.
    rows : sequence of int, optional
        Detector rows; None: the middle one.
    center : float, optional
        Column of the axis of rotation; None: found from the projections.
    consumer : str
        With a name, retention waits for this reconstruction: its cursor stays before the scan until the last slices
        were taken from this iterator, so that a crash begins anew with all projections.
    timeout : float, optional
        Seconds that one wait for the next batch may take.
    extended : bool
        A scan of 360 degrees about an axis near an edge of the detector: slices reach as far as the longer side.
    without_rings : bool
        When the scan has ended, its slices come once more, with rings removed by :func:`remove_rings`.
    on_notice : callable, optional
        Called with each :class:`forebay.Notice` of what the scan waits for, or passes over.
    **opening
        Other options of :func:`forebay.open`, for example ``run`` and ``wait_for_writer``.

    Raises
    ------
    InvalidArgumentError
        The stream is no scan, a projection has no angle, or a row lies outside the detector.
    """
    live = LiveReconstruction(center=center, filter_name=filter_name, extended=extended)
    white: NDArray[Any] | None = None
    dark: NDArray[Any] | None = None
    with (
        followed_stream(address, instance, opening, timeout=timeout) as stream,
        stream.follow(consumer, timeout=timeout, start="oldest", ack="manual", on_notice=on_notice) as follower,
    ):
        last: Step | None = None
        for step in follower:
            if step.rewound:
                live = LiveReconstruction(center=center, filter_name=filter_name, extended=extended)
            if last is not None and "projections" not in step and ("white" in step or "dark" in step):
                continue  # fields that were taken after the last projections
            chosen = _rows(step, rows)
            white = _taken(step, "white", chosen) if "white" in step else white
            dark = _taken(step, "dark", chosen) if "dark" in step else dark
            if white is None or dark is None:
                raise InvalidArgumentError(
                    "the scan has no white and dark fields before its first projections", str(step.address)
                )
            theta = step["theta"][...]
            if not np.isfinite(theta).all():
                raise InvalidArgumentError(
                    f"the scan cannot be reconstructed: {np.count_nonzero(~np.isfinite(theta))} of the step's "
                    f"{len(theta)} projections have no angle (theta is not finite)",
                    str(step.address),
                )
            lines = minus_log(normalize(_taken(step, "projections", chosen), white, dark))
            image = live.add(lines, theta)
            assert live.center is not None
            yield Slices(image, live.angles, live.center, step.number, chosen)
            last = step
        if without_rings and last is not None:
            assert live.center is not None
            yield Slices(live.without_rings(), live.angles, live.center, last.number, _rows(last, rows))
        if consumer and last is not None:
            last.ack()


def _rows(step: Step, rows: Sequence[int] | None) -> list[int]:
    try:
        detector_rows = step["projections"].shape[1]
    except (VariableNotFoundError, IndexError):
        raise InvalidArgumentError(
            "the stream is no scan: it has no variable projections (angles, rows, columns)", str(step.address)
        ) from None
    chosen = [detector_rows // 2] if rows is None else list(rows)
    if not chosen or not all(0 <= row < detector_rows for row in chosen):
        raise InvalidArgumentError(f"rows are numbers from 0 to {detector_rows - 1}, not {chosen}", str(step.address))
    return chosen


def _taken(step: Step, name: str, rows: list[int]) -> NDArray[Any]:
    """Some rows of all frames of a step."""
    first, last = min(rows), max(rows)
    if rows == list(range(first, last + 1)):
        band: NDArray[Any] = step[name][:, first : last + 1]
        return band
    return np.concatenate([step[name][:, row : row + 1] for row in rows], 1)
