# SPDX-License-Identifier: Apache-2.0
"""The record of all scans of a reservation: the documents that begin and end each, in a stream of their own.

A step of ``RES/scans`` is one document: its ``kind`` (``start``, ``stop``, or what else an acquisition emits) and its
``document``, JSON. A scan whose process died has no stop document; the next one that opens the log writes it, with what
the archive says.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import forebay
from forebay.closing import Closing
from forebay.errors import NotFoundError, RefusedError, StreamNotFoundError
from forebay.instance import InstanceLike
from forebay.records import StreamStatus

__all__ = ["ScanLog", "ScanRecord"]

LOG = "scans"


@dataclass(frozen=True, slots=True)
class ScanRecord:
    """One scan as its documents tell."""

    scan: str  #: the archive stream's name
    uid: str
    start: Mapping[str, Any]
    stop: Mapping[str, Any] | None = None  #: None: it runs, or nobody has looked since its process died
    documents: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=())  #: those between

    @property
    def exit_status(self) -> str:
        """``success``, ``abort`` or ``fail``, as Bluesky has them; ``running``."""
        return "running" if self.stop is None else str(self.stop["exit_status"])


class ScanLog(Closing):
    """Writes the documents of a reservation's scans; one process at a time.

    Parameters
    ----------
    reservation : str
        Where the scans are.
    instance : Instance or path, optional
        As in :func:`forebay.open`.
    """

    def __init__(self, reservation: str, *, instance: InstanceLike | None = None) -> None:
        self.reservation = reservation
        self._instance = instance
        self._stream = forebay.open(f"{reservation}/{LOG}", "a", instance=instance)
        try:
            self._end_what_was_lost()
        except BaseException:
            self._stream.close()
            raise

    def begin(self, scan: str, *, uid: str | None = None, **what: Any) -> str:
        """Writes a start document, and returns its uid.

        Parameters
        ----------
        scan : str
            Name of the archive stream.
        uid : str, optional
            Of the run, as Bluesky gives it.
        **what
            Whatever is to be known: ``frames_expected``, ``sample``, ``experiment``.
        """
        uid = uid or str(uuid.uuid4())
        self.document("start", {"uid": uid, "time": time.time(), "scan": scan, **what})
        return uid

    def end(self, uid: str, exit_status: str = "success", reason: str = "", **what: Any) -> None:
        """Writes the stop document of the scan that began with ``uid``.

        Where a run has several detectors each has a scan, and ``scan`` among ``what`` names which.
        """
        self.document(
            "stop", {"run_start": uid, "time": time.time(), "exit_status": exit_status, "reason": reason, **what}
        )

    def document(self, kind: str, document: Mapping[str, Any]) -> None:
        """Writes any document."""
        with self._stream.step() as step:
            step["kind"] = kind
            step["document"] = json.dumps(document, default=_plain)

    def close(self) -> None:
        """Ends the log; it is gone on with when it is opened again. Idempotent."""
        self._stream.close()

    def _end_what_was_lost(self) -> None:
        """Nobody else writes the log, so scans without an end have no process any more."""
        for record in self.records(self.reservation, instance=self._instance):
            if record.stop is None:
                self.end(
                    record.uid,
                    "fail",
                    "the acquisition ended without a stop document; its process was killed or lost",
                    scan=record.scan,
                    frames_written=_frames_of(self.reservation, record.scan, self._instance),
                )

    @staticmethod
    def records(reservation: str, *, instance: InstanceLike | None = None) -> list[ScanRecord]:
        """What the log says, oldest first; nothing where there is no log."""
        # By run and scan: a run has a scan for each detector.
        begun: dict[tuple[str, str], ScanRecord] = {}
        runs: dict[str, dict[str, None]] = {}
        try:
            stream = forebay.open(f"{reservation}/{LOG}", instance=instance, timeout=0)
        except StreamNotFoundError:
            return []
        with stream:
            for step in stream:
                kind, document = str(step["kind"][...]), json.loads(str(step["document"][...]))
                uid = document["uid"] if kind == "start" else document.get("run_start", "")
                if kind == "start":
                    scan = str(document["scan"])
                    begun[uid, scan] = ScanRecord(scan, uid, document)
                    runs.setdefault(uid, {})[scan] = None
                    continue
                # Without a name it is of all scans of the run.
                for scan in [str(document["scan"])] if "scan" in document else runs.get(uid, ()):
                    key = (uid, scan)
                    record = begun.get(key)
                    if record is None:
                        continue
                    if kind == "stop":
                        begun[key] = replace(record, stop=document)
                    else:
                        begun[key] = replace(record, documents=(*record.documents, (kind, document)))
        return list(begun.values())

    @staticmethod
    def retire(
        reservation: str, *, experiment: str | None = None, keep: int = 0, instance: InstanceLike | None = None
    ) -> list[str]:
        """Removes scans that are staged out, but the newest ``keep``; the names of those that went.

        Parameters
        ----------
        experiment : str, optional
            Only those whose start document says so.
        keep : int
            How many of them stay.
        """
        records = [
            record
            for record in ScanLog.records(reservation, instance=instance)
            if record.stop is not None and (experiment is None or record.start.get("experiment") == experiment)
        ]
        # A scan that was repeated has one stream, which belongs to the newest record.
        names = list(dict.fromkeys(record.scan for record in reversed(records)))
        with forebay.Admin(instance) as admin:
            return list(_removed(admin, reservation, names[max(0, keep) :]))


def _removed(admin: forebay.Admin, reservation: str, names: Iterable[str]) -> Iterable[str]:
    there = {info.name: info for info in admin.streams(reservation)}
    for name in names:
        info = there.get(name)
        if info is None or info.status is StreamStatus.LIVE:
            continue
        try:
            # The server refuses where frames are not staged out.
            admin.remove_stream(f"{reservation}/{name}")
        except RefusedError:
            continue
        if f"{name}.preview" in there:
            admin.remove_stream(f"{reservation}/{name}.preview")
        yield name


def _frames_of(reservation: str, scan: str, instance: InstanceLike | None) -> int:
    """Frames of the archive that are there."""
    try:
        with forebay.open(f"{reservation}/{scan}", instance=instance, timeout=0) as stream:
            return sum(
                step[name].shape[0] for step in stream for name in ("projections", "white", "dark") if name in step
            )
    except NotFoundError:
        return 0


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
