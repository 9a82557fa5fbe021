# SPDX-License-Identifier: Apache-2.0
"""`forebay ticket`: a small file that stands for a stream or a step where a workflow wants a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.arguments import stream_names
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, console, print_json
from forebay.errors import InvalidArgumentError
from forebay.records import TICKET_SUFFIX
from forebay.ticket import Ticket

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("ticket", epilog="Example: forebay ticket run1/flow@17 --output step17.forebay")(write_ticket)


def write_ticket(
    address: Annotated[
        str,
        typer.Argument(
            metavar="RES/STREAM[@STEP]",
            help="The stream or step, for example run1/flow@17.",
            autocompletion=stream_names,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="A name that ends in .forebay. Default: standard output."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a ticket: a small file that stands for a stream or a step where a program or a workflow wants a file.

    Commands that take a stream or a step, forebay.open and forebay.adios2 take its path instead of an address.
    """
    if output is not None and not output.name.endswith(TICKET_SUFFIX):
        raise InvalidArgumentError(f"a ticket is known by its name's end, {TICKET_SUFFIX}: not {str(output)!r}")
    ticket = Ticket.of(address, instance=chosen())
    if output is not None:
        ticket.write(output)
    if as_json:
        print_json({"address": str(ticket.address), "uuid": ticket.uuid, "epoch": ticket.epoch})
    elif output is None:
        console().print(ticket.text(), end="", soft_wrap=True, markup=False, highlight=False)
