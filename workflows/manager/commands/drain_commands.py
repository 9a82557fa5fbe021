# SPDX-License-Identifier: Apache-2.0
"""`forebay drain` and `forebay undrain`."""

from __future__ import annotations

from typing import Annotated

import typer

from forebay.cli.chosen import chosen_or_current
from forebay.cli.output import JsonOption, console, print_json
from forebay.manager.client import ManagerClient

__all__ = ["drain", "undrain"]

drain_app = typer.Typer(add_completion=False)
undrain_app = typer.Typer(add_completion=False)


ServerArgument = Annotated[
    str,
    typer.Argument(metavar="[SERVER]", help="A server of the pool. Default: that of the manager.", show_default=False),
]


@drain_app.command(epilog="Example: forebay drain --reason maintenance")
def drain(
    server: ServerArgument = "",
    reason: Annotated[str, typer.Option(metavar="TEXT", help="What to tell those who are refused.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Let a server make no new reservations, until `forebay undrain`. Existing ones stay usable; idempotent.

    Slurm starts no further job with a burst buffer there. Jobs that run end as usual. A restart changes nothing.
    """
    with ManagerClient(chosen_or_current()) as manager:
        drained = manager.drain(reason, server)
    if as_json:
        print_json({"server": drained.server, "drained": drained.as_dict()})
        return
    console().print(f"server {drained.server} makes no new reservations", markup=False, soft_wrap=True)


@undrain_app.command(epilog="Example: forebay undrain")
def undrain(server: ServerArgument = "", as_json: JsonOption = False) -> None:
    """Let a server make reservations again; idempotent."""
    with ManagerClient(chosen_or_current()) as manager:
        answer = manager.undrain(server)
    if as_json:
        print_json({"server": answer.server, "drained": None, "was_drained": answer.was_drained})
        return
    before = "" if answer.was_drained else ", as before"
    console().print(f"server {answer.server} makes reservations{before}", markup=False, soft_wrap=True)
