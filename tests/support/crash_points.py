# SPDX-License-Identifier: Apache-2.0
"""Running a function in a forked process that dies, as by SIGKILL, at its N-th change to the file system."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["crash_points"]

_CHANGES = ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir", "symlink", "ftruncate", "utime", "chmod")
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


def _run_to(function: Callable[[], object], point: int) -> None:
    """In the child: never returns."""
    changes = 0

    def deadly(change: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any, **options: Any) -> Any:
            nonlocal changes
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
        function()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(status)
