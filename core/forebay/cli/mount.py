# SPDX-License-Identifier: Apache-2.0
"""`forebay mount`: a stream as a folder of read-only files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.arguments import stream_names
from forebay.cli.chosen import chosen
from forebay.cli.output import JsonOption, print_json
from forebay.errors import InvalidArgumentError
from forebay.records import Address

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("mount", epilog="Example: forebay mount run1/flow ~/flow && ls ~/flow")(mount_stream)
    app.command("unmount", epilog="Example: forebay unmount ~/flow")(unmount_stream)


def mount_stream(
    stream: Annotated[
        str, typer.Argument(metavar="RES/STREAM", help="The stream, also live.", autocompletion=stream_names)
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An empty folder of yours.")],
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="NAME", help="Show only this format; may be repeated. Default: all."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show all kept steps of a stream as read-only files below a folder, until it is unmounted.

    STREAM@17.h5, .nc and .vti hold a step, STREAM@17/VARIABLE.npy one variable, STREAM@latest.h5 leads to the newest.
    """
    from forebay.views.formats import format_named, format_names
    from forebay.views.mounting import mount

    if Address.parse(stream).step is not None:
        raise InvalidArgumentError("a mount shows all steps: name the stream; `forebay path` gives one step", stream)
    for name in formats or ():
        format_named(name)
    absolute = folder.absolute()
    mount(stream, absolute, formats or format_names(), chosen())
    if as_json:
        print_json({"mounted": str(absolute)})


def unmount_stream(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where a stream is mounted.")],
    as_json: JsonOption = False,
) -> None:
    """End a mount of a stream. Files that are open stay readable until they are closed."""
    from forebay.views.mounting import unmount

    absolute = folder.absolute()
    unmount(absolute)
    if as_json:
        print_json({"unmounted": str(absolute)})
