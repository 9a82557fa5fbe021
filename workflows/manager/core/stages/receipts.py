# SPDX-License-Identifier: Apache-2.0
"""Receipts of stages, below ROOT/receipts: written by the manager from what stages report, row by row as it comes, and
kept independently of its database. Only root, or the user of the instance, can look into the folder. Format:
docs/formats/receipt.md.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import forebay
from forebay.errors import CorruptError, NotFoundError, RefusedError
from forebay.errors import readable_errors as errors_of_system
from forebay.manager.records import ReceiptRow, StageRow
from forebay.sizes import format_size
from forebay.workflows.manager.core.stages.stage_messages import checked_row
from forebay.workflows.staging.checksum import format_checksum
from forebay.workflows.staging.publication import make_directory, sync_directory

__all__ = ["ReceiptWriter", "Receipts", "StoredReceipt", "find_receipt"]

_FORMAT = "forebay.stage"
_VERSION = 1
_HEAD_BYTES_MAX = 1 << 20
_END_BYTES_MAX = 256 << 10
_FILE_BYTES_MIN = 4096  # that a small one takes


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A finished receipt."""

    path: Path
    uid: int
    row: ReceiptRow  #: its first and its last line

    def covers(self, place: str) -> bool:
        """It is about this file or folder, an absolute path or RES:PATH, or about one that the place lies in."""
        job, result = self.row.job, self.row.result
        targets = [str(result.get("target", "")), job.get("destination") or job.get("outside") or ""]
        if job["kind"] != "steps":
            targets.append(f"{job['reservation']}:{job['path']}")
        return any(target and _lies_in(place, target) for target in targets)


class Receipts:
    """All of an instance. Usable from several threads."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max
        self._guard = threading.Lock()  # Guards what follows.
        self._used: Counter[int] = Counter()  # bytes of each user's receipts

    def start(self) -> int:
        """Makes the folder, removes what stages left that were under way, adds up what is there; returns the highest
        number of a stage.
        """
        highest = 0
        with self.readable_errors():
            make_directory(self._folder)
            self._folder.chmod(0o700)
            for uid, path in self._files():
                if not path.name.isdecimal():
                    path.unlink()
                    continue
                highest = max(highest, int(path.name))
                self._count(uid, _space_of(path.stat().st_size))
        return highest

    def begin(self, row: StageRow) -> ReceiptWriter:
        """A receipt for a run of this stage; what an earlier run has left of one is forgotten."""
        head = {
            "format": _FORMAT,
            "version": _VERSION,
            "forebay": version("forebay"),
            "stage": row.id,
            "uid": row.owner_uid,
            "begun_ns": time.time_ns(),
            "job": row.job,
        }
        return ReceiptWriter(self, self._folder / str(row.owner_uid) / str(row.id), row.owner_uid, head)

    def find(self, stage_id: int, uid: int | None) -> StoredReceipt | None:
        """That of a stage of this user; None: of any user's."""
        with self.readable_errors():
            for owner, path in self._files(uid):
                if path.name == str(stage_id):
                    return _stored(owner, path)
        return None

    def of(self, uid: int | None) -> Iterator[StoredReceipt]:
        """Those of a user, the newest first; None: of all users."""
        with self.readable_errors():
            found = [(int(path.name), owner, path) for owner, path in self._files(uid) if path.name.isdecimal()]
            for _, owner, path in sorted(found, reverse=True):
                with contextlib.suppress(FileNotFoundError):
                    yield _stored(owner, path)

    def remove(self, receipt: StoredReceipt) -> None:
        """Removes one; idempotent."""
        with self.readable_errors(), contextlib.suppress(FileNotFoundError):
            size_bytes = receipt.path.stat().st_size
            receipt.path.unlink()
            self._count(receipt.uid, -_space_of(size_bytes))

    def reserve(self, uid: int, size_bytes: int) -> None:
        """So much more is about to be written for this user.

        Raises
        ------
        RefusedError
            The user's receipts would take more than the centre's configuration allows.
        """
        with self._guard:
            if self._used[uid] + size_bytes > self._bytes_max:
                raise RefusedError(
                    f"the receipts of user {uid} take {format_size(self._used[uid])}, and [stages] receipts_max allows "
                    f"{format_size(self._bytes_max)}; remove old ones with `forebay receipt --remove STAGE`, or stage "
                    "fewer files at once"
                )
            self._used[uid] += size_bytes

    def give_back(self, uid: int, size_bytes: int) -> None:
        """So much less lies there."""
        self._count(uid, -size_bytes)

    def _count(self, uid: int, size_bytes: int) -> None:
        with self._guard:
            self._used[uid] += size_bytes
            if not self._used[uid]:
                del self._used[uid]

    def _files(self, uid: int | None = None) -> Iterator[tuple[int, Path]]:
        """Of one user, or of all."""
        names = [str(uid)] if uid is not None else os.listdir(self._folder)
        for name in names:
            if name.isdecimal():
                with contextlib.suppress(FileNotFoundError):
                    for file in os.listdir(self._folder / name):
                        yield int(name), self._folder / name / file

    def readable_errors(self) -> contextlib.AbstractContextManager[None]:
        """What the system raises, as errors that say what to do."""
        return errors_of_system(
            self._folder,
            full="the disk of the receipts is full; make room there",
            denied="the receipts cannot be read or written; have the folder's permissions changed",
            failed="repair the disk of the instance's root",
        )


