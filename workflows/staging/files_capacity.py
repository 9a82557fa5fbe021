# SPDX-License-Identifier: Apache-2.0
"""What the files of a reservation may take: a stage-in that goes beyond is refused, as by a full disk.

The kernel does not hold the limit, so jobs may write past it; `forebay doctor` reports that.
"""

from __future__ import annotations

import forebay
from forebay.errors import NoSpaceError, StorageError
from forebay.instance import InstanceLike
from forebay.records import ReservationInfo
from forebay.sizes import format_size

__all__ = ["FilesCapacity", "space_of"]

_BLOCK_BYTES = 4096
#: After this part of the capacity has been copied, what is there is measured again: others fill it, too.
_PARTS = 16
#: Without a limit, it is asked after so much whether there is one now.
_UNLIMITED_BYTES = 1 << 30


def space_of(size_bytes: int) -> int:
    """What a file of that size takes on the device."""
    return -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


class FilesCapacity:
    """That of one reservation. One without a capacity for files has no limit. `forebay change --files` may change it at
    any time.
    """

    def __init__(self, reservation: str, instance: InstanceLike | None) -> None:
        self._reservation = reservation
        self._instance = instance
        self._unmeasured_bytes = 0
        self._granted_bytes = self._ask(count_files=False).files_bytes  # when it was asked last

    def check(self, missing_bytes: int) -> None:
        """NoSpaceError if so much more does not fit."""
        info = self._ask(count_files=True)
        self._granted_bytes, used_bytes = info.files_bytes, info.files_used_bytes
        if not self._granted_bytes:
            return
        if used_bytes is None:
            raise StorageError(
                f"what lies in the files of reservation {self._reservation} cannot be counted; the log of its server "
                "says why",
                self._reservation,
            )
        if used_bytes + missing_bytes > self._granted_bytes:
            more = f": another {format_size(missing_bytes)} do not fit" if missing_bytes else ""
            raise NoSpaceError(
                f"the files of reservation {self._reservation} may take {format_size(self._granted_bytes)}, of which "
                f"{format_size(used_bytes)} are used{more}; remove some there, stage in less, or create it with more "
                "--files",
                self._reservation,
            )

    def count(self, copied_bytes: int) -> None:
        """So much was copied; NoSpaceError if it has become too much, with what others have written meanwhile."""
        self._unmeasured_bytes += copied_bytes
        if self._unmeasured_bytes > (self._granted_bytes or _PARTS * _UNLIMITED_BYTES) / _PARTS:
            self._unmeasured_bytes = 0
            self.check(0)

    def _ask(self, *, count_files: bool) -> ReservationInfo:
        with forebay.Admin(self._instance) as admin:
            return admin.reservation(self._reservation, count_files=count_files)
