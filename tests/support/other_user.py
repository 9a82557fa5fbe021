# SPDX-License-Identifier: Apache-2.0
"""Calling a function as another user, in a forked process."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from forebay import ForebayError

__all__ = ["as_user", "can_run_python"]


def as_user(uid: int, function: Callable[[], Any], *, groups: Sequence[int] = ()) -> Any:
    """What ``function`` returns in a child of that user, with that user's number as its group and ``groups`` besides.

    A ForebayError that it raises is raised here. Needs root.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups(list(groups))
            os.setgid(uid)
            os.setuid(uid)
            answer: tuple[Any, ForebayError | None]
            try:
                answer = (function(), None)
            except ForebayError as error:
                answer = (None, error)
            os.write(writing, pickle.dumps(answer))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    value, refusal = pickle.loads(told)
    if refusal is not None:
        raise refusal
    return value


def can_run_python(uid: int) -> bool:
    """True if the user can start this Python: it may lie in somebody's home."""
    return bool(as_user(uid, lambda: os.access(os.path.realpath(sys.executable), os.X_OK)))
