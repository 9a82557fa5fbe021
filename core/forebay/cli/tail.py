# SPDX-License-Identifier: Apache-2.0
"""`forebay tail`: a line for each step of a stream as it commits, with minimum and maximum of chosen variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

import forebay
from forebay.cli.arguments import StreamArgument
from forebay.cli.chosen import chosen
from forebay.cli.elements import element_text, plain_value
from forebay.cli.failures import ExitStatus, fail_with
from forebay.cli.following import (
    OnUnavailable,
    OnUnavailableOption,
    RunOption,
    WaitForWriterOption,
    reading_options,
    say_notice,
)
from forebay.cli.output import format_time, print_line
from forebay.datatypes import ShapeKind
from forebay.errors import InvalidArgumentError, StreamFailedError, StreamInterruptedError
from forebay.follower import StartText
from forebay.records import Address
from forebay.sizes import format_size
from forebay.step import Step
from forebay.stream import Stream
from forebay.visible_text import visible_json

__all__ = ["register"]

# Without --variables a line has this many.
_VARIABLES_SHOWN = 3


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("tail", epilog="Example: forebay tail run1/flow --variables T,pressure --last 5")(tail)


def tail(
    stream: StreamArgument,
    variables: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Variables to show, separated by commas. Default: the first three."),
    ] = None,
    last: Annotated[int, typer.Option("--last", min=0, metavar="N", help="Begin with the newest N kept steps.")] = 10,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Continue until the stream ends, or print what is kept.")
    ] = True,
    run_name: RunOption = "",
    wait_for_writer: WaitForWriterOption = False,
    on_unavailable: OnUnavailableOption = OnUnavailable.WAIT,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document per line for each step.")] = False,
) -> int:
    """Print a line for each step of a stream as it commits: time, size, minimum and maximum of variables.

    Reads no data. Reads without a name: it holds no cursor, and the writer never waits for it.
    """
    address = Address.parse(stream)
    if address.step is not None:
        raise InvalidArgumentError(f"{stream!r} names a step: `forebay show {stream}` shows it")
    names = None if variables is None else [name for name in variables.split(",") if name]
    if names == []:
        raise InvalidArgumentError("--variables names none: write for example --variables T,pressure, or leave it out")
    waits = reading_options(run_name, wait_for_writer, on_unavailable)
    timeout = None if run_name or wait_for_writer else 0
    with forebay.open(address.path, instance=chosen(), timeout=timeout, **waits) as source:
        if not follow:
            for summary in source.steps()[-last:] if last else ():
                _print_kept(source, summary.number, names, as_json=as_json)
            return int(ExitStatus.OK)
        try:
            with source.follow(start=_first_step(source, last), on_notice=say_notice) as follower:
                for step in follower:
                    with step:
                        _print_step(step, names, as_json=as_json)
        except (StreamInterruptedError, StreamFailedError) as error:
            fail_with(error, as_json=as_json)
            return int(ExitStatus.INTERRUPTED_STREAM)
    return int(ExitStatus.OK)


def _first_step(source: Stream, last: int) -> int | StartText:
    """Where to begin, so that `last` kept steps come before the new ones."""
    if last == 0:
        return "next"
    kept = source.steps()
    return kept[max(0, len(kept) - last)].number if kept else "oldest"


def _print_kept(source: Stream, number: int, names: Sequence[str] | None, *, as_json: bool) -> None:
    try:
        step = source[number]
    except KeyError:  # Dropped since it was listed.
        return
    with step:
        _print_step(step, names, as_json=as_json)


def _print_step(step: Step, names: Sequence[str] | None, *, as_json: bool) -> None:
    shown = step.variables[:_VARIABLES_SHOWN] if names is None else names
    if as_json:
        document = {
            "step": step.number,
            "epoch": step.epoch,
            "time_ns": step.time_ns,
            "size_bytes": step.size_bytes,
            "variables": {name: _as_dict(step, name) for name in (step.variables if names is None else names)},
        }
        line = visible_json(document)
    else:
        more = len(step.variables) - len(shown) if names is None else 0
        parts = [f"{name}={_text(step, name)}" for name in shown] + ([f"(+{more})"] if more > 0 else [])
        line = "  ".join([str(step.number), format_time(step.time_ns), format_size(step.size_bytes), *parts])
    print_line(line)


def _text(step: Step, name: str) -> str:
    """The value, or minimum and maximum; a dash without the variable, a question mark without statistics."""
    if name not in step:
        return "-"
    variable = step[name]
    if variable.kind is ShapeKind.GLOBAL_VALUE:
        return element_text(variable[()])
    low, high = variable.min, variable.max
    return "?" if low is None or high is None else f"{element_text(low)}..{element_text(high)}"


def _as_dict(step: Step, name: str) -> dict[str, Any] | None:
    if name not in step:
        return None
    variable = step[name]
    if variable.kind is ShapeKind.GLOBAL_VALUE:
        return {"value": plain_value(variable[()])}
    return {"min": plain_value(variable.min), "max": plain_value(variable.max)}
