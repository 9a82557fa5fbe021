# SPDX-License-Identifier: Apache-2.0
"""What reservations hold, remembered: Snakemake asks for the same things tens of thousands of times.

While jobs run, Snakemake asks in each round whether the inputs of all ready jobs exist, and how large they are. What
was there is answered from memory, and looked at again in a thread of its own. What was not there, an output most of the
time, is asked for at once: the answer after a job has to be true.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from snakemake_storage_plugin_forebay.declared import DeclaredReservation

import forebay
from forebay.errors import DisconnectedError, ForebayError, NotFoundError
from forebay.records import StepSummary, StreamInfo, StreamStatus

__all__ = ["ReservationSnapshot", "Snapshots"]

#: After this it is looked at again, beside what Snakemake does.
_SECONDS_FRESH = 2.0
#: What was not there is not asked for more often than this.
_SECONDS_ABSENT = 0.02


@dataclass(slots=True)
class ReservationSnapshot:
    """One reservation: its streams, and the steps of those that were asked for."""

    files: Path | None  #: None: there is no such reservation
    streams: dict[str, StreamInfo]
    steps: dict[str, dict[int, StepSummary]]
    taken_at: float = field(default_factory=time.monotonic)

    def finished(self, stream: str) -> StreamInfo | None:
        """The stream, if its writers have ended it: what a killed rule left is no output."""
        info = self.streams.get(stream)
        return info if info is not None and info.status is StreamStatus.ENDED else None


class Snapshots:
    """The reservations of one instance; None: of the one that the environment names."""

    def __init__(self, instance: forebay.Instance | None, declared: DeclaredReservation | None = None) -> None:
        self._instance = instance
        self._declared = declared
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._kept: dict[str, ReservationSnapshot] = {}
        self._steps_wanted: dict[str, set[str]] = {}
        self._refreshing: set[str] = set()
        #: How often Snakemake's own thread waited for the server.
        self.round_trips = 0

    def of(self, reservation: str) -> ReservationSnapshot:
        """What the reservation holds, as remembered; asked for if nothing is."""
        with self._lock:
            kept = self._kept.get(reservation)
        if kept is None or kept.files is None:
            return self._asked(reservation, kept)
        if time.monotonic() - kept.taken_at > _SECONDS_FRESH:
            self._refresh(reservation)
        return kept

    def finished(self, reservation: str, stream: str) -> StreamInfo | None:
        """The stream, if its writers have ended it."""
        kept = self.of(reservation)
        return kept.finished(stream) or self._asked(reservation, kept).finished(stream)

    def step(self, reservation: str, stream: str, number: int) -> StepSummary | None:
        """The step, if it is kept."""
        with self._lock:
            self._steps_wanted.setdefault(reservation, set()).add(stream)
        kept = self.of(reservation)
        found = kept.steps.get(stream, {}).get(number)
        if found is None:
            was_listed = stream in kept.steps or stream not in kept.streams
            found = self._asked(reservation, kept if was_listed else None).steps.get(stream, {}).get(number)
        return found

    def steps(self, reservation: str, stream: str) -> dict[int, StepSummary]:
        """The stream's kept steps by number."""
        with self._lock:
            self._steps_wanted.setdefault(reservation, set()).add(stream)
        kept = self.of(reservation)
        if stream not in kept.steps and stream in kept.streams:
            kept = self._asked(reservation, None)
        return kept.steps.get(stream, {})

    def whole(self, reservation: str) -> ReservationSnapshot:
        """The same with the steps of all streams, in one go."""
        with self._lock:
            wanted = self._steps_wanted.setdefault(reservation, set())
        kept = self.of(reservation)
        missing = kept.streams.keys() - kept.steps.keys()
        if missing:
            with self._lock:
                wanted |= missing
            kept = self._asked(reservation, None)
        return kept

    def forget(self, reservation: str) -> None:
        """Something has changed."""
        with self._lock:
            self._kept.pop(reservation, None)

    def _asked(self, reservation: str, kept: ReservationSnapshot | None) -> ReservationSnapshot:
        """A new one, unless ``kept`` is hardly older."""
        if kept is not None and time.monotonic() - kept.taken_at < _SECONDS_ABSENT:
            return kept
        if self._declared is not None and not _is_dry_run():
            self._declared.prepare(reservation)
        self.round_trips += 1
        taken = self._take(reservation)
        with self._lock:
            self._kept[reservation] = taken
        return taken

    def _refresh(self, reservation: str) -> None:
        """Looks again in a thread; a server that is away is left to the one who needs it."""

        def look() -> None:
            try:
                with contextlib.suppress(ForebayError):
                    began = time.monotonic()
                    taken = self._take(reservation)
                    with self._lock:
                        kept = self._kept.get(reservation)
                        # Not what was forgotten or taken meanwhile.
                        if kept is not None and kept.taken_at < began:
                            self._kept[reservation] = taken
            finally:
                with self._lock:
                    self._refreshing.discard(reservation)

        with self._lock:
            if reservation in self._refreshing:
                return
            self._refreshing.add(reservation)
        threading.Thread(target=look, name=f"forebay-{reservation}", daemon=True).start()

    def _take(self, reservation: str) -> ReservationSnapshot:
        taken = ReservationSnapshot(None, {}, {})
        with self._lock:
            wanted = set(self._steps_wanted.get(reservation, ()))
        try:
            with forebay.Admin(self._instance) as admin, contextlib.suppress(NotFoundError):
                taken.files = Path(admin.reservation(reservation, count_files=False).files_path)
                taken.streams = {info.name: info for info in admin.streams(reservation)}
                for stream in wanted & taken.streams.keys():
                    with contextlib.suppress(NotFoundError):
                        found = admin.steps(f"{reservation}/{stream}")
                        taken.steps[stream] = {step.number: step for step in found}
        except (NotFoundError, DisconnectedError):
            # There is no server.
            if not _is_dry_run():
                raise
        return taken


def _is_dry_run() -> bool:
    """A dry run needs no server: nothing is there yet. Snakemake tells its plugins by its arguments alone."""
    return not {"-n", "--dry-run", "--dryrun"}.isdisjoint(sys.argv)
