# SPDX-License-Identifier: Apache-2.0
"""Pictures of a flow through a solid: right size, not blank, the same for the same step, and honest about bad input."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.errors import InvalidArgumentError
from forebay.viz.scenes.description import Quality, SceneDescription, SliceLayer, SurfaceLayer
from forebay.viz.scenes.picture import ScenePicture
from forebay.viz.scenes.scene_file import load_scene
from tests.support.swirling_flow import FLOW_SCENE, swirl, write_swirl_steps

Picture = NDArray[np.uint8]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> SceneDescription:
    path = tmp_path_factory.mktemp("scene") / "scene.toml"
    path.write_text(FLOW_SCENE)
    return load_scene(path)


def write(reservation: str, *steps: Mapping[str, Any], name: str = "flow", **options: Any) -> forebay.Stream:
    with forebay.open(f"{reservation}/{name}", mode="w") as stream:
        write_swirl_steps(stream, steps, **options)
    return forebay.open(f"{reservation}/{name}")


def draw(picture: ScenePicture, stream: forebay.Stream, number: int) -> Picture:
    with stream[number] as step:
        picture.show(step)
    return picture.render()


@pytest.mark.parametrize("quality", list(Quality))
@pytest.mark.parametrize("spheres", [True, False], ids=["spheres", "cells"])
def test_a_picture_shows_solid_and_flow(
    reservation: str, scene: SceneDescription, spheres: bool, quality: Quality
) -> None:
    stream = write(reservation, swirl(5), spheres=spheres)
    picture = draw(ScenePicture(dataclasses.replace(scene, quality=quality)), stream, 0)
    assert picture.shape == (240, 320, 3)
    assert picture.dtype == np.uint8
    red, blue = picture[..., 0].astype(int), picture[..., 2].astype(int)
    grey = (abs(red - blue) < 40) & (red > 70)
    warm = (red > 120) & (red > blue + 60)
    assert grey.mean() > 0.01, "no solid to be seen"
    assert warm.mean() > 0.005, "no fast fluid to be seen"


def test_the_same_step_gives_the_same_picture_whatever_came_before(reservation: str, scene: SceneDescription) -> None:
    stream = write(reservation, *(swirl(number) for number in range(9)))
    other = write(reservation, swirl(3), name="cells", spheres=False)
    picture = ScenePicture(scene)
    first = draw(picture, stream, 7)
    draw(picture, stream, 2)
    draw(picture, other, 0)
    assert np.array_equal(draw(picture, stream, 7), first)
    assert not np.array_equal(draw(picture, stream, 8), first)


def test_the_first_picture_beside_something_translucent_is_like_those_after_it(reservation: str) -> None:
    stream = write(reservation, swirl(5))
    description = SceneDescription(
        (SliceLayer("solid"), SurfaceLayer("solid", 0.5, opacity=0.5)), label="level", size=(640, 480)
    )
    picture = ScenePicture(description)
    first = draw(picture, stream, 0)
    assert np.array_equal(draw(picture, stream, 0), first)


def test_what_was_drawn_pins_no_old_step(reservation: str, scene: SceneDescription) -> None:
    stream = write(reservation, swirl(1), swirl(2))
    picture = ScenePicture(scene)
    draw(picture, stream, 0)
    draw(picture, stream, 1)
    assert next(iter(stream.steps())).pins == 0


def test_fluid_at_rest_is_drawn_without_streaks(reservation: str, scene: SceneDescription) -> None:
    picture = draw(ScenePicture(scene), write(reservation, swirl(0)), 0)
    assert ((picture[..., 0].astype(int) - picture[..., 2]) > 80).mean() < 0.02, "only the colour bar is warm"


def test_fields_that_are_not_numbers_are_drawn(reservation: str, scene: SceneDescription) -> None:
    step = swirl(4)
    step["velocity"][:] = np.nan
    holed = swirl(4)
    holed["velocity"][5, 6, 6] = np.nan
    stream = write(reservation, step, holed)
    picture = ScenePicture(scene)
    draw(picture, stream, 0)
    shown = draw(picture, stream, 1)
    assert ((shown[..., 0].astype(int) - shown[..., 2]) > 60).mean() > 0.005, "one hole hides the flow"


def color_bar(picture: Picture) -> Picture:
    """The lower left corner, with the bar, its title and its numbers."""
    return picture[190:, :130]


def test_a_colour_scale_that_was_given_stays(reservation: str, scene: SceneDescription) -> None:
    stream = write(reservation, swirl(1), swirl(40))
    free, fixed = ScenePicture(scene), ScenePicture(scene.in_range(0, 0.02))
    assert not np.array_equal(color_bar(draw(free, stream, 0)), color_bar(draw(free, stream, 1)))
    assert np.array_equal(color_bar(draw(fixed, stream, 0)), color_bar(draw(fixed, stream, 1)))


def test_units_of_the_stream_are_shown(reservation: str, scene: SceneDescription) -> None:
    plain = write(reservation, swirl(4), name="plain")
    named = write(reservation, swirl(4), name="named", velocity__units="m/s", spacing__units="mm", time__units="s")
    picture = ScenePicture(scene)
    without, shown = draw(picture, plain, 0), draw(picture, named, 0)
    assert not np.array_equal(color_bar(without), color_bar(shown)), "the speed's unit"
    assert not np.array_equal(without[:60], shown[:60]), "the time's unit"
    assert not np.array_equal(without[120:, 100:250], shown[120:, 100:250]), "the ruler's unit"


@pytest.mark.parametrize("way", [1.0, -1.0])
def test_the_arrow_points_along_the_flow(reservation: str, scene: SceneDescription, way: float) -> None:
    step = swirl(4)
    step["velocity"][:] = [0.0, 0.0, 0.01 * way]
    upper = draw(ScenePicture(scene), write(reservation, step, spheres=False), 0)[30:80].astype(int)
    white = (upper.min(axis=2) > 150) & (upper.max(axis=2) - upper.min(axis=2) < 30)
    _, columns = np.nonzero(white)
    # It lies above the end where the fluid comes in: z = 0 is on the right of the picture.
    assert (columns.mean() > 160) == (way > 0)


def test_camera_sways_from_step_to_step(reservation: str, scene: SceneDescription) -> None:
    stream = write(reservation, *(swirl(3) for _ in range(31)))
    still = ScenePicture(dataclasses.replace(scene, camera=dataclasses.replace(scene.camera, sway=0.0)))
    swaying = ScenePicture(scene)

    def moved(picture: ScenePicture) -> float:
        # The axes in their corner: nothing else there changes from step to step.
        first, last = (draw(picture, stream, number)[195:, 278:].astype(int) for number in (0, 30))
        return float(np.abs(last - first).mean())

    assert moved(swaying) > 3 * moved(still)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"velocity": np.zeros((20, 12, 12, 2), np.float32)}, r"needs vectors: \(z, y, x, 3\)"),
        ({"solid": np.zeros((20, 12, 12, 1), np.uint8)}, r"a solid is \(z, y, x\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    reservation: str, scene: SceneDescription, change: dict[str, Any], told: str
) -> None:
    stream = write(reservation, swirl(1) | change)
    with pytest.raises(InvalidArgumentError, match=told):
        draw(ScenePicture(scene), stream, 0)


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"spacing": np.array([1.0, 1.0, 2.0])}, "need cubes"),
        ({"sphere_centres": np.zeros(4)}, "three numbers each"),
        ({"cylinder_radius": "wide"}, "not numbers"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(
    reservation: str, scene: SceneDescription, attributes: dict[str, Any], told: str
) -> None:
    stream = write(reservation, swirl(1), **attributes)
    with pytest.raises(InvalidArgumentError, match=told):
        draw(ScenePicture(scene), stream, 0)


def test_scene_of_the_packed_cylinder_is_one(tmp_path: Path) -> None:
    path = Path(__file__).resolve().parents[2] / "examples/01_packed_cylinder/scene.toml"
    scene = load_scene(path)
    assert scene.variables == ["velocity", "solid"]
    assert scene.in_range(0.0, 0.5).layers[0].range == (0.0, 0.5)  # type: ignore[union-attr]
