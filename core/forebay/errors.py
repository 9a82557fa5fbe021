# SPDX-License-Identifier: Apache-2.0
"""What forebay raises: one class per error code, each also the builtin exception that users already catch.

``str(error)`` is one line: what happened, what to do next, and where in brackets.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, ClassVar

from forebay.visible_text import visible

__all__ = [
    "AlreadyExistsError",
    "ArgumentTypeError",
    "BusyError",
    "CancelledError",
    "CopyNeededError",
    "CorruptError",
    "DeadlineExceededError",
    "DisconnectedError",
    "ErrorCode",
    "FaultyVariableWarning",
    "FencedError",
    "ForebayError",
    "ForebaySystemError",
    "GroupBrokenError",
    "InvalidArgumentError",
    "NoSpaceError",
    "NotFoundError",
    "PermissionDeniedError",
    "ProtocolError",
    "RefusedError",
    "StepGoneError",
    "StepNotFoundError",
    "StepTimeoutError",
    "StorageError",
    "StreamFailedError",
    "StreamInterruptedError",
    "StreamNotFoundError",
    "UnavailableError",
    "UnsupportedError",
    "VariableNotFoundError",
]

#: What the operating system says when a disk or a quota is full.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class ErrorCode(StrEnum):
    """The kind of a failure; the same names as in C++, JSON and the documentation."""

    INVALID_ARGUMENT = "invalid_argument"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    PERMISSION_DENIED = "permission_denied"
    BUSY = "busy"
    FENCED = "fenced"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    NO_SPACE = "no_space"
    CORRUPT = "corrupt"
    IO_ERROR = "io_error"
    DISCONNECTED = "disconnected"
    STEP_GONE = "step_gone"
    REFUSED = "refused"
    UNSUPPORTED = "unsupported"
    PROTOCOL = "protocol"
    GROUP_BROKEN = "group_broken"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"


class ForebayError(Exception):
    """Base of everything that forebay raises on purpose.

    Attributes
    ----------
    code : ErrorCode
        The kind of the failure.
    what : str
        What happened and what to do next.
    where : str
        Where, for example ``"stream run1/flow, step 17"``; may be empty.
    """

    code: ClassVar[ErrorCode]

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what, where)
        self.what = what
        self.where = where

    def __str__(self) -> str:
        # KeyError would show the repr of its argument.
        return visible(f"{self.what} ({self.where})" if self.where else self.what, keep="\n")


class ForebaySystemError(ForebayError, OSError):
    """Base of the errors that are also an :class:`OSError`, with its ``errno``."""

    _errno: ClassVar[int]

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what, where)
        self.errno = self._errno
        self.strerror = str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError's own reduction would pass errno and strerror to __init__.
        return type(self), (self.what, self.where)


class InvalidArgumentError(ForebayError, ValueError):
    """The caller's mistake: a bad name, shape, box, option. Trying again does not help."""

    code = ErrorCode.INVALID_ARGUMENT


class ArgumentTypeError(InvalidArgumentError, TypeError):
    """An argument or option of the wrong type, or an option that does not exist; the text names what is known."""


class NotFoundError(ForebayError, KeyError):
    """No such reservation, stream, step, variable or consumer."""

    code = ErrorCode.NOT_FOUND


class StreamNotFoundError(NotFoundError):
    """No such reservation or stream. Raised by :func:`forebay.open`."""


class StepNotFoundError(NotFoundError):
    """The stream has no step of this number (yet). Raised by ``stream[number]``."""


class VariableNotFoundError(NotFoundError):
    """The step has no variable of this name. Raised by ``step["name"]``."""


class AlreadyExistsError(ForebaySystemError, FileExistsError):
    """A name is taken by something different."""

    code = ErrorCode.ALREADY_EXISTS
    _errno = errno.EEXIST


class PermissionDeniedError(ForebaySystemError, PermissionError):
    """The reservation belongs to another user."""

    code = ErrorCode.PERMISSION_DENIED
    _errno = errno.EACCES


class BusyError(ForebaySystemError):
    """Somebody holds it: another writer group, or another holder of the consumer's cursor. The text names who."""

    code = ErrorCode.BUSY
    _errno = errno.EBUSY


class FencedError(ForebayError, RuntimeError):
    """A newer incarnation of the writer group exists; what this one has not committed is gone."""

    code = ErrorCode.FENCED


class DeadlineExceededError(ForebaySystemError, TimeoutError):
    """The deadline of a call passed, for example while a writer group was forming."""

    code = ErrorCode.TIMEOUT
    _errno = errno.ETIMEDOUT


class StepTimeoutError(DeadlineExceededError):
    """No step came within the ``timeout`` of :meth:`Stream.follow`; the same follower may be asked again."""


