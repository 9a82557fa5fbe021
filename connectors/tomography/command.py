# SPDX-License-Identifier: Apache-2.0
"""`forebay reconstruct`: follows a scan and reconstructs slices as the projections arrive."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

import forebay
from forebay.cli.arguments import stream_names
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
from forebay.new_output import new_output

if TYPE_CHECKING:
    from forebay.connectors.tomography.live import Slices

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command("reconstruct", epilog="Example: forebay reconstruct beamline/tooth --out slices --rows 0:2")
def reconstruct_command(
    stream: Annotated[
        str,
        typer.Argument(metavar="RES/STREAM", help="The scan, for example beamline/tooth.", autocompletion=stream_names),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", help="Takes preview.png and each slice_ROW.tif, written anew after each batch."
        ),
    ],
    rows: Annotated[
        str, typer.Option("--rows", metavar="ROW|FIRST:END", help="Detector rows; default: the middle one.")
    ] = "",
    center: Annotated[
        float | None, typer.Option("--center", metavar="COLUMN", help="Of the axis of rotation; default: found.")
    ] = None,
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="Name that retention waits for; default: none.")
    ] = "",
    filter_name: Annotated[
        str, typer.Option("--filter", metavar="NAME", help="ramp, shepp-logan, cosine, hamming or hann.")
    ] = "ramp",
    extended: Annotated[
        bool, typer.Option("--extended", help="A scan of 360 degrees about an axis near an edge of the detector.")
    ] = False,
    without_rings: Annotated[
        bool, typer.Option("--without-rings", help="Remove rings from the slices when the scan has ended.")
    ] = False,
    timeout_seconds: TimeoutOption = None,
    run_name: RunOption = "",
    wait_for_writer: WaitForWriterOption = False,
    on_unavailable: OnUnavailableOption = OnUnavailable.WAIT,
    as_json: JsonOption = False,
) -> int:
    """Reconstruct slices of a scan by filtered back-projection while it runs, until it has ended.

    The scan is a stream that forebay.connectors.tomography wrote: from a file by ingest() (Data Exchange, NXtomo,
    ALS 8.3.2), or frame by frame by ScanWriter.
    """
    forebay.Address.parse(stream)  # a mistaken one is told before a missing package
    needs_packages("reconstruction", "tomography", "skimage")
    from forebay.connectors.tomography.live import reconstruct

    detector_rows = _rows(rows)
    if filter_name not in ("ramp", "shepp-logan", "cosine", "hamming", "hann"):
        raise InvalidArgumentError(
            f"--filter is ramp, shepp-logan, cosine, hamming or hann, not {filter_name!r}", f"stream {stream}"
        )
    out.mkdir(parents=True, exist_ok=True)
    messages = error_console()
    latest: Slices | None = None
    written: list[Path] = []
    with (
        opened_to_follow(stream, timeout_seconds, run_name, wait_for_writer, on_unavailable) as scan,
        tells_interruption() as outcome,
    ):
        for latest in reconstruct(
            scan,
            rows=detector_rows,
            center=center,
            consumer=consumer,
            timeout=timeout_seconds,
            filter_name=filter_name,
            extended=extended,
            without_rings=without_rings,
            on_notice=say_notice,
        ):
            _write_preview(latest, out / "preview.png")
            messages.print(
                Text(f"step {latest.step}: {latest.angles} projections, centre {latest.center:.2f}"), soft_wrap=True
            )
            # At each batch: what has come is kept if the scan is interrupted, and the cursor moves after the last.
            written = _write_slices(latest, out)
    if latest is None:
        raise InvalidArgumentError("the scan ended without projections", f"stream {stream}")
    if as_json:
        print_json(
            {
                "angles": latest.angles,
                "center": latest.center,
                "step": latest.step,
                "slices": [str(path) for path in written],
            }
        )
    else:
        text = (
            f"{latest.angles} projections, centre of rotation at column {latest.center:.2f}: "
            f"{len(written)} slices in {out}"
        )
        console().print(Text(text), soft_wrap=True)
    return int(outcome.status)


def _rows(text: str) -> list[int] | None:
    if not text:
        return None
    match = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", text)
    if match is None:
        raise InvalidArgumentError(f"--rows is one row, or FIRST:END without the end, for example 0:2, not {text!r}")
    first = int(match[1])
    return list(range(first, int(match[2]) if match[2] else first + 1))


def _write_preview(slices: Slices, path: Path) -> None:
    """The first slice as a picture, from its darkest to its brightest hundredth."""
    import numpy as np
    from PIL import Image

    image = slices.image[0]
    low, high = np.percentile(image, (1, 99))
    grey = np.clip((image - low) * (255 / max(high - low, 1e-12)), 0, 255).astype(np.uint8)
    with new_output(path) as hidden:
        Image.fromarray(grey).save(hidden, "png")


def _write_slices(slices: Slices, out: Path) -> list[Path]:
    """One TIFF of float32 for each row."""
    import tifffile

    paths = []
    for number, image in zip(slices.rows, slices.image, strict=True):
        path = out / f"slice_{number:05d}.tif"
        with new_output(path) as hidden:
            tifffile.imwrite(hidden, image)
        paths.append(path)
    return paths
