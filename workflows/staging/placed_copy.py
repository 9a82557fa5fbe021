# SPDX-License-Identifier: Apache-2.0
"""Whether a copy that was about to get its name has got it: read back and compared with its rows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import forebay
from forebay.workflows.staging.checksum import format_checksum

__all__ = ["is_placed"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK_BYTES = 4 << 20


def is_placed(folder: int, name: str, rows: Iterable[dict[str, Any]]) -> bool:
    """True if ``name`` of an open folder has exactly the files of its rows, by path, size and checksum. No link is
    followed.
    """
    expected = {row["path"]: (row["size_bytes"], row["crc32c"]) for row in rows}
    try:
        return expected == dict(_files(folder, name, name))
    except (OSError, RecursionError):
        return False


def _files(folder: int, name: str, path: str) -> Iterable[tuple[str, tuple[int, str]]]:
    """Path, size and checksum of a file, or of all files below a folder."""
    descriptor = os.open(name, _READ, dir_fd=folder)
    try:
        with os.scandir(descriptor) as entries:
            names = [(entry.name, entry.is_symlink()) for entry in entries]
    except NotADirectoryError:
        try:
            yield path, _content(descriptor)
        finally:
            os.close(descriptor)
        return
    try:
        for inner, is_link in names:
            if not is_link:
                yield from _files(descriptor, inner, f"{path}/{inner}")
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> tuple[int, str]:
    size_bytes, checksum = 0, 0
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        checksum = forebay.crc32c(chunk, checksum)
        size_bytes += len(chunk)
    return size_bytes, format_checksum(checksum)
