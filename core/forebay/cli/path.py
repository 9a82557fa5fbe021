# SPDX-License-Identifier: Apache-2.0
"""`forebay path`: a kept step as a file, for tools that only open files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import forebay
from forebay.cli.arguments import stream_names
from forebay.cli.chosen import chosen, chosen_or_current
from forebay.cli.output import JsonOption, print_json, print_line
from forebay.errors import InvalidArgumentError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("path", epilog="Example: h5dump -H $(forebay path run1/flow@17.h5)")(path)


def path(
    view: Annotated[
        str,
        typer.Argument(
            metavar="RES/STREAM@STEP[/VARIABLE].FORMAT",
            help="For example run1/flow@17.h5, run1/flow@latest.nc, run1/flow@17/T.npy.",
            autocompletion=stream_names,
        ),
    ] = "",
    holder: Annotated[
        int | None,
        typer.Option(
            "--for", metavar="PID", help="The file lives until this process ends. Default: the one that calls."
        ),
    ] = None,
    released: Annotated[
        Path | None, typer.Option("--release", metavar="PATH", help="End the view with this path.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the path of a kept step as a read-only file, for programs that only open files.

    The file lives until --release, until the process ends that called, or an hour after its last close.
    """
    if (released is None) == (not view):
        raise InvalidArgumentError("name either the view of a step, or --release with a path")
    if released is not None:
        from forebay.views.keeping import release

        release(released.absolute())
        if as_json:
            print_json({"released": str(released)})
        return
    from forebay.views.address import ViewAddress
    from forebay.views.folder import default_folder
    from forebay.views.holder import calling_process, holder_of
    from forebay.views.making import make_view

    address = ViewAddress.parse(view)
    lives_for = calling_process() if holder is None else holder_of(holder)
    with (
        forebay.open(address.stream, instance=chosen(), timeout=0, verify="first") as stream,
        stream.latest if address.step is None else stream[address.step] as step,
    ):
        made = make_view(step, address, lives_for, default_folder(chosen_or_current().root))
    if as_json:
        print_json({"path": str(made.path), "step": step.number, "size_bytes": made.size_bytes})
    else:
        print_line(str(made.path))
