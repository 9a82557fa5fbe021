# SPDX-License-Identifier: Apache-2.0
"""What every command gets automatically: ``--root`` after its name, and flags without a value in its help."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
import typer.main

from forebay.cli.chosen import choose

__all__ = ["HELP_NAMES", "ROOT_OPTION", "RootOption", "flags_without_values", "with_plain_help", "with_shared_options"]

HELP_NAMES = ("-h", "--help")


def _choose(root: str | None) -> None:
    if root is not None:
        choose(root)


#: The name of its parameter in a command.
ROOT_OPTION = "root_folder"

RootOption = Annotated[
    str | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Root directory of the instance. Default: $FOREBAY_SOCKET, $FOREBAY_ROOT, else your own.",
        callback=_choose,
        expose_value=False,
    ),
]


def with_shared_options(command: Any) -> Any:
    """The command, and those below it, with ``--root`` and with flags shown as such."""
    if all(parameter.name != ROOT_OPTION for parameter in command.params):
        command.params.append(_root_option())
    # The command makes its --help for the first context that asks, and keeps it.
    flags_without_values(command.get_params(typer.Context(command, help_option_names=list(HELP_NAMES))))
    for child in getattr(command, "commands", {}).values():
        with_shared_options(child)
    return command


def with_plain_help(command: Any) -> Any:
    """The command, whose help has boxes and colours at a terminal only; and those below it."""
    if not sys.stdout.isatty():
        command.rich_markup_mode = None
        for child in getattr(command, "commands", {}).values():
            with_plain_help(child)
    return command


def flags_without_values(parameters: list[Any]) -> list[Any]:
    """These parameters. Else the help of a flag says that it takes a <bool>."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _root_option() -> Any:
    donor = typer.Typer(add_completion=False)

    @donor.command()
    def _(root_folder: RootOption = None) -> None:
        pass

    return next(parameter for parameter in typer.main.get_command(donor).params if parameter.name == ROOT_OPTION)
