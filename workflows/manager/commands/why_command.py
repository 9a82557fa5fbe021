# SPDX-License-Identifier: Apache-2.0
"""`forebay why`: what something waits for, since when, who holds it, and what ends it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import typer

from forebay.cli.arguments import reservation_names
from forebay.cli.chosen import chosen_or_current
from forebay.cli.output import JsonOption, console, format_time, print_fields, print_json
from forebay.durations import format_duration
from forebay.manager.client import ManagerClient
from forebay.workflows.manager.commands.why_streams import of_reservation, of_stream

__all__ = ["why"]

why_app = typer.Typer(add_completion=False)


@why_app.command(epilog="Example: forebay why run1")
def why(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A reservation, a stream as RES/STREAM, or the number of a job or a stage.",
            autocompletion=reservation_names,
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Say what a reservation, stream, job or stage waits for, since when, who holds it, and what ends it."""
    instance = chosen_or_current()
    if "/" in what:
        answers = of_stream(instance, what)
    else:
        with ManagerClient(instance) as manager:
            answers = manager.why(what)
        for number, answer in enumerate(answers[:]):
            if answer.subject == f"reservation {what}":
                waits = of_reservation(instance, what)
                answers += waits
                if waits and answer.waits_for == "nothing":
                    answers[number] = replace(answer, waits_for="nothing itself; its streams do")
    if as_json:
        print_json({"answers": [answer.as_dict() for answer in answers]})
        return
    for number, answer in enumerate(answers):
        if number:
            console().print()
        fields = [(answer.subject, answer.state), ("waits for", answer.waits_for)]
        if answer.since_ns is not None:
            ago = format_duration((time.time_ns() - answer.since_ns) / 1e9)
            fields.append(("since", f"{format_time(answer.since_ns)} ({ago} ago)"))
        fields += [("held by", holder) for holder in answer.held_by]
        if answer.ends:
            fields.append(("ends by", answer.ends))
        print_fields(fields)
