# SPDX-License-Identifier: Apache-2.0
"""`forebay render`: a consumer that follows a stream and renders every step to image files and a growing movie."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

import forebay
from forebay.cli.arguments import StreamArgument
from forebay.cli.chosen import chosen
from forebay.cli.following import TimeoutOption, needs_packages, tells_interruption
from forebay.cli.output import JsonOption, console, error_console, print_json
from forebay.cli.root import run
from forebay.errors import InvalidArgumentError, UnsupportedError
from forebay.viz.movie import MovieError
from forebay.viz.painter import Painter, PainterError
from forebay.viz.scene_options import SceneOptions

__all__ = ["app", "render"]

app = typer.Typer(add_completion=False)


@app.command("render", epilog="Example: forebay render run1/flow --out pictures")
def render(
    stream: StreamArgument,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Output directory. An existing movie is continued.")
    ],
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="Name under which the server keeps the position.")
    ] = "render",
    size: Annotated[
        str, typer.Option("--size", metavar="WxH", help="Size of a frame in pixels; even numbers.")
    ] = "960x720",
    frame_rate: Annotated[
        int, typer.Option("--frame-rate", min=1, max=120, help="Frames per second of the movie.")
    ] = 12,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="First line of each frame.")] = "",
    velocity: Annotated[
        str, typer.Option("--velocity", metavar="NAME", help="Variable (nz, ny, nx, 3) to draw.")
    ] = "velocity",
    solid: Annotated[
        str, typer.Option("--solid", metavar="NAME", help="Variable (nz, ny, nx), not 0 where solid.")
    ] = "solid",
    speed_max: Annotated[
        float | None,
        typer.Option(
            "--speed-max",
            metavar="SPEED",
            help="Upper end of the colour scale in all frames. Default: a round number above each frame's speeds.",
        ),
    ] = None,
    timeout_seconds: TimeoutOption = None,
    as_json: JsonOption = False,
) -> int:
    """Render every step of a flow to images and a movie that can be watched while it grows, until the stream ends.

    Steps that a restart of the producer takes back are removed from both and rendered again. Started again, it
    continues where it stopped.
    """
    options = _scene_options(size, title, speed_max)
    needs_packages("rendering", "viz", "vtkmodules", "PIL")
    from forebay.viz.recorder import Recorder

    messages = error_console()

    def say(text: str) -> None:
        messages.print(Text(text), soft_wrap=True)

    def notice(event: forebay.Notice) -> None:
        say(f"{stream} is {event.status}{': ' + event.text if event.text else ''}")

    rendered = 0
    try:
        with (
            forebay.open(stream, instance=chosen(), timeout=timeout_seconds) as source,
            Painter(options, on_retry=say) as painter,
            Recorder(out, painter, options, frame_rate=frame_rate, velocity=velocity, solid=solid) as recorder,
        ):
            with tells_interruption() as outcome:
                for step in source.follow(consumer, timeout=timeout_seconds, ack="manual", on_notice=notice):
                    with step:
                        if step.rewound:
                            say(f"{stream} was taken back to step {step.number}: its frames are rendered again")
                        recorder.record(step)
                        rendered += 1
            frames = recorder.frames
    except (PainterError, MovieError) as error:
        raise UnsupportedError(str(error), f"stream {stream}") from error
    if as_json:
        print_json(
            {"rendered": rendered, "frames": len(frames), "last": frames[-1] if frames else None, "out": str(out)}
        )
    else:
        text = f"{rendered} frames rendered; {out} has {len(frames)} and movie.mp4"
        console().print(Text(text), soft_wrap=True)
    return int(outcome.status)


def _scene_options(size: str, title: str, speed_max: float | None) -> SceneOptions:
    match = re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", size)
    if match is None:
        raise InvalidArgumentError(f"--size is WIDTHxHEIGHT in pixels, for example 960x720, not {size!r}")
    return SceneOptions(width=int(match[1]), height=int(match[2]), title=title, speed_max=speed_max)


if __name__ == "__main__":
    sys.exit(run(["render", *sys.argv[1:]]))
