# SPDX-License-Identifier: Apache-2.0
"""`forebay grib`: GRIB files into a stream, and steps of a stream into GRIB files."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

import forebay
from forebay.cli.arguments import StreamArgument, stream_names
from forebay.cli.chosen import chosen
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
from forebay.durations import parse_duration
from forebay.errors import InvalidArgumentError

if TYPE_CHECKING:
    from forebay.connectors.grib import Ingested

__all__ = ["grib_app"]

grib_app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="GRIB files as steps, and steps as GRIB files.",
    epilog="Example: forebay grib ingest fc*.grib2 run1/fc",
)


class _Packing(StrEnum):
    SIMPLE = "simple"
    IEEE = "ieee"


@grib_app.callback()
def grib() -> None:
    """GRIB files of a forecast cycle as steps of a stream, and steps as GRIB files."""


@grib_app.command("ingest", epilog="Example: forebay grib ingest fc*.grib2 run1/fc --where typeOfLevel=isobaricInhPa")
def ingest_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="GRIB files that have whole steps together.")],
    stream: Annotated[str, typer.Argument(metavar="RES/STREAM", help="Made if need be.", autocompletion=stream_names)],
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="KEY=VALUE,VALUE",
            help="Only such messages, by a key of ecCodes. May be given several times.",
        ),
    ] = None,
    interval: Annotated[
        str,
        typer.Option("--interval", metavar="TIME", help="A step's number counts these; none: counted from 0."),
    ] = "1h",
    complete: Annotated[bool, typer.Option("--complete", help="Refuse a step that lacks messages.")] = False,
    coordinates: Annotated[
        bool,
        typer.Option("--coordinates/--no-coordinates", help="Write latitude and longitude of each point, if needed."),
    ] = True,
    double: Annotated[bool, typer.Option("--double", help="Fields of float64, not float32.")] = False,
    retention: Annotated[
        str, typer.Option("--retention", metavar="RULE", help="Of the stream, such as last:10; default: all.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Write the messages of GRIB files into a stream, with a step for each valid time.

    Steps that the stream has are passed over, so the same line may be repeated. Messages that are missing are told:
    those that the step before had, and those of a member or level that other fields of the variable have.
    """
    forebay.Address.parse(stream)
    needs_packages("reading GRIB files", "grib", "eccodes")
    from forebay.connectors.grib import ingest

    choice = dict(_condition(text) for text in where or ())
    messages = error_console()

    def tell(done: Ingested) -> None:
        number = done.written[-1]
        if lacks := done.missing.get(number):
            rest = f" and {len(lacks) - 3} more" if len(lacks) > 3 else ""
            messages.print(Text(f"step {number} lacks {'; '.join(lacks[:3])}{rest}"), soft_wrap=True)

    options: dict[str, Any] = {"retention": retention} if retention else {}
    done = ingest(
        [files],
        stream,
        where=choice or None,
        interval=None if interval == "none" else parse_duration(interval),
        complete=complete,
        coordinates=coordinates,
        dtype="float64" if double else "float32",
        on_step=tell,
        instance=chosen(),
        **options,
    )
    if as_json:
        print_json(
            {"stream": stream, "written": done.written, "passed_over": done.passed_over, "missing": done.missing}
        )
    else:
        text = f"{stream}: {len(done.written)} steps written, {len(done.passed_over)} were there"
        console().print(Text(text), soft_wrap=True)


@grib_app.command("export", epilog="Example: forebay grib export run1/fc products --bits 16")
def export_command(
    stream: StreamArgument,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Takes a file for each step, NAME.000006.grib2.")],
    bits: Annotated[
        int | None,
        typer.Option("--bits", min=1, max=32, metavar="N", help="Bits a value; default: as the source had, else 16."),
    ] = None,
    packing: Annotated[
        _Packing, typer.Option("--packing", help="ieee keeps every bit, in more space.")
    ] = _Packing.SIMPLE,
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="Name that the position is kept under.")
    ] = "grib",
    timeout_seconds: TimeoutOption = None,
    run_name: RunOption = "",
    wait_for_writer: WaitForWriterOption = False,
    on_unavailable: OnUnavailableOption = OnUnavailable.WAIT,
    as_json: JsonOption = False,
) -> int:
    """Write every step to a GRIB2 file as it commits; files appear whole.

    Variables need attributes that say which parameter they are, as those from GRIB files have; one message names the
    others. Started again, it continues where it was.
    """
    if bits is not None and packing is _Packing.IEEE:
        raise InvalidArgumentError("--bits goes with --packing simple: ieee keeps all bits")
    needs_packages("writing GRIB files", "grib", "eccodes")
    from forebay.connectors.grib import FilesOfSteps

    messages = error_console()
    written: list[int] = []
    told: set[str] = set()
    with opened_to_follow(stream, timeout_seconds, run_name, wait_for_writer, on_unavailable) as source:
        files = FilesOfSteps(folder, source.address.stream, bits=bits, packing=packing.value)
        with tells_interruption() as outcome:
            for step in source.follow(consumer, timeout=timeout_seconds, ack="manual", on_notice=say_notice):
                with step:
                    left_out = files.write(step)
                    step.ack()
                written.append(step.number)
                for name in sorted(set(left_out) - told):
                    messages.print(Text(f"{name} is not written: {left_out[name]}"), soft_wrap=True)
                    told.add(name)
    if as_json:
        print_json({"written": written, "folder": str(folder)})
    else:
        console().print(Text(f"{len(written)} GRIB files written in {folder}"), soft_wrap=True)
    return int(outcome.status)


def _condition(text: str) -> tuple[str, list[str]]:
    key, sign, values = text.partition("=")
    if not sign or not key or not values:
        raise InvalidArgumentError(f"--where {text!r} is not KEY=VALUE, for example shortName=t,u,v")
    return key, values.split(",")