class ReceiptWriter:
    """A receipt that is being written, under a hidden name. Usable from several threads, one after another."""

    def __init__(self, receipts: Receipts, path: Path, uid: int, head: dict[str, Any]) -> None:
        self._receipts = receipts
        self._path = path
        self._partial = path.with_name(f".{path.name}.partial")
        self._uid = uid
        self._head = head
        self._guard = threading.Lock()  # Guards what follows.
        self._is_over = False
        self._file: IO[bytes] | None = None
        self._size_bytes = 0
        self._reserved_bytes = 0
        self._checksum = 0
        self._files = 0
        self._files_bytes = 0

    def add(self, rows: Iterable[Any]) -> None:
        """Appends rows as a stage reports them. May be called again after an error of the disk: then nothing was added.

        Raises
        ------
        RefusedError
            The user's receipts take too much.
        InvalidArgumentError
            A row is none.
        NoSpaceError, StorageError
            The disk.
        """
        checked = [checked_row(row) for row in rows]
        with self._guard:
            self._append(b"".join(map(_line, checked)))
            self._files += len(checked)
            self._files_bytes += sum(row["size_bytes"] for row in checked)

    def end(self, result: dict[str, Any]) -> None:
        """Appends the last line; raises as `add` does, and may be called again likewise."""
        with self._guard:
            self._append(b"")  # of a receipt without rows, too, the checksum is that of its head
            end = {
                "ended_ns": time.time_ns(),
                "result": result,
                "files": self._files,
                "size_bytes": self._files_bytes,
                "crc32c": format_checksum(self._checksum),
            }
            self._append(_line(end))

    def publish(self) -> None:
        """Gives the ended receipt its name, durably. Not to be called again: a sync that failed is no success later.

        Raises
        ------
        NoSpaceError, StorageError
            The disk.
        """
        with self._guard, self._receipts.readable_errors():
            assert self._file is not None
            os.fsync(self._file.fileno())
            older_bytes = _space_of(self._path.stat().st_size) if self._path.exists() else 0
            self._partial.rename(self._path)
            self._file.close()
            self._file = None
            self._receipts.give_back(self._uid, older_bytes)
            self._reserved_bytes = 0  # It is the receipt's now.
            sync_directory(self._path.parent)

    def discard(self) -> None:
        """Forgets what was written, unless it was published. Nothing is written any more."""
        with self._guard:
            self._is_over = True
            if self._file is not None:
                self._file.close()
                self._file = None
                with contextlib.suppress(OSError):
                    self._partial.unlink(missing_ok=True)
            self._receipts.give_back(self._uid, self._reserved_bytes)
            self._reserved_bytes = 0

    def _append(self, lines: bytes) -> None:
        if self._is_over:
            return
        with self._receipts.readable_errors():
            if self._file is None:
                self._begin()
            self._write(lines)

    def _begin(self) -> None:
        if not self._path.parent.is_dir():
            self._path.parent.mkdir(mode=0o700)
            sync_directory(self._path.parent.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = open(os.open(self._partial, flags, 0o600), "wb", buffering=0)  # noqa: SIM115 - closed by others
        self._size_bytes = self._checksum = 0
        try:
            self._write(_line(self._head))
        except BaseException:
            self._file.close()
            self._file = None
            raise

    def _write(self, lines: bytes) -> None:
        assert self._file is not None
        wanted = _space_of(self._size_bytes + len(lines)) - self._reserved_bytes
        if wanted > 0:
            self._receipts.reserve(self._uid, wanted)
            self._reserved_bytes += wanted
        left = memoryview(lines)
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError:
            os.ftruncate(self._file.fileno(), self._size_bytes)
            self._file.seek(self._size_bytes)
            raise
        self._size_bytes += len(lines)
        self._checksum = forebay.crc32c(lines, self._checksum)


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _space_of(size_bytes: int) -> int:
    """What a file of this size takes."""
    return -(-size_bytes // _FILE_BYTES_MIN) * _FILE_BYTES_MIN


def _stored(uid: int, path: Path) -> StoredReceipt:
    """The receipt's first and last line; CorruptError if it is none."""
    try:
        with path.open("rb") as file:
            head = json.loads(file.readline(_HEAD_BYTES_MAX))
            file.seek(max(0, path.stat().st_size - _END_BYTES_MAX))
            end = json.loads(file.read().rstrip(b"\n").rpartition(b"\n")[2])
        if (head["format"], head["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"its format is {head['format']!r}, version {head['version']!r}")
        row = ReceiptRow.from_native({**head, **end, "path": str(path)})
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(f"this is no receipt of a stage, or it is damaged ({error})", str(path)) from None
    return StoredReceipt(path, uid, row)


def _lies_in(place: str, target: str) -> bool:
    folder = target.rstrip("/")
    return place.rstrip("/") == folder or place.startswith(folder if folder.endswith(":") else folder + "/")


def find_receipt(receipts: Receipts, stage_id: int, uid: int | None) -> StoredReceipt:
    """As `Receipts.find`; NotFoundError without it."""
    found = receipts.find(stage_id, uid)
    if found is None:
        raise NotFoundError(f"there is no receipt of stage {stage_id}; only stages that succeeded have one")
    return found
