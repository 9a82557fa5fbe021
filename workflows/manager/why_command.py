# SPDX-License-Identifier: Apache-2.0
"""`forebay why`: what something waits for, since when, who holds it, and what ends it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from forebay.cli.arguments import reservation_names
from forebay.cli.chosen import chosen_or_current
from forebay.cli.output import JsonOption, console, format_time, print_fields, print_json
from forebay.durations import format_duration
from forebay.manager.client import ManagerClient

__all__ = ["why"]

why_app = typer.Typer(add_completion=False)


@why_app.command(epilog="Example: forebay why run1")
def why(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A reservation, or the number of a job or a stage.",
            autocompletion=reservation_names,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Say what a reservation, a job or a stage waits for, since when, who holds it, and what ends it."""
    with ManagerClient(chosen_or_current()) as manager:
        answers = manager.why(what)
    if as_json:
        print_json({"answers": answers})
        return
    for number, answer in enumerate(answers):
        if number:
            console().print()
        ago = format_duration((time.time_ns() - answer["since_ns"]) / 1e9)
        fields = [
            (answer["subject"], answer["state"]),
            ("waits for", answer["waits_for"]),
            ("since", f"{format_time(answer['since_ns'])} ({ago} ago)"),
            *(("held by", holder) for holder in answer["held_by"]),
        ]
        if answer["ends"]:
            fields.append(("ends by", answer["ends"]))
        print_fields(fields)
