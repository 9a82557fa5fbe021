# SPDX-License-Identifier: Apache-2.0
"""What commands that follow a stream share: the time limit, how the stream ends, and the packages that they need."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import forebay
from forebay.cli.chosen import chosen
from forebay.cli.failures import ExitStatus
from forebay.cli.output import error_console
from forebay.ended_run import tell_ended_run
from forebay.errors import StreamFailedError, StreamInterruptedError, UnsupportedError

if TYPE_CHECKING:
    from forebay import Stream

__all__ = [
    "OnUnavailable",
    "OnUnavailableOption",
    "Outcome",
    "RunOption",
    "TimeoutOption",
    "WaitForWriterOption",
    "needs_packages",
    "opened_to_follow",
    "reading_options",
    "say_notice",
    "tells_interruption",
]

TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Longest wait for a step. Default: no limit."),
]


RunOption = Annotated[
    str, typer.Option("--run", metavar="NAME", help="Wait for the writers that name this run, and read no other run.")
]
WaitForWriterOption = Annotated[
    bool, typer.Option("--wait-for-writer", help="Wait until a writer writes the stream, and read from its first step.")
]


class OnUnavailable(StrEnum):
    """What is done about a step with a part on a server that is away."""

    WAIT = "wait"
    SKIP = "skip"
    ERROR = "error"


OnUnavailableOption = Annotated[
    OnUnavailable,
    typer.Option(
        "--on-unavailable",
        help="Of a step with a part on a server that is away: wait for it, go on behind it with a note, or end.",
    ),
]


def reading_options(run: str, wait_for_writer: bool, on_unavailable: OnUnavailable) -> dict[str, Any]:
    """What `forebay.open` takes for these."""
    return {"run": run or None, "wait_for_writer": wait_for_writer, "on_unavailable": on_unavailable.value}


@contextmanager
def opened_to_follow(
    stream: str,
    timeout: float | None,
    run: str,
    wait_for_writer: bool,
    on_unavailable: OnUnavailable = OnUnavailable.WAIT,
) -> Iterator[Stream]:
    """The stream, in the instance that the command line names. If its writer has ended, a line says which run it is."""
    opening = reading_options(run, wait_for_writer, on_unavailable)
    with forebay.open(stream, instance=chosen(), timeout=timeout, **opening) as source:
        tell_ended_run(source, opening)
        yield source


def say_notice(notice: forebay.Notice) -> None:
    """A line on stderr with what a follower waits for, or passes over."""
    error_console().print(Text(f"note: {notice.text or f'the stream is {notice.status}'}"), soft_wrap=True)


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
