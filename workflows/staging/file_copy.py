# SPDX-License-Identifier: Apache-2.0
"""Copying one file so that it appears whole: under a hidden name, synced, read back and compared, then renamed."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import forebay
from forebay.errors import CorruptError, StorageError
from forebay.workflows.staging.checksum import file_checksum, forget_cached_pages
from forebay.workflows.staging.publication import partial_path

__all__ = ["CopiedFile", "copy_file", "copy_status", "copy_times"]

_CHUNK_BYTES = 4 << 20
_ZEROS = bytes(_CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """What was copied."""

    size_bytes: int
    mtime_ns: int
    checksum: int


def copy_file(source: Path, target: Path, advance: Callable[[int], None]) -> CopiedFile:
    """Copies content, mode, times and extended attributes; replaces what is there.

    Raises
    ------
    StorageError
        The source changed meanwhile.
    CorruptError
        What was written reads back as something else.
    """
    partial = partial_path(target)
    try:
        with source.open("rb", buffering=0) as reading:
            before = os.fstat(reading.fileno())
            checksum = _copy_bytes(reading.fileno(), partial, before, advance)
            after = os.fstat(reading.fileno())
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise StorageError(
                "the file changed while it was being copied; stage it when nobody writes it", str(source)
            )
        if file_checksum(partial) != (before.st_size, checksum):
            raise CorruptError(
                "what was written reads back differently; the destination's storage may be failing", str(target)
            )
        copy_status(source, partial)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return CopiedFile(before.st_size, before.st_mtime_ns, checksum)


def copy_status(source: Path, target: Path) -> None:
    """Mode, times, extended attributes, and as root the owner."""
    status = source.stat()
    if os.geteuid() == 0:
        os.chown(target, status.st_uid, status.st_gid)
    for name in os.listxattr(source):
        # Many file systems keep only some of them, and some belong to the system: a service, not a promise.
        with contextlib.suppress(OSError):
            os.setxattr(target, name, os.getxattr(source, name))
    os.chmod(target, stat.S_IMODE(status.st_mode))
    copy_times(source, target)


def copy_times(source: Path, target: Path) -> None:
    """Times of access and modification."""
    status = source.stat()
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copy_bytes(reading: int, partial: Path, status: os.stat_result, advance: Callable[[int], None]) -> int:
    """Copies and syncs; returns the checksum. Holes of a sparse file stay holes."""
    sparse = status.st_blocks * 512 < status.st_size
    checksum = 0
    buffer = bytearray(_CHUNK_BYTES)
    window = memoryview(buffer)
    writing = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while count := os.readv(reading, [buffer]):
            chunk = window[:count]
            checksum = forebay.crc32c(chunk, checksum)
            if sparse and chunk == _ZEROS[:count]:
                os.lseek(writing, count, os.SEEK_CUR)
            else:
                _write_all(writing, chunk)
            advance(count)
        os.ftruncate(writing, os.lseek(writing, 0, os.SEEK_CUR))
        os.fsync(writing)
        forget_cached_pages(writing)
    finally:
        os.close(writing)
    return checksum


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
