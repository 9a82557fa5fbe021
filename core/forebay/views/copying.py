# SPDX-License-Identifier: Apache-2.0
"""The back end that copies: a sealed file becomes a regular one."""

from __future__ import annotations

import os

from forebay.errors import NoSpaceError
from forebay.sizes import format_size
from forebay.step import Step
from forebay.views.sealed_file import SealedFile, read_part

__all__ = ["copy_to"]

_CHUNK_BYTES = 16 << 20


def copy_to(descriptor: int, sealed: SealedFile, step: Step) -> None:
    """Fills a new empty file. Its space is allocated first.

    Raises
    ------
    NoSpaceError
        The file system has no room for it.
    CorruptError, StepGoneError
        As reading the step raises them.
    """
    if sealed.size_bytes:
        try:
            os.posix_fallocate(descriptor, 0, sealed.size_bytes)
        except OSError as error:
            raise NoSpaceError(
                f"there is no room for a copy of {format_size(sealed.size_bytes)}: {error.strerror}; $FOREBAY_VIEWS "
                "names another folder for views",
                str(step.address),
            ) from None
    for header in sealed.header:
        _write(descriptor, header.data, header.offset)
    for run in sealed.arrays:
        for start in range(0, run.size_bytes, _CHUNK_BYTES):
            stop = min(start + _CHUNK_BYTES, run.size_bytes)
            _write(descriptor, read_part(step, run, start, stop).data, run.offset + start)


def _write(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[written:], offset + written
