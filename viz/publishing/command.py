# SPDX-License-Identifier: Apache-2.0
"""`forebay publish`: a consumer that writes each step to a file that VisIt, ParaView or yt follow."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import forebay
from forebay.cli.chosen import chosen
from forebay.cli.failures import ExitStatus
from forebay.cli.output import JsonOption, console, error_console, print_json
from forebay.errors import StreamFailedError, StreamInterruptedError, UnsupportedError
from forebay.viz.publishing.publication import Publication, Viewer

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command("publish", epilog="Example: forebay publish run1/flow plots --for paraview")
def publish(
    stream: Annotated[str, typer.Argument(metavar="RES/STREAM", help="The stream, for example run1/flow.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Takes a file for each step, and an index.")],
    viewer: Annotated[Viewer, typer.Option("--for", help="Who reads the files.")],
    variables: Annotated[
        str, typer.Option("--variables", metavar="NAME,NAME", help="What to publish; default: all on the grid.")
    ] = "",
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="Name that the position is kept under.")
    ] = "publish",
    timeout_seconds: Annotated[
        float | None,
        typer.Option("--timeout", min=0.0, metavar="SECONDS", help="Longest wait for a step; default: for ever."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Publish every step of a regular grid as a file of its own, with an index that names whole steps only.

    For paraview: VTK image data and NAME.pvd. For visit and yt: Chombo files plt000010.3d.hdf5, and NAME.visit. Started
    again, it continues where it was.
    """
    if viewer is not Viewer.PARAVIEW and importlib.util.find_spec("h5py") is None:
        raise UnsupportedError("Chombo files need h5py: pip install 'forebay[hdf5]'")
    messages = error_console()
    status = ExitStatus.OK
    published = 0
    told: set[str] = set()
    with forebay.open(stream, instance=chosen(), timeout=timeout_seconds) as source:
        publication = Publication(folder, viewer, source.address.stream, variables.split(",") if variables else None)
        try:
            for step in source.follow(consumer, timeout=timeout_seconds, ack="manual"):
                with step:
                    grid = publication.publish(step)
                    step.ack()
                published += 1
                for name in sorted(set(grid.left_out) - told):
                    messages.print(Text(f"{name} is not published: {grid.left_out[name]}"), soft_wrap=True)
                    told.add(name)
        except (StreamInterruptedError, StreamFailedError) as error:
            # What came before it is published and stays.
            messages.print(Text(str(error)), soft_wrap=True)
            status = ExitStatus.INTERRUPTED_STREAM
    if as_json:
        print_json({"published": published, "steps": publication.steps, "index": str(publication.index)})
    else:
        console().print(Text(f"{published} steps published; open {publication.index}"), soft_wrap=True)
    return int(status)
