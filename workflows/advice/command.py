# SPDX-License-Identifier: Apache-2.0
"""`forebay advise`: whether a run's input and output are worth work, and which."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from forebay.cli.arguments import stream_names
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, console, print_json
from forebay.errors import InvalidArgumentError
from forebay.workflows.advice.advice import Advice

__all__ = ["advise"]

advise_app = typer.Typer(add_completion=False)


@advise_app.command(epilog="Example: forebay advise run.darshan; forebay advise run1/flow")
def advise(
    what: Annotated[
        str,
        typer.Argument(
            metavar="LOG|RES/STREAM",
            help="A log that Darshan wrote at the end of a run; or a stream, for what Forebay saw of it.",
            autocompletion=stream_names,
        ),
    ],
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=0.0, max=3600.0, metavar="SECONDS", help="How long to look for waits in a live stream."
        ),
    ] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Say whether a run's input and output are worth work, what to do first, and the lines that do it.

    The verdict comes first, with what can be gained at most, then at most three actions with their expected effect. A
    log needs no instance, but PyDarshan: pip install 'forebay[darshan]'. A path that is a file is a log.
    """
    facts, advice = _of_log(Path(what)) if _is_log(what) else _of_stream(what, seconds)
    if as_json:
        print_json({"subject": what, "facts": facts, **advice.as_json()})
    else:
        _print(advice)


def _is_log(what: str) -> bool:
    """A file, or what can only be the name of one."""
    return os.path.exists(what) or what.endswith(".darshan") or what.startswith(("/", "./", "../"))


def _of_log(path: Path) -> tuple[dict[str, object], Advice]:
    from forebay.workflows.advice.darshan_log import read_log
    from forebay.workflows.advice.log_rules import advice_of

    facts = read_log(path)
    return facts.as_json(), advice_of(facts)


def _of_stream(path: str, seconds: float) -> tuple[dict[str, object], Advice]:
    from forebay.workflows.advice.stream_facts import look_at
    from forebay.workflows.advice.stream_rules import advice_of_stream

    if "/" not in path:
        raise InvalidArgumentError("this is no file; a stream is named RES/STREAM, for example run1/flow", path)
    facts = look_at(chosen(), path, seconds)
    return facts.as_json(), advice_of_stream(facts)


def _print(advice: Advice) -> None:
    out = console()
    paragraphs = [advice.verdict, *(f"{remark}." for remark in advice.remarks)]
    for number, action in enumerate(advice.actions, 1):
        paragraphs.append(
            f"\n{number}. {action.what}.\n   Seen:     {action.because}.\n   Expected: {action.effect}.\n"
            f"   Source:   {action.source} (rule {action.rule})."
        )
    if advice.lines:
        paragraphs.append("\nReady lines:")
        paragraphs += [f"  {line}" for line in advice.lines]
    for paragraph in paragraphs:
        out.print(Text(paragraph), soft_wrap=True)
