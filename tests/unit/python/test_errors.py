# SPDX-License-Identifier: Apache-2.0
"""Errors are ours and a builtin's, say their text plainly, and survive pickling."""

from __future__ import annotations

import errno
import pickle

import pytest

import forebay
from forebay.errors import ErrorCode, error_of_code

BUILTINS = {
    ErrorCode.INVALID_ARGUMENT: ValueError,
    ErrorCode.NOT_FOUND: KeyError,
    ErrorCode.ALREADY_EXISTS: FileExistsError,
    ErrorCode.PERMISSION_DENIED: PermissionError,
    ErrorCode.BUSY: OSError,
    ErrorCode.FENCED: RuntimeError,
    ErrorCode.TIMEOUT: TimeoutError,
    ErrorCode.CANCELLED: InterruptedError,
    ErrorCode.NO_SPACE: OSError,
    ErrorCode.CORRUPT: ValueError,
    ErrorCode.IO_ERROR: OSError,
    ErrorCode.DISCONNECTED: ConnectionError,
    ErrorCode.STEP_GONE: KeyError,
    ErrorCode.REFUSED: RuntimeError,
    ErrorCode.UNSUPPORTED: NotImplementedError,
    ErrorCode.PROTOCOL: RuntimeError,
    ErrorCode.GROUP_BROKEN: RuntimeError,
    ErrorCode.FAILED: OSError,
    ErrorCode.UNAVAILABLE: ConnectionError,
}


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_class_that_is_a_builtin(code: ErrorCode) -> None:
    error = error_of_code(code, "it went wrong", "stream a/b")
    assert isinstance(error, forebay.ForebayError)
    assert isinstance(error, BUILTINS[code])
    assert error.code == code


@pytest.mark.parametrize("code", ErrorCode)
def test_text_is_plain_and_survives_pickling(code: ErrorCode) -> None:
    error = error_of_code(code, "it went wrong", "stream a/b")
    assert str(error) == "it went wrong (stream a/b)"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (copy.what, copy.where, str(copy)) == (error.what, error.where, str(error))


def test_full_reservation_has_errno_of_a_full_device() -> None:
    error = forebay.NoSpaceError("the reservation is full")
    assert error.errno == errno.ENOSPC
    assert str(error) == "the reservation is full"


def test_every_system_error_has_an_errno() -> None:
    system_errors = [
        cls
        for name in forebay.__all__
        if isinstance(cls := getattr(forebay, name), type)
        and issubclass(cls, forebay.ForebaySystemError)
        and cls is not forebay.ForebaySystemError
    ]
    assert len(system_errors) > 5
    for cls in system_errors:
        assert (cls("text").errno or 0) > 0


def test_native_errors_arrive_as_exceptions() -> None:
    with pytest.raises(forebay.InvalidArgumentError) as caught:
        forebay.Address.parse("no address")
    assert caught.value.code == "invalid_argument"
    assert "no address" in str(caught.value)
