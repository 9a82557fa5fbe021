# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that draw: what replaces a scene's own, and which step comes next."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated

import typer

from forebay import Stream
from forebay.errors import InvalidArgumentError
from forebay.records import StreamStatus
from forebay.viz.scenes.description import Quality, SceneDescription
from forebay.viz.scenes.scene_file import check_size, load_scene

__all__ = [
    "LatestOption",
    "QualityOption",
    "RangeOption",
    "SceneOption",
    "SheetOption",
    "SizeOption",
    "chosen_scene",
    "draws_latest_first",
]

SceneOption = Annotated[
    Path | None,
    typer.Option("--scene", metavar="FILE.toml", help="What to draw; default: a slice through the first field."),
]
SizeOption = Annotated[
    str, typer.Option("--size", metavar="WxH", help="Pixels, even numbers; default: the scene's, else 960x720.")
]
RangeOption = Annotated[
    str, typer.Option("--range", metavar="LOW:HIGH", help="Ends of all colour scales; default: the scene's.")
]
QualityOption = Annotated[
    Quality | None,
    typer.Option(
        "--quality", help="draft: fewer lines and triangles. Default: draft for what is replaced, else the scene's."
    ),
]
SheetOption = Annotated[
    Path | None,
    typer.Option("--sheet", metavar="FILE", help="A contact sheet: small pictures of 20 steps of the movie, in one."),
]
LatestOption = Annotated[
    bool | None,
    typer.Option(
        "--latest/--in-order",
        help="The newest step first, skipped ones when there is time. Default while the stream runs.",
    ),
]


def chosen_scene(file: Path | None, size: str, ends: str, quality: Quality | None) -> SceneDescription:
    """The scene of a file, or without layers, with what the options replace."""
    scene = SceneDescription() if file is None else load_scene(file)
    if size:
        match = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", size)
        if match is None:
            raise InvalidArgumentError(f"--size is WIDTHxHEIGHT in pixels, for example 960x720, not {size!r}")
        wanted = (int(match[1]), int(match[2]))
        check_size(wanted)
        scene = dataclasses.replace(scene, size=wanted)
    if ends:
        try:
            low, high = (float(number) for number in ends.split(":"))
        except ValueError:
            low = high = 0.0
        if not low < high:
            raise InvalidArgumentError(f"--range is a smaller and a larger number, for example 0:0.5, not {ends!r}")
        scene = scene.in_range(low, high)
    return scene if quality is None else dataclasses.replace(scene, quality=quality)


def draws_latest_first(stream: Stream, option: bool | None) -> bool:
    """What the option says; without it whether the stream runs, or may run again."""
    if option is not None:
        return option
    return stream.info.status in (StreamStatus.WAITING, StreamStatus.LIVE, StreamStatus.INTERRUPTED)
