# SPDX-License-Identifier: Apache-2.0
"""CRC-32C of texts and of files. Files are read back from the device if the kernel drops its cached pages."""

from __future__ import annotations

import os
from pathlib import Path

import forebay

__all__ = [
    "file_checksum",
    "forget_cached_pages",
    "format_checksum",
    "text_checksum",
]

_CHUNK_BYTES = 4 << 20


def text_checksum(text: str) -> int:
    """CRC-32C of a text in UTF-8."""
    return forebay.crc32c(text.encode())


def file_checksum(path: Path) -> tuple[int, int]:
    """Size in bytes and CRC-32C of a file's content."""
    size_bytes, checksum = 0, 0
    buffer = bytearray(_CHUNK_BYTES)
    window = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            checksum = forebay.crc32c(window[:count], checksum)
            size_bytes += count
    return size_bytes, checksum


def forget_cached_pages(descriptor: int) -> None:
    """After a sync: lets the kernel drop the file's pages, so that what is read back comes from the device."""
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def format_checksum(checksum: int) -> str:
    """Eight hexadecimal digits, as receipts have it."""
    return f"{checksum:08x}"
