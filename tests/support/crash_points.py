# SPDX-License-Identifier: Apache-2.0
"""Running a function in a forked process that dies, as by SIGKILL, at its N-th change to the file system.

Counted are the calls of ``os`` below, and each opening of a file for writing. What is written through an open file
object is not seen: a death comes behind its opening, or when all is written. All that C or
C++ writes of one output (HDF5, BP5) is as one change: a death comes before it or behind it, at the counted neighbours.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["crash_points"]

#: Of ``os``. Whatever workflows/staging changes files by belongs here.
_CHANGES = (
    *("write", "fsync", "ftruncate", "truncate"),
    *("mkdir", "symlink", "link", "rename", "replace", "unlink", "rmdir"),
    *("utime", "chmod", "chown", "setxattr"),
)
_CRASHED = 86
_POINTS_MAX = 10_000


def crash_points(function: Callable[[], object], prepare: Callable[[], object], check: Callable[[], object]) -> int:
    """Runs ``prepare`` here, ``function`` in a process that dies at point 0, then 1, …, and ``check`` after each death.

    Even points are just before a change, odd ones just after it. Ends with the first run that comes to its end, and
    returns how many deaths there were.
    """
    for point in range(_POINTS_MAX):
        prepare()
        child = os.fork()
        if child == 0:
            _run_to(function, point)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return point
        assert code == _CRASHED, f"the process ended with status {code} instead of dying at point {point}"
        try:
            check()
        except BaseException as error:
            error.add_note(f"after a death at point {point}")
            raise
    raise AssertionError("the function has no end")


def _opens_for_change(_path: object, flags: int, *_: object, **__: object) -> bool:
    """Does this ``os.open`` make a file, or cut one?"""
    return bool(flags & (os.O_CREAT | os.O_TRUNC))


def _file_is_for_change(_file: object, mode: str = "r", *_: object, **__: object) -> bool:
    """Does this ``open`` make a file, cut one, or prepare to write it?"""
    return any(letter in mode for letter in "wxa+")


def _run_to(function: Callable[[], object], point: int) -> None:
    """In the child: never returns."""
    changes = 0

    def deadly(change: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True) -> Callable[..., Any]:
        def changing(*arguments: Any, **options: Any) -> Any:
            nonlocal changes
            if not counts(*arguments, **options):
                return change(*arguments, **options)
            number, changes = changes, changes + 1
            if point == 2 * number:
                os._exit(_CRASHED)
            try:
                return change(*arguments, **options)
            finally:
                if point == 2 * number + 1:
                    os._exit(_CRASHED)

        return changing

    status = 1
    try:
        for name in _CHANGES:
            setattr(os, name, deadly(getattr(os, name)))
        os.open = deadly(os.open, _opens_for_change)
        # pathlib opens by the one, and anybody else by the other.
        io.open = builtins.open = deadly(open, _file_is_for_change)
        function()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)
