# SPDX-License-Identifier: Apache-2.0
"""`forebay env`: what a shell needs, as export lines and nothing else."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

import forebay
from forebay.cli.arguments import stream_names
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, print_json
from forebay.program_environment import program_environment
from forebay.records import Address

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("env", epilog='Example: eval "$(forebay env run1/flow)"')(print_environment)


def print_environment(
    stream: Annotated[
        str | None,
        typer.Argument(
            metavar="RES/STREAM",
            help="Also set $FOREBAY_STREAM to this stream.",
            autocompletion=stream_names,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the export lines that a shell needs before it starts a program that uses Forebay."""
    instance = chosen()
    variables = program_environment(forebay.instance_root() if instance is None else instance.root)
    if "FOREBAY_SOCKET" in os.environ:
        # Empty is the same as none: another instance's would go before the root.
        variables["FOREBAY_SOCKET"] = os.environ["FOREBAY_SOCKET"] if instance is None else ""
    if stream is not None:
        variables["FOREBAY_STREAM"] = str(Address.parse(stream))
    if as_json:
        print_json(variables)
        return
    for name, value in variables.items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
