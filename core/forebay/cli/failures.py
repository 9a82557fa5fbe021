# SPDX-License-Identifier: Apache-2.0
"""How a failed command ends: what is printed, and which exit status it has."""

from __future__ import annotations

import contextlib
import os
import sys
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

from rich.text import Text

from forebay.cli.output import error_console, print_json
from forebay.errors import ForebayError, description_of
from forebay.visible_text import visible

__all__ = ["ExitStatus", "fail_with"]


class ExitStatus(IntEnum):
    """Exit statuses of `forebay`."""

    OK = 0
    ERROR = 1  #: what was asked for was not done; also: doctor found problems
    USAGE = 2  #: a bad option or argument
    INTERRUPTED_STREAM = 3  #: a followed stream ended interrupted or failed; what had come is done
    INTERNAL = 70  #: a bug
    CTRL_C = 130


@runtime_checkable
class UsageError(Protocol):
    """What Typer raises for bad options and arguments."""

    exit_code: int
    message: str

    def format_message(self) -> str: ...


def fail_with(error: BaseException, *, as_json: bool) -> int:
    """Prints the error and returns the exit status."""
    if isinstance(error, UsageError):
        status, code, where = ExitStatus.USAGE, "usage", ""
        what = error.format_message().rstrip(".")
        context: Any = getattr(error, "ctx", None)
        what += f"; see `{'forebay' if context is None else context.command_path} --help`"
    elif isinstance(error, (ForebayError, OSError)):
        status = ExitStatus.ERROR
        code, what, where = description_of(error)
    else:
        if os.environ.get("FOREBAY_TRACEBACK"):
            raise error
        status, code, where = ExitStatus.INTERNAL, "internal", ""
        what = (
            f"unexpected {type(error).__name__}: {error}. This is a bug in forebay; please report it with what "
            "FOREBAY_TRACEBACK=1 in front of the command prints"
        )
    if as_json:
        # Where the output takes nothing, that is often the error itself: it is told where it can be read.
        with contextlib.suppress(OSError):
            print_json({"error": {"code": code, "what": what, "where": where}})
            return int(status)
    else:
        sys.stdout.flush()
    message = Text("error: ", style="bold red")
    message.append(visible(what, keep="\n"), style="default not bold")
    if where:
        message.append(f" ({visible(where)})", style="default not bold")
    error_console().print(message, soft_wrap=True)
    return int(status)
