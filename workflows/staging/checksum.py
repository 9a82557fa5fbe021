# SPDX-License-Identifier: Apache-2.0
"""CRC-32C of arrays and of files. Files are read back from the device if the kernel drops its cached pages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import forebay

__all__ = [
    "array_checksum",
    "file_checksum",
    "forget_cached_pages",
    "format_checksum",
    "text_checksum",
    "value_bytes",
]

_CHUNK_BYTES = 4 << 20


def array_checksum(array: NDArray[Any]) -> int:
    """CRC-32C of the elements in C order."""
    return forebay.crc32c(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def value_bytes(array: NDArray[Any]) -> bytes:
    """The elements' bytes with the padding of long double cleared: copies of single values need not keep it."""
    if array.dtype != np.longdouble:
        return array.tobytes()
    data = np.frombuffer(array.tobytes(), np.uint8).reshape(-1, 16).copy()
    data[:, 10:] = 0
    return data.tobytes()


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
