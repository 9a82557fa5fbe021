# SPDX-License-Identifier: Apache-2.0
"""Named places where tests make a process die: the same variable as in the native parts, core/base/fail_point.h."""

from __future__ import annotations

import itertools
import os
import signal

__all__ = ["fail_point"]

_PLACE, _, _ACTION = os.environ.get("FOREBAY_FAIL_POINT", "").partition("=")
_NAME, _, _COUNT = _PLACE.partition(":")
_passed = itertools.count(1)


def fail_point(name: str) -> None:
    """Marks a place that a test may name."""
    if name == _NAME and next(_passed) == int(_COUNT or 1):
        os.kill(os.getpid(), signal.SIGSTOP if _ACTION == "stop" else signal.SIGKILL)
