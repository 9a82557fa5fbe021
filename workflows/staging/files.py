# SPDX-License-Identifier: Apache-2.0
"""Staging of files and trees: verified copies that appear whole and are taken up after a kill.

A file is copied under a hidden name, synced, read back, and renamed. A tree that does not exist at the destination is
built under a hidden name and renamed when it is whole; one that exists is brought up to date file by file, and nothing
is removed from it. Each verified file is reported for the receipt, which the manager keeps.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import forebay
from forebay.errors import InvalidArgumentError, NotFoundError, UnsupportedError, readable_errors
from forebay.instance import InstanceLike
from forebay.manager.jobs import FilesJob
from forebay.workflows.staging import publication
from forebay.workflows.staging.checksum import file_checksum, format_checksum
from forebay.workflows.staging.file_copy import copy_file, copy_status
from forebay.workflows.staging.files_capacity import FilesCapacity, space_of
from forebay.workflows.staging.reporting import Json, Reporter

__all__ = ["stage_files"]

_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class _Entry:
    """One file of the receipt."""

    path: str  #: relative to the target; "" if the target is the file
    size_bytes: int
    mtime_ns: int
    crc32c: str


def stage_files(job: FilesJob, reporter: Reporter, instance: InstanceLike | None = None) -> Json:
    """Does the job and returns its result.

    Raises
    ------
    NotFoundError
        There is no such source.
    InvalidArgumentError
        The source is not of the kind that the job takes.
    UnsupportedError
        The source has something that is neither file, directory nor symbolic link.
    StorageError
        A file changed while it was being copied.
    CorruptError
        What was written reads back as something else.
    NoSpaceError
        The destination is full, or the reservation's capacity for files is.
    """
    with forebay.Admin(instance) as admin:
        files = Path(admin.reservation(job.reservation).files_path)
    with readable_errors(
        files if job.inward else Path(job.outside),
        full="the destination is full; what was copied stays: make room and run the same command again",
        denied="no permission to read or write this; have its permissions changed",
        failed="repair it, then run the same command again",
    ):
        source, target = _source_and_target(job, files)
        if target == source or target.is_relative_to(source) or source.is_relative_to(target):
            raise InvalidArgumentError("one of source and destination contains the other", f"{source}, {target}")
        publication.make_directory(target.parent)
        # The parent of a tree that is there already need not be writable.
        locked = target.parent if os.access(target.parent, os.W_OK) else target
        with publication.destination_lock(locked):
            capacity = FilesCapacity(job.reservation, instance) if job.inward else None
            return _TreeStager(source, target, reporter, capacity).run()


def _source_and_target(job: FilesJob, files: Path) -> tuple[Path, Path]:
    """The two ends of the copy, `files` being where the reservation's files lie."""
    inside = _inside(files, job.path)
    source, target, name = (
        (Path(job.outside), inside, job.path) if job.inward else (inside, Path(job.outside), job.outside)
    )
    try:
        status = source.stat() if job.only else source.lstat()
    except FileNotFoundError:
        raise NotFoundError("there is no such file or directory to stage", str(source)) from None
    if job.only:
        _check_kind(job.only, status.st_mode, source)
    if name.endswith("/") or (job.inward and not job.path) or (target.is_dir() and not source.is_dir()):
        target = target / (job.reservation if source == files else source.name)
    return source.resolve() if job.only else source, target


def _check_kind(only: str, mode: int, source: Path) -> None:
    """InvalidArgumentError if the source is not of the kind that the job takes."""
    if only == "directory" and not stat.S_ISDIR(mode):
        raise InvalidArgumentError("type=directory, and the source is a file; write type=file", str(source))
    if only == "file" and not stat.S_ISREG(mode):
        what = "a directory; write type=directory" if stat.S_ISDIR(mode) else "no regular file"
        raise InvalidArgumentError(f"type=file, and the source is {what}", str(source))


def _inside(files: Path, path: str) -> Path:
    """The path below the reservation's files; InvalidArgumentError if it leads out of them."""
    inside = files / path
    if (
        path.startswith("/")
        or ".." in Path(path).parts
        or not inside.parent.resolve().is_relative_to(files.parent.resolve() if inside == files else files.resolve())
    ):
        raise InvalidArgumentError(
            "a path in a reservation is relative to its files and does not lead out of them; write RES:folder/file",
            path,
        )
    return inside


