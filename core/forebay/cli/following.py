# SPDX-License-Identifier: Apache-2.0
"""What commands that follow a stream share: the time limit, how the stream ends, and the packages that they need."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.text import Text

from forebay.cli.failures import ExitStatus
from forebay.cli.output import error_console
from forebay.errors import StreamFailedError, StreamInterruptedError, UnsupportedError

__all__ = ["Outcome", "TimeoutOption", "needs_packages", "tells_interruption"]

TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Longest wait for a step. Default: no limit."),
]


@dataclass
class Outcome:
    """How following ended, as an exit status."""

    status: ExitStatus = ExitStatus.OK


@contextmanager
def tells_interruption() -> Iterator[Outcome]:
    """An interrupted or failed stream ends the block with a line on stderr: the steps before it are done and stay."""
    outcome = Outcome()
    try:
        yield outcome
    except (StreamInterruptedError, StreamFailedError) as error:
        error_console().print(Text(str(error)), soft_wrap=True)
        outcome.status = ExitStatus.INTERRUPTED_STREAM


def needs_packages(work: str, extra: str, *modules: str) -> None:
    """UnsupportedError with what to install where ``work`` lacks a module."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(f"{work} needs {' and '.join(missing)}: pip install 'forebay[{extra}]'")
