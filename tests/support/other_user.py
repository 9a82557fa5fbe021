# SPDX-License-Identifier: Apache-2.0
"""Calling a function as another user, in a forked process."""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Callable
from typing import Any

from forebay import ForebayError

__all__ = ["as_user", "can_run_python"]


def as_user(name: str, function: Callable[[], Any]) -> Any:
    """What ``function`` returns, as JSON has it; a ForebayError's code if it raises one. Needs root."""
    user = pwd.getpwnam(name)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            try:
                answer = function()
            except ForebayError as error:
                answer = error.code.value
            os.write(writing, json.dumps(answer).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text)


def can_run_python(name: str) -> bool:
    """True if the user can start this Python: it may lie in somebody's home."""
    return bool(as_user(name, lambda: os.access(os.path.realpath(sys.executable), os.X_OK)))
