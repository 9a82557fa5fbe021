# SPDX-License-Identifier: Apache-2.0
"""The log of a running stage: entries that the receipt does not have yet, one checked line each; the first one says
what file this is. Format: docs/formats/receipt.md.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from forebay.errors import CorruptError, PermissionDeniedError
from forebay.files.checked_lines import checked_line, document_of
from forebay.workflows.staging.publication import sync_directory

__all__ = ["LOG_NAME", "ReceiptLog", "own_content", "read_log"]

LOG_NAME = ".receipt.log"
_HEAD = {"format": "forebay.staged-steps.log", "version": 1}


def own_content(path: Path) -> bytes | None:
    """What a file of this user's has; None where there is none.

    Raises
    ------
    PermissionDeniedError
        It is another user's, or no file: it could have this user's stage believe what it likes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EACCES):
            raise
        raise _not_own(path) from None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise _not_own(path)
        return file.read()


def _not_own(path: Path) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"the {path.name} there is not yours, and your stage would go by it; choose another destination, or have it "
        "moved away",
        str(path),
    )


def read_log(directory: Path) -> list[dict[str, Any]] | None:
    """The entries of a directory's log, the oldest first; None where there is none.

    What was not written whole at its end is left out: the stage was killed there.

    Raises
    ------
    CorruptError
        It is no log of a stage-out of steps, or damaged before its end.
    PermissionDeniedError
        It is another user's.
    """
    path = directory / LOG_NAME
    content = own_content(path)
    if content is None:
        return None
    lines = content.split(b"\n")
    # What follows the last line break was not written whole.
    documents = [document_of(line) for line in lines[:-1]]
    while documents and documents[-1] is None:
        documents.pop()
    if not documents:
        return []
    if documents[0] != _HEAD or any(document is None for document in documents):
        raise CorruptError(
            "this is no log of a stage-out of steps, or it is damaged; move it away, then run the same command again",
            str(path),
        )
    return [document for document in documents[1:] if document is not None]


class ReceiptLog:
    """Open for appending; made anew by `create`, one at a time under the destination's lock."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size_bytes = 0

    @classmethod
    def create(cls, directory: Path) -> Self:
        """A log without entries, whose name is durable."""
        path = directory / LOG_NAME
        # A new file: what lies there may be a link that somebody else made, or a file with other names.
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        log = cls(descriptor)
        try:
            log.append([_HEAD])
            sync_directory(directory)
        except BaseException:
            log.close()
            raise
        return log

    def append(self, documents: Sequence[dict[str, Any]]) -> None:
        """Adds entries; they are durable when this returns. After an error the log ends before them."""
        lines = b"".join(checked_line(document) for document in documents)
        try:
            left = memoryview(lines)
            while left:
                left = left[os.write(self._descriptor, left) :]
            os.fsync(self._descriptor)
        except OSError:
            # What comes next must not come behind half a line.
            os.ftruncate(self._descriptor, self._size_bytes)
            raise
        self._size_bytes += len(lines)

    def close(self) -> None:
        """Closes the file, which stays."""
        os.close(self._descriptor)