class _TreeStager:
    """One run, under the lock of the target's parent."""

    def __init__(self, source: Path, target: Path, reporter: Reporter, capacity: FilesCapacity | None) -> None:
        self._source = source
        self._target = target
        self._reporter = reporter
        self._capacity = capacity
        self._is_tree = source.is_dir() and not source.is_symlink()
        self._rows: list[Json] = []  # verified, not reported yet
        self._copied = 0

    def run(self) -> Json:
        self._plan()
        if self._is_tree:
            self._copy_tree()
        else:
            # What else lies there is not ours to judge.
            publication.remove_leftovers(self._target.parent, {self._target.name})
            self._copy_leaf(self._source, self._target, "")
            publication.sync_directory(self._target.parent)
        self._report_rows()
        files = self._reporter.progress.items_done
        return {
            "source": str(self._source),
            "target": str(self._target),
            "files": files,
            "copied": self._copied,
            "kept": files - self._copied,
        }

    def _copy_tree(self) -> None:
        if os.path.lexists(self._target):
            if not self._target.is_dir():
                raise InvalidArgumentError("the destination is a file, the source a directory", str(self._target))
            self._copy_directory(self._source, self._target, "")
            # A run that gave it this name may have failed to make that durable.
            publication.sync_name(self._target)
            return
        # The same name in every run, so that a run after a kill finds what is there already.
        building = self._building
        building.mkdir(mode=0o700, exist_ok=True)
        self._copy_directory(self._source, building, "")
        building.rename(self._target)
        publication.sync_directory(self._target.parent)

    @property
    def _building(self) -> Path:
        """Where a tree is built that is not there yet."""
        return self._target.with_name(f".{self._target.name}.incoming")

    def _plan(self) -> None:
        items, size_bytes, missing_bytes = 0, 0, 0
        there = self._building if self._is_tree and not os.path.lexists(self._target) else self._target
        for path in _walk(self._source):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                items += 1
                size_bytes += status.st_size
                missing_bytes += _missing_bytes(status, there / path.relative_to(self._source))
            elif not (stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                raise UnsupportedError(
                    "only files, directories and symbolic links can be staged; this is neither", str(path)
                )
        self._reporter.progress.items_total = items
        self._reporter.progress.bytes_total = size_bytes
        self._reporter.update()
        if self._capacity is not None:
            self._capacity.check(missing_bytes)

    def _copy_directory(self, source: Path, target: Path, path: str) -> None:
        publication.remove_leftovers(target)
        for child in sorted(source.iterdir()):
            child_target = target / child.name
            child_path = f"{path}/{child.name}" if path else child.name
            if child.is_dir() and not child.is_symlink():
                if os.path.lexists(child_target) and (child_target.is_symlink() or not child_target.is_dir()):
                    raise InvalidArgumentError(
                        "the source has a directory where the destination has a file", str(child_target)
                    )
                child_target.mkdir(mode=0o700, exist_ok=True)
                if not os.access(child_target, os.W_OK):
                    child_target.chmod(0o700)  # A read-only directory of an earlier run; it becomes so again.
                self._copy_directory(child, child_target, child_path)
            else:
                self._copy_leaf(child, child_target, child_path)
        copy_status(source, target)
        publication.sync_directory(target)

    def _copy_leaf(self, source: Path, target: Path, path: str) -> None:
        if target.is_dir() and not target.is_symlink():
            raise InvalidArgumentError("the source has a file where the destination has a directory", str(target))
        self._reporter.progress.item = path or source.name
        self._reporter.update()
        if source.is_symlink():
            self._copy_link(source, target)
            return
        entry = self._unchanged(source, target, path)
        if entry is None:
            copied = copy_file(source, target, self._advance)
            entry = _Entry(path, copied.size_bytes, copied.mtime_ns, format_checksum(copied.checksum))
            self._copied += 1
        else:
            self._reporter.progress.items_kept += 1
        self._rows.append(asdict(entry))
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._report_rows()
        self._reporter.progress.items_done += 1
        self._reporter.update()

    def _report_rows(self) -> None:
        self._reporter.files(self._rows)
        self._rows.clear()

    def _advance(self, count_bytes: int) -> None:
        if self._capacity is not None:
            self._capacity.count(count_bytes)
        self._reporter.progress.bytes_done += count_bytes
        self._reporter.update()

    def _copy_link(self, source: Path, target: Path) -> None:
        text = source.readlink()
        if target.is_symlink() and target.readlink() == text:
            return
        partial = publication.partial_path(target)
        partial.symlink_to(text)
        partial.replace(target)

    def _unchanged(self, source: Path, target: Path, path: str) -> _Entry | None:
        """The file's entry if the destination has it already, checked by reading it; None if it is to be copied."""
        status = source.stat()
        try:
            there = target.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(there.st_mode) or (there.st_size, there.st_mtime_ns) != (
            status.st_size,
            status.st_mtime_ns,
        ):
            return None
        size_bytes, checksum = file_checksum(target)
        # Only the source can say what is right.
        expected = format_checksum(file_checksum(source)[1])
        if size_bytes != status.st_size or format_checksum(checksum) != expected:
            return None
        copy_status(source, target)
        self._reporter.progress.bytes_done += size_bytes
        return _Entry(path, size_bytes, status.st_mtime_ns, expected)


def _missing_bytes(wanted: os.stat_result, target: Path) -> int:
    """What copying it takes. Another file is replaced when the new one is whole, so both take space until then."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        there = target.lstat()
        if (there.st_size, there.st_mtime_ns) == (wanted.st_size, wanted.st_mtime_ns):
            return 0
    # Holes stay holes.
    return min(space_of(wanted.st_size), space_of(wanted.st_blocks * 512))


def _walk(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir() and not path.is_symlink():
        for child in path.iterdir():
            yield from _walk(child)