class CancelledError(ForebaySystemError, InterruptedError):
    """A wait was given up because its handle was closed by another thread."""

    code = ErrorCode.CANCELLED
    _errno = errno.EINTR


class NoSpaceError(ForebaySystemError):
    """The reservation is full; the text names who holds the space. ``errno`` is ``ENOSPC``."""

    code = ErrorCode.NO_SPACE
    _errno = errno.ENOSPC


class CorruptError(ForebayError, ValueError):
    """Bytes do not match their checksum, or a bound does not hold."""

    code = ErrorCode.CORRUPT


class StorageError(ForebaySystemError):
    """A read, write or sync failed. ``errno`` is ``EIO``."""

    code = ErrorCode.IO_ERROR
    _errno = errno.EIO


class DisconnectedError(ForebaySystemError, ConnectionError):
    """The server cannot be reached, or did not come back in time."""

    code = ErrorCode.DISCONNECTED
    _errno = errno.ECONNRESET


class StepGoneError(ForebayError, KeyError):
    """The step existed and was dropped by retention, withdrawn, or replaced."""

    code = ErrorCode.STEP_GONE


class RefusedError(ForebayError, RuntimeError):
    """It would lose precious steps or destroy what is in use: ``force`` is needed. Or a reader's writer was refused."""

    code = ErrorCode.REFUSED


class UnsupportedError(ForebayError, NotImplementedError):
    """Not possible with this build, file system, variable or interface."""

    code = ErrorCode.UNSUPPORTED


class CopyNeededError(UnsupportedError, ValueError):
    """A view was asked for where blocks must be merged or the step is not pinned: read a copy instead."""


class ProtocolError(ForebayError, RuntimeError):
    """A malformed or unexpected message."""

    code = ErrorCode.PROTOCOL


class GroupBrokenError(ForebayError, RuntimeError):
    """A rank of the writer group was lost; the open step is aborted. Open the stream again with mode ``"a"``."""

    code = ErrorCode.GROUP_BROKEN


class StreamInterruptedError(GroupBrokenError):
    """A followed stream lost its writer group and no restart came within the grace time."""


class StreamFailedError(ForebaySystemError):
    """The stream is in state ``failed`` after a failed sync: what was durable stays, nothing new is promised."""

    code = ErrorCode.FAILED
    _errno = errno.EIO


class UnavailableError(ForebaySystemError, ConnectionError):
    """A member server of the reservation is away, and has what is needed: try again later. Other steps stay readable.

    ``errno`` is ``EHOSTDOWN``.
    """

    code = ErrorCode.UNAVAILABLE
    _errno = errno.EHOSTDOWN


_CLASS_OF_CODE: dict[str, type[ForebayError]] = {
    cls.code: cls
    for cls in (
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        PermissionDeniedError,
        BusyError,
        FencedError,
        DeadlineExceededError,
        CancelledError,
        NoSpaceError,
        CorruptError,
        StorageError,
        DisconnectedError,
        StepGoneError,
        RefusedError,
        UnsupportedError,
        ProtocolError,
        GroupBrokenError,
        StreamFailedError,
        UnavailableError,
    )
}


def error_of_code(code: str, what: str, where: str) -> ForebayError:
    """The exception for a native error; called by ``forebay._core``."""
    return _CLASS_OF_CODE[code](what, where)


def description_of(error: ForebayError | OSError) -> tuple[str, str, str]:
    """Code, what happened, and where, as JSON has them."""
    if isinstance(error, ForebayError):
        return error.code.value, error.what, error.where
    what = error.strerror or str(error) or type(error).__name__
    return ErrorCode.IO_ERROR.value, what, str(error.filename or "")


class FaultyVariableWarning(UserWarning):
    """Blocks of a variable that is read overlap, or leave elements out; given once for each stream and variable."""


@contextmanager
def readable_errors(place: object, *, full: str, denied: str, failed: str) -> Iterator[None]:
    """What the operating system refuses meanwhile, as an error whose text says what to do; ``failed`` after the reason.

    ``place`` is where the operations work, unless the system names another file.
    """
    try:
        yield
    except ForebayError:
        raise
    except OSError as error:
        if error.errno in NO_ROOM:
            raise NoSpaceError(full, str(place)) from error
        if isinstance(error, PermissionError):
            raise PermissionDeniedError(denied, _place_of(error.filename or place)) from error
        # Where there are two files, the second is the one that was to be made.
        where = _place_of(error.filename2 or error.filename or place)
        raise StorageError(f"{error.strerror or error}; {failed}", where) from error


def _place_of(path: object) -> str:
    """The path as text; of one below a descriptor of this process, where that lies."""
    text = str(path)
    if not text.startswith("/proc/self/fd/"):
        return text
    *_, descriptor, rest = text.split("/", 5)
    try:
        return f"{os.readlink(f'/proc/self/fd/{descriptor}')}/{rest}"
    except OSError:
        return text
