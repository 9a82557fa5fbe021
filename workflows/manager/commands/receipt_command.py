# SPDX-License-Identifier: Apache-2.0
"""`forebay receipt`: what a stage has moved, with sizes and checksums."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from forebay.cli.chosen import chosen_or_current
from forebay.cli.output import JsonOption, console, format_time, print_fields, print_json
from forebay.errors import CorruptError, NotFoundError, readable_errors
from forebay.file_address import FileAddress
from forebay.manager.client import ManagerClient
from forebay.sizes import format_size
from forebay.visible_text import visible
from forebay.workflows.manager.commands.stage_waiting import stage_title

__all__ = ["receipt", "write_receipt"]

receipt_app = typer.Typer(add_completion=False)


@receipt_app.command(epilog="Example: forebay receipt 7; forebay receipt /data/run1 --output run1.receipt")
def receipt(
    what: Annotated[
        str, typer.Argument(metavar="STAGE|PATH", help="A stage's number, or a file or folder (RES:PATH) it made.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the whole receipt there, a JSON line each.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the receipt. The files stay.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the receipt of a finished stage: each file with its size and CRC-32C, as it was verified."""
    with ManagerClient(chosen_or_current()) as manager:
        stage = int(what) if what.isdecimal() and len(what) < 10 else _stage_of(manager, what)
        if remove:
            removed = manager.remove_receipt(stage)
            if as_json:
                print_json({"stage": stage, "removed": removed})
            else:
                console().print(f"receipt of stage {stage} {'removed' if removed else 'was not there'}", markup=False)
            return
        if output is not None:
            write_receipt(manager, stage, output)
            return
        _print(manager.receipt(stage), as_json=as_json)


def write_receipt(manager: ManagerClient, stage: int, output: Path) -> None:
    """Writes the whole receipt into a file of the caller's, which must not be there."""
    with (
        readable_errors(
            output,
            full="the disk is full; make room there",
            denied="the receipt cannot be written there; choose another file",
            failed="choose another file",
        ),
        output.open("xb") as file,
    ):
        for line in manager.receipt(stage):
            file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _stage_of(manager: ManagerClient, place: str) -> int:
    wanted = str(place if FileAddress.find(place) is not None else os.path.abspath(place))
    found = manager.receipts(wanted, count=1)
    if not found:
        raise NotFoundError(f"there is no receipt of {place[:200]}; `forebay stages` lists what was staged")
    return found[0].stage


def _print(lines: Iterator[bytes], *, as_json: bool) -> None:
    head, rows = json.loads(next(lines)), (json.loads(line) for line in lines)
    if as_json:
        # As one document, without having all of it in memory.
        sys.stdout.write(json.dumps(head)[:-1] + ', "files": [')
        end = _print_rows(rows, lambda row, number: (", " if number else "") + json.dumps(row))
        sys.stdout.write(f'], "end": {json.dumps(end)}}}\n')
        sys.stdout.flush()
        return
    fields = [
        ("stage", str(head["stage"])),
        ("what", stage_title(head["job"])),
        ("begun", format_time(head["begun_ns"])),
    ]
    print_fields(fields)
    end = _print_rows(rows, lambda row, _: f"{row['crc32c']}  {row['size_bytes']:>15}  {visible(row['path']) or '.'}\n")
    print_fields(
        [
            ("files", str(end["files"])),
            ("size", format_size(end["size_bytes"])),
            ("ended", format_time(end["ended_ns"])),
        ]
    )


def _print_rows(rows: Iterator[Any], text_of: Any) -> dict[str, Any]:
    """Writes each row; returns the last line, which is none."""
    for number, row in enumerate(rows):
        if "result" in row:
            end: dict[str, Any] = row
            return end
        sys.stdout.write(text_of(row, number))
    raise CorruptError("the receipt has no end; it was removed or damaged while it was read")
