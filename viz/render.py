# SPDX-License-Identifier: Apache-2.0
"""`forebay render`: a consumer that follows a stream and renders every step to image files and a growing movie."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

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
from forebay.cli.root import run
from forebay.errors import UnsupportedError
from forebay.viz.drawing_options import (
    LatestOption,
    QualityOption,
    RangeOption,
    SceneOption,
    SheetOption,
    SizeOption,
    chosen_scene,
    draws_latest_first,
)
from forebay.viz.movie import MovieError
from forebay.viz.painter import Painter, PainterError
from forebay.viz.progress import Progress, ProgressOption

__all__ = ["app", "render"]

app = typer.Typer(add_completion=False)


@app.command("render", epilog="Example: forebay render run1/flow --scene flow.toml --out pictures")
def render(
    stream: StreamArgument,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Output directory. An existing movie is continued.")
    ],
    scene_file: SceneOption = None,
    consumer: Annotated[
        str, typer.Option("--consumer", metavar="NAME", help="Name under which the server keeps the position.")
    ] = "render",
    size: SizeOption = "",
    ends: RangeOption = "",
    quality: QualityOption = None,
    latest: LatestOption = None,
    whole: Annotated[
        bool, typer.Option("--whole/--skip", help="Also draw the steps that were skipped; --skip: only the newest.")
    ] = True,
    frame_rate: Annotated[
        int, typer.Option("--frame-rate", min=1, max=120, help="Frames per second of the movie.")
    ] = 12,
    sheet: SheetOption = None,
    progress: ProgressOption = None,
    timeout_seconds: TimeoutOption = None,
    run_name: RunOption = "",
    wait_for_writer: WaitForWriterOption = False,
    on_unavailable: OnUnavailableOption = OnUnavailable.WAIT,
    as_json: JsonOption = False,
) -> int:
    """Render every step of a stream to images and a movie that can be watched while it grows, until the stream ends.

    DIR/latest.png is the newest picture. While a stream runs the newest step is drawn first, so that this picture is
    at most two drawing times old; skipped steps follow when there is time, and the movie has them in order.
    Steps that a restart of the producer takes back are removed and rendered again. Started again, it continues where
    it stopped. A scene is a TOML file (docs/consumers/view.md).
    """
    scene = chosen_scene(scene_file, size, ends, quality)
    needs_packages("rendering", "viz", "vtkmodules", "PIL")
    from forebay.viz.coming_steps import ComingSteps
    from forebay.viz.contact_sheet import ContactSheet
    from forebay.viz.recorder import Recorder

    messages = error_console()
    gone: list[str] = []

    def say(text: str) -> None:
        messages.print(Text(text), soft_wrap=True)

    rendered = 0
    try:
        with (
            opened_to_follow(stream, timeout_seconds, run_name, wait_for_writer, on_unavailable) as source,
            Painter(scene, on_retry=say) as painter,
            Recorder(
                out, painter, frame_rate=frame_rate, sheet=None if sheet is None else ContactSheet(sheet)
            ) as recorder,
            Progress(messages, progress) as shown,
        ):

            def withdraw(first: int) -> None:
                if any(number >= first for number in recorder.frames):
                    # The first time it may also be that the last run drew newer steps before those that it skipped.
                    what = f"{stream} was taken back to" if rendered else "continues with"
                    say(f"{what} step {first}: frames from there on are rendered again")
                recorder.withdraw(first)

            def pass_over(reason: str) -> None:
                gone.append(reason)
                recorder.pass_over(coming)

            with (
                tells_interruption() as outcome,
                ComingSteps(
                    source.follow(consumer, timeout=timeout_seconds, ack="manual", on_notice=say_notice),
                    latest=draws_latest_first(source, latest),
                    whole=whole,
                    on_withdrawn=withdraw,
                    on_gone=pass_over,
                ) as coming,
            ):
                while (step := coming.take()) is not None:
                    with step:
                        rendered += recorder.record(coming, step)
                    shown.drawn(step.number, coming.newest_known)
            frames = recorder.frames
    except (PainterError, MovieError) as error:
        raise UnsupportedError(str(error), f"stream {stream}") from error
    if gone:
        say(f"{len(gone)} steps could not be rendered, the first because: {gone[0]}")
    if as_json:
        print_json(
            {"rendered": rendered, "frames": len(frames), "last": frames[-1] if frames else None, "out": str(out)}
        )
    else:
        text = f"{rendered} frames rendered; {out} has {len(frames)} and movie.mp4"
        console().print(Text(text), soft_wrap=True)
    return int(outcome.status)


if __name__ == "__main__":
    sys.exit(run(["render", *sys.argv[1:]]))
