# SPDX-License-Identifier: Apache-2.0
"""`forebay netcdf`: history files into a stream, and a stream into a netCDF-4 file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

import forebay
from forebay.cli.arguments import StreamArgument, stream_names
from forebay.cli.chosen import chosen
from forebay.cli.following import needs_packages
from forebay.cli.output import JsonOption, console, error_console, print_json
from forebay.errors import InvalidArgumentError

__all__ = ["app"]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="History files in netCDF as steps of a stream, and a stream as a netCDF-4 file.",
    epilog="Example: forebay netcdf ingest run/wrfout_d01_* run1/history",
)

VariablesOption = Annotated[
    str, typer.Option("--variables", metavar="NAME,NAME", help="Only these, and the time; default: all.")
]


@app.callback()
def netcdf() -> None:
    """History files in netCDF as steps of a stream, and a stream as a netCDF-4 file."""


@app.command("ingest", epilog="Example: forebay netcdf ingest run/wrfout_d01_* run1/history")
def ingest_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Finished files, in order of time.")],
    stream: Annotated[str, typer.Argument(metavar="RES/STREAM", help="Made if need be.", autocompletion=stream_names)],
    variables: VariablesOption = "",
    dimension: Annotated[
        str,
        typer.Option("--dimension", metavar="NAME", help="Whose places become steps; default: the unlimited one."),
    ] = "",
    time: Annotated[
        str, typer.Option("--time", metavar="NAME", help="Variable with the time of each record; default: found.")
    ] = "",
    count: Annotated[
        bool, typer.Option("--count", help="The files have no times: only count. What is given twice is there twice.")
    ] = False,
    retention: Annotated[
        str, typer.Option("--retention", metavar="RULE", help="Of the stream, such as last:10; default: as it is.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a stream with a step for each record of history files.

    Records whose times the stream has are passed over, so the same line may be repeated, also after a kill. One stream
    takes files of one form. After --exec of forebay follow it takes each file as it is finished.
    """
    if count and time:
        raise InvalidArgumentError("--count is for files without times: leave out --time")
    forebay.Address.parse(stream)
    needs_packages("reading netCDF files", "netcdf", "netCDF4")
    from forebay.connectors.netcdf.ingesting import Ingestion

    options: dict[str, Any] = {"retention": retention} if retention else {}
    messages = error_console()
    with forebay.open(stream, "a", instance=chosen(), rank=0, ranks=1, **options) as opened:
        ingestion = Ingestion(
            opened,
            variables=variables.split(",") if variables else None,
            dimension=dimension,
            time=None if count else time,
            on_notice=lambda text: messages.print(Text(text), soft_wrap=True),
        )
        for path in files:
            ingestion.add(path)
        newest = opened.next_step - 1
    if as_json:
        print_json({"stream": stream, "written": ingestion.written, "passed": ingestion.passed, "newest": newest})
        return
    told = f", {ingestion.passed} records were there" if ingestion.passed else ""
    console().print(Text(f"{stream}: {ingestion.written} steps written{told}"), soft_wrap=True)


@app.command("export", epilog="Example: forebay netcdf export run1/history history.nc")
def export_command(
    stream: StreamArgument,
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")],
    variables: VariablesOption = "",
    steps: Annotated[
        str, typer.Option("--steps", metavar="LIST", help="Numbers and ranges: 0,5,10:20; default: all kept steps.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write the steps that a stream has now to one netCDF-4 file, a record for each.

    For a copy that is verified and has a receipt, see forebay stage-out.
    """
    needs_packages("writing netCDF files", "netcdf", "netCDF4")
    from forebay.connectors.netcdf.exporting import export

    messages = error_console()
    written = export(
        stream,
        path,
        variables=variables.split(",") if variables else None,
        steps=steps,
        instance=chosen(),
        on_notice=lambda text: messages.print(Text(text), soft_wrap=True),
    )
    if as_json:
        print_json({"stream": stream, "file": str(path), "steps": written})
    else:
        console().print(Text(f"{path}: {written} steps of {stream}"), soft_wrap=True)
