# SPDX-License-Identifier: Apache-2.0
"""`forebay advise`: whether a run's input and output are worth work, and which."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from forebay.cli.output import JsonOption, console, print_json
from forebay.workflows.advice.advice import Advice
from forebay.workflows.advice.darshan_log import read_log
from forebay.workflows.advice.log_rules import advice_of

__all__ = ["advise"]

advise_app = typer.Typer(add_completion=False)


@advise_app.command(epilog="Example: forebay advise run.darshan")
def advise(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A log that Darshan wrote at the end of a run.")],
    as_json: JsonOption = False,
) -> None:
    """Say whether a run's input and output are worth work, what to do first, and the lines that do it.

    The verdict comes first, with what can be gained at most, then at most three actions with their expected effect.
    Needs no instance. Reading a log needs PyDarshan: pip install 'forebay[darshan]'.
    """
    facts = read_log(log)
    advice = advice_of(facts)
    if as_json:
        print_json({"log": str(log), "facts": facts.as_json(), **advice.as_json()})
    else:
        _print(advice)


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
