# SPDX-License-Identifier: Apache-2.0
"""`forebay view`: a scene of a stream as a picture, as a movie, or in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

import forebay
from forebay import Address, Step, Stream
from forebay.cli.arguments import stream_names
from forebay.cli.chosen import chosen
from forebay.cli.following import (
    OnUnavailable,
    OnUnavailableOption,
    RunOption,
    TimeoutOption,
    WaitForWriterOption,
    needs_packages,
    reading_options,
    say_notice,
    tells_interruption,
)
from forebay.cli.output import JsonOption, console, error_console, print_json
from forebay.ended_run import tell_ended_run
from forebay.errors import InvalidArgumentError, StepGoneError, StepNotFoundError, UnsupportedError
from forebay.files.by_descriptor import found_inner
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
from forebay.viz.progress import Progress, ProgressOption
from forebay.viz.scenes.description import Quality
from forebay.withdrawal import was_withdrawn

if TYPE_CHECKING:
    from forebay.viz.painter import Painter

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command("view", epilog="Example: forebay view run1/flow --scene flow.toml --movie flow.mp4")
def view(
    stream: Annotated[
        str,
        typer.Argument(
            metavar="RES/STREAM[@STEP]",
            help="The stream, for example run1/flow, or one step of it.",
            autocompletion=stream_names,
        ),
    ],
    scene_file: SceneOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="A picture of the step, or of the newest one: PNG, or JPEG as .jpg."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="With --out: replace the picture by the newest step until the stream ends. --movie does so.",
        ),
    ] = False,
    movie: Annotated[
        Path | None, typer.Option("--movie", metavar="FILE.mp4", help="A movie of all steps, until the stream ends.")
    ] = None,
    frame_rate: Annotated[int, typer.Option("--frame-rate", min=1, max=120, help="Of the movie.")] = 12,
    frames: Annotated[
        Path | None,
        typer.Option(
            "--frames",
            metavar="DIR",
            help="With --movie: keep DIR/000017.png for each step, and DIR/latest.png. Earlier frames are replaced.",
        ),
    ] = None,
    latest: LatestOption = None,
    sheet: SheetOption = None,
    progress: ProgressOption = None,
    web: Annotated[bool, typer.Option("--web", help="Show it in a browser of this machine, and follow.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of --web; 0: any free one.")] = 0,
    size: SizeOption = "",
    ends: RangeOption = "",
    quality: QualityOption = None,
    timeout_seconds: TimeoutOption = None,
    run_name: RunOption = "",
    wait_for_writer: WaitForWriterOption = False,
    on_unavailable: OnUnavailableOption = OnUnavailable.WAIT,
    as_json: JsonOption = False,
) -> int:
    """Draw a scene of a stream: as a picture, as a movie that can be watched while it grows, or in a browser.

    With --out --follow and --web the newest step is drawn, as a draft unless --quality says otherwise. A movie has all
    steps in order; with --frames the newest step is drawn first while the stream runs, and skipped ones follow. A scene
    is a TOML file (docs/consumers/view.md).
    """
    if [out is not None, movie is not None, web].count(True) != 1:
        raise InvalidArgumentError("give one of --out FILE.png, --movie FILE.mp4 and --web")
    place = Address.parse(stream)
    if place.step is not None and (follow or out is None):
        raise InvalidArgumentError(f"{place} is one step: it can be drawn by --out alone")
    if follow and web:
        raise InvalidArgumentError("--follow goes with --out and --movie; --web follows by itself")
    if movie is None and (frames is not None or sheet is not None):
        raise InvalidArgumentError("--frames and --sheet go with --movie")
    if frames is None and latest is not None:
        raise InvalidArgumentError("--latest and --in-order go with --frames: DIR/latest.png is the newest picture")
    scene = chosen_scene(scene_file, size, ends, quality or (Quality.DRAFT if web or (follow and out) else None))
    needs_packages("viewing", "viz,web", "vtkmodules", "PIL", "matplotlib", *(["trame", "trame_rca"] if web else []))
    from forebay.viz.movie import MovieError
    from forebay.viz.painter import Painter, PainterError

    messages = error_console()
    drawn: list[int] = []
    opening = reading_options(run_name, wait_for_writer, on_unavailable)
    with forebay.open(place.path, instance=chosen(), timeout=timeout_seconds, **opening) as source:
        if web or follow or movie is not None:
            tell_ended_run(source, opening)
        if web:
            from forebay.viz.web.server import serve

            return serve(source, scene, port, say_notice)
        try:
            with (
                tells_interruption() as outcome,
                Painter(scene, on_retry=lambda text: messages.print(Text(text), soft_wrap=True)) as painter,
                Progress(messages, progress) as shown,
            ):
                if movie is not None and frames is not None:
                    first = draws_latest_first(source, latest)
                    _keep_frames(
                        source, painter, movie, frames, sheet, frame_rate, first, timeout_seconds, shown, drawn
                    )
                elif movie is not None:
                    _draw_movie(source, painter, movie, sheet, frame_rate, timeout_seconds, shown, drawn)
                elif follow:
                    assert out is not None
                    _draw_newest(source, painter, out, timeout_seconds, drawn)
                else:
                    with _chosen_step(source, place) as step:
                        painter.paint(step, out)
                        drawn.append(step.number)
        except (PainterError, MovieError) as error:
            raise UnsupportedError(str(error), f"stream {place.path}") from error
    target = str(movie or out)
    if as_json:
        print_json({"drawn": len(drawn), "last": drawn[-1] if drawn else None, "out": target})
    else:
        console().print(Text(f"{len(drawn)} steps drawn; {target}"), soft_wrap=True)
    return int(outcome.status)


@contextmanager
def _chosen_step(source: Stream, place: Address) -> Iterator[Step]:
    """The step that the address names, or the newest."""
    number = place.step
    if number is None:
        number = source.info.committed
    if number is None:
        raise StepNotFoundError("the stream has no steps yet: try again when one has committed", f"stream {place.path}")
    with source[number] as step:
        yield step


def _draw_newest(source: Stream, painter: Painter, out: Path, timeout_seconds: float | None, drawn: list[int]) -> None:
    """Live means live: a step that is not the newest any more when the drawing comes to it is skipped."""
    from forebay.viz.coming_steps import ComingSteps

    follower = source.follow(on_notice=say_notice, timeout=timeout_seconds, start="latest", latest_only=True)
    with ComingSteps(follower, latest=True, whole=False) as coming:
        while (step := coming.take()) is not None:
            with step:
                try:
                    painter.paint(step, out)
                except (StepGoneError, StepNotFoundError):
                    pass  # withdrawn or dropped: the next one is newer
                else:
                    drawn.append(step.number)
            coming.done(step)


def _draw_movie(
    source: Stream,
    painter: Painter,
    path: Path,
    sheet_path: Path | None,
    frame_rate: int,
    timeout_seconds: float | None,
    shown: Progress,
    drawn: list[int],
) -> None:
    """A movie of all steps that the stream has and gets, from the beginning."""
    from forebay.viz.contact_sheet import ContactSheet
    from forebay.viz.movie import Movie

    with (
        Movie(path, *painter.size, frame_rate=frame_rate) as movie,
        nullcontext() if sheet_path is None else ContactSheet(sheet_path) as sheet,
    ):
        movie.rewind(0)
        for step in source.follow(on_notice=say_notice, timeout=timeout_seconds, start="oldest"):
            with step:
                if movie.last_step is not None and step.number <= movie.last_step:
                    movie.rewind(step.number)  # withdrawn by a restart of the producer
                    drawn[:] = [number for number in drawn if number < step.number]
                    if sheet is not None:
                        sheet.withdraw(step.number)
                try:
                    picture = painter.paint(step)
                except (StepGoneError, StepNotFoundError):
                    if was_withdrawn(source, step.number, step.epoch):
                        continue  # another one takes its place
                    raise
                movie.append(step.number, picture)
                drawn.append(step.number)
            if sheet is not None:
                sheet.add(step.number, picture)
            shown.drawn(step.number)


def _keep_frames(
    source: Stream,
    painter: Painter,
    movie: Path,
    frames: Path,
    sheet_path: Path | None,
    frame_rate: int,
    latest: bool,
    timeout_seconds: float | None,
    shown: Progress,
    drawn: list[int],
) -> None:
    """A movie of all steps from frames that stay; the newest step may be drawn before those that were skipped."""
    from forebay.viz.coming_steps import ComingSteps
    from forebay.viz.contact_sheet import ContactSheet
    from forebay.viz.recorder import Recorder

    sheet = None if sheet_path is None else ContactSheet(sheet_path)
    if frames.exists():
        with found_inner(frames) as folder:
            for earlier in folder.glob("*.png"):
                if earlier.stem.isdecimal():
                    earlier.unlink()
    with Recorder(frames, painter, frame_rate=frame_rate, frames=frames, movie=movie, sheet=sheet) as recorder:
        recorder.withdraw(0)
        try:
            with ComingSteps(
                source.follow(on_notice=say_notice, timeout=timeout_seconds, start="oldest"),
                latest=latest,
                on_withdrawn=recorder.withdraw,
                on_gone=lambda _: recorder.pass_over(coming),
            ) as coming:
                while (step := coming.take()) is not None:
                    with step:
                        recorder.record(coming, step)
                    shown.drawn(step.number, coming.newest_known)
        finally:
            drawn[:] = recorder.frames
