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
from forebay.cli.output import JsonOption, console, print_json
from forebay.errors import (
    InvalidArgumentError,
    StepNotFoundError,
    UnsupportedError,
)
from forebay.viz.grid import Grid
from forebay.viz.scenes.description import OutlineLayer, SceneDescription, SliceLayer, load_scene

if TYPE_CHECKING:
    from forebay.viz.scenes.picture import ScenePicture

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command("view", epilog="Example: forebay view run1/flow --scene flow.toml --movie flow.mp4")
def view(
    stream: Annotated[
        str, typer.Argument(metavar="RES/STREAM[@STEP]", help="The stream, for example run1/flow, or one step of it.")
    ],
    scene_file: Annotated[
        Path | None,
        typer.Option("--scene", metavar="FILE.toml", help="What to draw; default: a slice through the first field."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.png", help="A picture of the step, or of the newest one.")
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
    timeout_seconds: TimeoutOption = None,
    as_json: JsonOption = False,
) -> int:
    """Draw a scene of a stream: as a picture, as a movie that can be watched while it grows, or in a browser.

    A scene is a TOML file (docs/consumers/view.md).
    """
    if [out is not None, movie is not None, web].count(True) != 1:
        raise InvalidArgumentError("give one of --out FILE.png, --movie FILE.mp4 and --web")
    place = Address.parse(stream)
    if place.step is not None and (follow or out is None):
        raise InvalidArgumentError(f"{place} is one step: it can be drawn by --out alone")
    if follow and out is None:
        raise InvalidArgumentError("--follow goes with --out; --movie and --web follow by themselves")
    needs_packages("viewing", "viz,web", "vtkmodules", "PIL", "matplotlib", *(["trame", "trame_rca"] if web else []))
    scene = None if scene_file is None else load_scene(scene_file)
    with forebay.open(place.path, instance=chosen(), timeout=timeout_seconds) as source:
        if web:
            from forebay.viz.web.server import serve

            with _chosen_step(source, place) as step:
                shown = scene or default_scene(step)
            return serve(source, shown, port)
        drawn: list[int] = []
        with tells_interruption() as outcome:
            if movie is not None:
                _draw_movie(source, scene, movie, frame_rate, timeout_seconds, drawn)
            elif follow:
                assert out is not None
                _draw_newest(source, scene, out, timeout_seconds, drawn)
            else:
                assert out is not None
                with _chosen_step(source, place) as step:
                    _draw_one(step, _first_picture(step, scene), out)
                    drawn.append(step.number)
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


def default_scene(step: Step) -> SceneDescription:
    """A slice through the first field of a step, in the edges of its grid."""
    name = next(iter(Grid.of_step(step).fields))
    return SceneDescription((SliceLayer(name), OutlineLayer()), title=str(step.address).partition("@")[0])


def _first_picture(step: Step, scene: SceneDescription | None) -> ScenePicture:
    from forebay.viz.scenes.picture import ScenePicture

    return ScenePicture(scene or default_scene(step))


def _draw_one(step: Step, picture: ScenePicture, out: Path) -> None:
    from PIL import Image

    picture.show(step)
    temporary = out.with_name(f".{out.name}.part")
    try:
        Image.fromarray(picture.render()).save(temporary, "png", compress_level=3)
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _draw_newest(
    source: Stream, scene: SceneDescription | None, out: Path, timeout_seconds: float | None, drawn: list[int]
) -> None:
    """Live means live: a step that is not the newest any more when the drawing comes to it is skipped."""
    picture: ScenePicture | None = None
    for step in source.follow(timeout=timeout_seconds, start="latest", latest_only=True):
        with step:
            picture = picture or _first_picture(step, scene)
            _draw_one(step, picture, out)
            drawn.append(step.number)


def _draw_movie(
    source: Stream,
    scene: SceneDescription | None,
    path: Path,
    frame_rate: int,
    timeout_seconds: float | None,
    drawn: list[int],
) -> None:
    """A movie of all steps that the stream has and gets, from the beginning."""
    from forebay.viz.movie import Movie, MovieError

    picture: ScenePicture | None = None
    movie: Movie | None = None
    try:
        for step in source.follow(timeout=timeout_seconds, start="oldest"):
            with step:
                if picture is None or movie is None:
                    picture = _first_picture(step, scene)
                    movie = Movie(path, *picture.size, frame_rate=frame_rate)
                    movie.rewind(0)
                if movie.last_step is not None and step.number <= movie.last_step:
                    movie.rewind(step.number)  # withdrawn by a restart of the producer
                    drawn[:] = [number for number in drawn if number < step.number]
                picture.show(step)
                movie.append(step.number, picture.render())
                drawn.append(step.number)
    except MovieError as error:
        raise UnsupportedError(str(error), f"stream {source.address}") from error
    finally:
        if movie is not None:
            movie.close()
