# SPDX-License-Identifier: Apache-2.0
"""`forebay publish`: a consumer that writes each step to a file that VisIt, ParaView or yt follow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from forebay.cli.arguments import StreamArgument
from forebay.cli.following import (
    OnUnavailable,
    OnUnavailableOption,
    RunOption,
    TimeoutOption,
    WaitForWriterOption,
    needs_packages,
    opened_to_follow,
    say_notice,
    tells_interruption,
)
from forebay.cli.output import JsonOption, console, error_console, print_json
from forebay.errors import InvalidArgumentError
from forebay.viz.publishing.publication import FileFormat, Publication, Viewer

if TYPE_CHECKING:
    from forebay import Stream
    from forebay.follower import StartText
    from forebay.viz.publishing.idx import IdxPublication

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command("publish", epilog="Example: forebay publish run1/flow plots --for paraview")
def publish(
    stream: StreamArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Takes a file for each step, and an index.")],
    viewer: Annotated[Viewer, typer.Option("--for", help="Who reads the files.")],
    variables: Annotated[
        str,
        typer.Option(
            "--variables", metavar="NAME,NAME", help="What to publish; default: all on the grid, or on levels."
        ),
    ] = "",
    file_format: Annotated[
        FileFormat, typer.Option("--format", help="For ParaView: vti, or xdmf over HDF5 files.")
    ] = FileFormat.VTI,
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="Name that the position is kept under.")
    ] = "publish",
    timeout_seconds: TimeoutOption = None,
    run_name: RunOption = "",
    wait_for_writer: WaitForWriterOption = False,
    on_unavailable: OnUnavailableOption = OnUnavailable.WAIT,
    as_json: JsonOption = False,
) -> int:
    """Publish every step of a regular grid as a file of its own, with an index that names whole steps only.

    For paraview: VTK image data and NAME.pvd, or HDF5 files and NAME.xdmf. For visit, yt and chombo: Chombo files
    plt000010.3d.hdf5, for visit with NAME.visit and a script that follows it. For amrex: plotfiles plt00010. Both have
    all levels of refinement. For idx: the dataset NAME.idx with a time step for each step. Started again, it continues
    where it was.
    """
    if file_format is FileFormat.XDMF and viewer is not Viewer.PARAVIEW:
        raise InvalidArgumentError(f"--format xdmf goes with --for paraview, not with --for {viewer}")
    if viewer is Viewer.IDX:
        needs_packages("writing IDX files", "idx", "OpenVisus")
    elif viewer not in (Viewer.PARAVIEW, Viewer.AMREX) or file_format is FileFormat.XDMF:
        needs_packages("writing HDF5 files", "hdf5", "h5py")
    messages = error_console()
    published = 0
    named: set[str] = set()
    with opened_to_follow(stream, timeout_seconds, run_name, wait_for_writer, on_unavailable) as source:
        names = variables.split(",") if variables else None
        publication: Publication | IdxPublication
        if viewer is Viewer.IDX:
            from forebay.viz.publishing.idx import IdxPublication

            publication = IdxPublication(folder, source.address.stream, names)
        else:
            publication = Publication(folder, viewer, source.address.stream, names, file_format=file_format)
        with tells_interruption() as outcome:
            start = _start(source, consumer, publication.steps)
            for step in source.follow(
                consumer, timeout=timeout_seconds, start=start, ack="manual", on_notice=say_notice
            ):
                with step:
                    left_out = publication.publish(step)
                    step.ack()
                published += 1
                for name in sorted(set(left_out) - named):
                    messages.print(Text(f"{name} is not published: {left_out[name]}"), soft_wrap=True)
                    named.add(name)
    if as_json:
        print_json({"published": published, "steps": publication.steps, "index": str(publication.index)})
    else:
        console().print(Text(f"{published} steps published; open {publication.index}"), soft_wrap=True)
    return int(outcome.status)


def _start(source: Stream, consumer: str, published: list[int]) -> StartText:
    """Where the consumer was; from the oldest step if it has put steps into another folder that this one lacks."""
    position = next((known.position for known in source.info.consumers if known.name == consumer), 0)
    return "cursor" if position <= (published[-1] + 1 if published else 0) else "oldest"
