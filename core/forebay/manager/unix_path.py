# SPDX-License-Identifier: Apache-2.0
"""Paths of sockets, whatever their length: the kernel takes 107 bytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["short_path"]

_BYTES_MAX = 107


@contextlib.contextmanager
def short_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """A path for `bind` and `connect`: a long one by a descriptor of its folder, as /proc/self/fd/N/NAME.

    Raises
    ------
    OSError
        The folder cannot be opened.
    """
    whole = os.fspath(path)
    if len(os.fsencode(whole)) <= _BYTES_MAX:
        yield whole
        return
    folder, name = os.path.split(whole)
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
