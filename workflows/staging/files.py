# SPDX-License-Identifier: Apache-2.0
"""Staging of files and trees: verified copies that appear whole and are taken up after a kill.

`forebay-mover` does the work (docs/design/file-mover.md). This module tells it the ends, keeps a stage-in within the
reservation's capacity, and passes on what it reports. Each verified file is reported for the receipt, which the manager
keeps.
"""

from __future__ import annotations

import os
import pwd

import forebay
from forebay.errors import InvalidArgumentError
from forebay.instance import InstanceLike
from forebay.manager.jobs import FilesJob
from forebay.workflows.staging.file_mover import Json, move, tree_of_stage
from forebay.workflows.staging.files_capacity import FilesCapacity
from forebay.workflows.staging.reporting import Reporter

__all__ = ["stage_files"]


def stage_files(job: FilesJob, reporter: Reporter, instance: InstanceLike | None = None) -> Json:
    """Does the job and returns its result.

    Raises
    ------
    NotFoundError
        There is no such source.
    InvalidArgumentError
        The source is not of the kind that the job takes; a path leads out of the reservation; one end contains the
        other.
    PermissionDeniedError
        This user may not; or a link of another user stands above one of the ends.
    UnsupportedError
        The source has something that is neither file, directory nor symbolic link.
    BusyError
        The same stage runs already; or a program has a file of the source open for writing, and no wait was asked for.
    RefusedError
        A program still has a file of the source open for writing when the wait is over.
    StorageError
        A file changed while it was being copied.
    CorruptError
        What was written reads back as something else.
    NoSpaceError
        The destination is full, or the reservation's capacity for files is.
    """
    if not os.path.isabs(job.outside):
        raise InvalidArgumentError("the end outside of the reservation has an absolute path", job.outside)
    with forebay.Admin(instance) as admin:
        reservation = admin.reservation(job.reservation, count_files=False)
    request = {
        "inside": tree_of_stage() or reservation.files_path,
        "inward": str(int(job.inward)),
        "path": job.path,
        "outside": job.outside,
        "name": job.reservation,
        "only": job.only,
        "acls": str(int(job.acls)),
        "wait_closed_ms": str(round(job.wait_closed_seconds * 1000)),
    }
    if job.as_root and reservation.owner_uid != os.geteuid():
        request |= _inside_user(reservation.owner_uid, reservation.owner_gid)
    request |= {key: str(value) for key, value in (("owner", job.owner), ("group", job.group)) if value is not None}
    capacity = FilesCapacity(job.reservation, instance) if job.inward else None
    return move(request, _Listener(reporter, capacity))


def _inside_user(uid: int, gid: int) -> dict[str, str]:
    """The owner, who works inside the reservation, for the mover that root runs."""
    try:
        groups = os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        groups = [gid]
    return {
        "inside_user": str(uid),
        "inside_group": str(gid),
        "inside_groups": ",".join(str(group) for group in groups),
    }


class _Listener:
    """Passes on what the mover tells, and ends a stage-in for which there is no room (any more)."""

    def __init__(self, reporter: Reporter, capacity: FilesCapacity | None) -> None:
        self._reporter = reporter
        self._capacity = capacity

    def planned(self, items: int, size_bytes: int, missing_bytes: int) -> None:
        self._reporter.progress.items_total = items
        self._reporter.progress.bytes_total = size_bytes
        self._reporter.update()
        if self._capacity is not None:
            self._capacity.check(missing_bytes)

    def came_further(self, items_done: int, items_kept: int, bytes_done: int, item: str) -> None:
        progress = self._reporter.progress
        if self._capacity is not None:
            self._capacity.count(bytes_done - progress.bytes_done)
        progress.items_done = items_done
        progress.items_kept = items_kept
        progress.bytes_done = bytes_done
        progress.item = item
        self._reporter.update()

    def built(self) -> None:
        # Others may have filled the reservation meanwhile.
        if self._capacity is not None:
            self._capacity.check(0)

    def verified(self, rows: list[Json]) -> None:
        self._reporter.files(rows)

    def noted(self, text: str) -> None:
        self._reporter.note(text)
