# SPDX-License-Identifier: Apache-2.0
"""What a reservation holds, remembered for a moment: Snakemake asks for the same things tens of thousands of times."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from snakemake_storage_plugin_forebay.declared import DeclaredReservation

import forebay
from forebay.errors import DisconnectedError, NotFoundError
from forebay.records import StepSummary, StreamInfo, StreamStatus

__all__ = ["ReservationSnapshot", "Snapshots"]

_SECONDS_FRESH = 1.0
_FINISHED = (StreamStatus.ENDED,)


@dataclass(slots=True)
class ReservationSnapshot:
    """One reservation: its streams and, where they were asked for, their steps."""

    files: Path | None  #: None: there is no such reservation
    streams: dict[str, StreamInfo]
    steps: dict[str, dict[int, StepSummary]]
    taken_at: float

    def finished(self, stream: str) -> StreamInfo | None:
        """The stream, if its writers have ended it: what a killed rule left is no output."""
        info = self.streams.get(stream)
        return info if info is not None and info.status in _FINISHED else None


class Snapshots:
    """The reservations of one instance; None: of the one that the environment names."""

    def __init__(self, instance: forebay.Instance | None, declared: DeclaredReservation | None = None) -> None:
        self._instance = instance
        self._declared = declared
        self._kept: dict[str, ReservationSnapshot] = {}
        self.round_trips = 0

    def of(self, reservation: str) -> ReservationSnapshot:
        """What the reservation holds, at most a second ago."""
        kept = self._kept.get(reservation)
        if kept is None or time.monotonic() - kept.taken_at > _SECONDS_FRESH:
            kept = self._kept[reservation] = self._take(reservation)
        return kept

    def steps(self, reservation: str, stream: str) -> dict[int, StepSummary]:
        """The stream's kept steps by number."""
        snapshot = self.of(reservation)
        if stream not in snapshot.streams:
            return {}
        if stream not in snapshot.steps:
            self.round_trips += 1
            with forebay.Admin(self._instance) as admin:
                try:
                    found = admin.steps(f"{reservation}/{stream}")
                except NotFoundError:
                    found = []
            snapshot.steps[stream] = {step.number: step for step in found}
        return snapshot.steps[stream]

    def forget(self, reservation: str) -> None:
        """Something has changed."""
        self._kept.pop(reservation, None)

    def _take(self, reservation: str) -> ReservationSnapshot:
        if self._declared is not None and not _is_dry_run():
            self._declared.prepare(reservation)
        self.round_trips += 1
        files: Path | None = None
        streams: dict[str, StreamInfo] = {}
        try:
            with forebay.Admin(self._instance) as admin, contextlib.suppress(NotFoundError):
                files = Path(admin.reservation(reservation).files_path)
                streams = {info.name: info for info in admin.streams(reservation)}
        except (NotFoundError, DisconnectedError):
            # There is no server.
            if not _is_dry_run():
                raise
        return ReservationSnapshot(files, streams, {}, time.monotonic())


def _is_dry_run() -> bool:
    """A dry run needs no server: nothing is there yet. Snakemake tells its plugins by its arguments alone."""
    return not {"-n", "--dry-run", "--dryrun"}.isdisjoint(sys.argv)
