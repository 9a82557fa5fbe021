# SPDX-License-Identifier: Apache-2.0
"""`forebay beamline`: the chain behind a detector as a service, and the record of what was scanned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

import forebay
from forebay.cli.arguments import ReservationArgument, stream_names
from forebay.cli.chosen import chosen
from forebay.cli.failures import ExitStatus
from forebay.cli.following import needs_packages
from forebay.cli.output import JsonOption, console, error_console, print_json
from forebay.workflows.beamline.scan_log import ScanLog

__all__ = ["beamline_app"]

beamline_app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Scans of a beamline.",
    epilog="Example: forebay beamline run tooth.toml",
)


@beamline_app.callback()
def beamline() -> None:
    """Scans of a beamline: the chain behind a detector, and the record of what was scanned."""


@beamline_app.command("run", epilog="Example: forebay beamline run tooth.toml")
def run(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A TOML file; docs/how-to/beamline.md has its settings.")
    ],
    as_json: JsonOption = False,
) -> int:
    """Acquire a scan, and normalise, reconstruct, render and archive it while it runs and when it has ended.

    Each part is a process of its own, coupled through streams. The exit status is 1 if one of them failed; the frames
    are archived all the same.
    """
    from forebay.workflows.beamline.service import ChainSettings, run_chain

    settings = ChainSettings.read(config)
    needs_packages("the chain", "tomography", "h5py", "skimage", "tifffile", "PIL")
    instance = chosen()
    if instance is not None:
        os.environ.update({"FOREBAY_ROOT": str(instance.root), "FOREBAY_SOCKET": "", "FOREBAY_SERVER": ""})
    messages = error_console()
    outcome = run_chain(settings, dict(os.environ), lambda text: messages.print(Text(text), soft_wrap=True))
    if as_json:
        print_json(
            {
                "scan": f"{settings.reservation}/{outcome.scan}",
                "frames": outcome.frames,
                "results": str(outcome.results),
                "failed": outcome.failures,
            }
        )
    else:
        console().print(Text(f"{settings.reservation}/{outcome.scan}: {outcome.results}"), soft_wrap=True)
    return int(ExitStatus.ERROR if outcome.failures else ExitStatus.OK)


@beamline_app.command("export", epilog="Example: forebay beamline export experiment7/tooth-0001 archive")
def export(
    scan: Annotated[
        str,
        typer.Argument(
            metavar="RES/SCAN", help="A scan that has ended, or was interrupted.", autocompletion=stream_names
        ),
    ],
    folder: Annotated[
        Path, typer.Argument(metavar="DEST", help="Takes SCAN.nxs and receipt.json; it is made if it is not there.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a SCAN.nxs that is of another scan, or in no receipt.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Stage a scan out as one NXtomo file: read back, compared with the stream, and with a receipt.

    Its steps count as staged out. The command may be repeated: a file that is there, and is whole, stays.
    """
    address = forebay.Address.parse(scan)  # a mistaken one is told before a missing package
    needs_packages("NXtomo", "hdf5", "h5py")
    from forebay.workflows.beamline.nxtomo import export_nxtomo

    done = export_nxtomo(address, folder, replace=replace, instance=chosen())
    if as_json:
        print_json(
            {
                "path": str(done.path),
                "receipt": str(done.receipt),
                "frames": done.frames,
                "projections": done.projections,
                "marked": done.marked,
            }
        )
    else:
        if not done.marked:
            error_console().print("not marked as staged out: the steps have other variables, or you may only read them")
        console().print(
            Text(f"{address}: {done.frames} frames, {done.projections} of them projections, in {done.path}"),
            soft_wrap=True,
        )


@beamline_app.command("scans", epilog="Example: forebay beamline scans experiment7")
def scans(reservation: ReservationArgument, as_json: JsonOption = False) -> None:
    """List the scans of a reservation, with how each ended: also those that were aborted, or whose process was lost."""
    from forebay.cli.streams import check_reservation

    check_reservation(reservation)
    records = ScanLog.records(reservation, instance=chosen())
    if as_json:
        print_json(
            [
                {"scan": record.scan, "exit_status": record.exit_status, "start": record.start, "stop": record.stop}
                for record in records
            ]
        )
        return
    table = Table("SCAN", "ENDED AS", "FRAMES", "EXPECTED", "REASON", box=None)
    for record in records:
        stop = record.stop or {}
        expected = record.start.get("frames_expected", "")
        table.add_row(
            record.scan, record.exit_status, str(stop.get("frames_written", "")), str(expected), stop.get("reason", "")
        )
    console().print(table)


@beamline_app.command("retire", epilog="Example: forebay beamline retire experiment7 --experiment day1 --keep 10")
def retire(
    reservation: ReservationArgument,
    experiment: Annotated[
        str | None, typer.Option("--experiment", metavar="NAME", help="Only scans of this experiment.")
    ] = None,
    keep: Annotated[int, typer.Option("--keep", min=0, metavar="N", help="Keep the newest N of them.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Remove scans whose frames are all staged out; the record of them stays."""
    from forebay.cli.streams import check_reservation

    check_reservation(reservation)
    gone = ScanLog.retire(reservation, experiment=experiment, keep=keep, instance=chosen())
    if as_json:
        print_json({"removed": gone})
    else:
        console().print(
            Text(f"{reservation}: {len(gone)} scans removed{': ' if gone else ''}{', '.join(gone)}"), soft_wrap=True
        )
