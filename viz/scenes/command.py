# SPDX-License-Identifier: Apache-2.0
"""`forebay view`: a scene of a stream as a picture, as a movie, or in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

import forebay
from forebay import Address, Step, Stream
from forebay.cli.chosen import chosen
from forebay.cli.following import TimeoutOption, needs_packages, tells_interruption
from forebay.cli.output import JsonOption, console, error_console, print_json
from forebay.errors import InvalidArgumentError, StepGoneError, StepNotFoundError, UnsupportedError
from forebay.viz.drawing_options import QualityOption, RangeOption, SceneOption, SizeOption, chosen_scene
from forebay.viz.scenes.description import Quality

if TYPE_CHECKING:
    from forebay.viz.painter import Painter

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command("view", epilog="Example: forebay view run1/flow --scene flow.toml --movie flow.mp4")
def view(
    stream: Annotated[
        str, typer.Argument(metavar="RES/STREAM[@STEP]", help="The stream, for example run1/flow, or one step of it.")
    ],
    scene_file: SceneOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="A picture of the step, or of the newest one: PNG, or JPEG as .jpg."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="With --out: replace the picture by the newest step until the stream ends.")
    ] = False,
    movie: Annotated[
        Path | None, typer.Option("--movie", metavar="FILE.mp4", help="A movie of all steps, until the stream ends.")
    ] = None,
    frame_rate: Annotated[int, typer.Option("--frame-rate", min=1, max=120, help="Of the movie.")] = 12,
    web: Annotated[bool, typer.Option("--web", help="Show it in a browser of this machine, and follow.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of --web; 0: any free one.")] = 0,
    size: SizeOption = "",
    ends: RangeOption = "",
    quality: QualityOption = None,
    timeout_seconds: TimeoutOption = None,
    as_json: JsonOption = False,
) -> int:
    """Draw a scene of a stream: as a picture, as a movie that can be watched while it grows, or in a browser.

    With --follow and --web the newest step is drawn, as a draft unless --quality says otherwise. A scene is a TOML file
    (docs/consumers/view.md).
    """
    if [out is not None, movie is not None, web].count(True) != 1:
        raise InvalidArgumentError("give one of --out FILE.png, --movie FILE.mp4 and --web")
    place = Address.parse(stream)
    if place.step is not None and (follow or out is None):
        raise InvalidArgumentError(f"{place} is one step: it can be drawn by --out alone")
    if follow and out is None:
        raise InvalidArgumentError("--follow goes with --out; --movie and --web follow by themselves")
    scene = chosen_scene(scene_file, size, ends, quality or (Quality.DRAFT if follow or web else None))
    needs_packages("viewing", "viz,web", "vtkmodules", "PIL", "matplotlib", *(["trame", "trame_rca"] if web else []))
    from forebay.viz.movie import MovieError
    from forebay.viz.painter import Painter, PainterError

    messages = error_console()
    drawn: list[int] = []
    with forebay.open(place.path, instance=chosen(), timeout=timeout_seconds) as source:
        if web:
            from forebay.viz.web.server import serve

            return serve(source, scene, port)
        try:
            with (
                tells_interruption() as outcome,
                Painter(scene, on_retry=lambda text: messages.print(Text(text), soft_wrap=True)) as painter,
            ):
                if movie is not None:
                    _draw_movie(source, painter, movie, frame_rate, timeout_seconds, drawn)
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

    follower = source.follow(timeout=timeout_seconds, start="latest", latest_only=True)
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
    frame_rate: int,
    timeout_seconds: float | None,
    drawn: list[int],
) -> None:
    """A movie of all steps that the stream has and gets, from the beginning."""
    from forebay.viz.movie import Movie

    with Movie(path, *painter.size, frame_rate=frame_rate) as movie:
        movie.rewind(0)
        for step in source.follow(timeout=timeout_seconds, start="oldest"):
            with step:
                if movie.last_step is not None and step.number <= movie.last_step:
                    movie.rewind(step.number)  # withdrawn by a restart of the producer
                    drawn[:] = [number for number in drawn if number < step.number]
                movie.append(step.number, painter.paint(step))
                drawn.append(step.number)
