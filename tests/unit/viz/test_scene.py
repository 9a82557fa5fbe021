# SPDX-License-Identifier: Apache-2.0
"""Pictures of single steps: right size, not blank, the same for the same step, and honest about bad input."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from forebay.errors import InvalidArgumentError
from forebay.viz.colors import speed_range
from forebay.viz.fields import FlowFields
from forebay.viz.scene import Scene
from forebay.viz.scene_options import SceneOptions
from tests.unit.viz.recorded_stream import swirling_step

OPTIONS = SceneOptions(width=320, height=240, title="swirl")


def fields_of(number: int, *, spheres: bool = True) -> FlowFields:
    step = swirling_step(number, spheres=spheres)
    return FlowFields.of_step(number, step.variables, step.attributes, float(step["time"]))


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene(OPTIONS)


@pytest.mark.parametrize("spheres", [True, False], ids=["spheres", "cells"])
def test_a_picture_shows_solid_and_flow(scene: Scene, spheres: bool) -> None:
    picture = scene.render(fields_of(5, spheres=spheres))
    assert picture.shape == (240, 320, 3)
    assert picture.dtype == np.uint8
    red, blue = picture[..., 0].astype(int), picture[..., 2].astype(int)
    grey = (abs(red - blue) < 40) & (red > 70)
    warm = (red > 120) & (red > blue + 60)
    assert grey.mean() > 0.01, "no solid to be seen"
    assert warm.mean() > 0.005, "no fast fluid to be seen"


def test_the_same_step_gives_the_same_picture_whatever_came_before(scene: Scene) -> None:
    first = scene.render(fields_of(7))
    scene.render(fields_of(2))
    scene.render(fields_of(3, spheres=False))
    assert np.array_equal(scene.render(fields_of(7)), first)
    assert not np.array_equal(scene.render(fields_of(8)), first)


def test_fluid_at_rest_is_drawn_without_streaks(scene: Scene) -> None:
    picture = scene.render(fields_of(0))
    assert ((picture[..., 0].astype(int) - picture[..., 2]) > 80).mean() < 0.02, "only the colour bar is warm"


def test_shapes_that_do_not_fit_are_refused() -> None:
    step = swirling_step(1)
    with pytest.raises(InvalidArgumentError, match="last axis of 3"):
        FlowFields.of_step(1, {"velocity": step["velocity"][..., :2], "solid": step["solid"]}, {})


@pytest.mark.parametrize(("width", "height"), [(321, 240), (320, 7), (0, 0)])
def test_sizes_that_no_movie_takes_are_refused(width: int, height: int) -> None:
    with pytest.raises(InvalidArgumentError, match="even width and height"):
        SceneOptions(width=width, height=height)


@pytest.mark.parametrize(("fastest", "top"), [(0.019, 0.02), (0.02, 0.02), (0.0201, 0.025), (9.7, 10.0), (0.0, 1.0)])
def test_colours_end_at_a_round_number(fastest: float, top: float) -> None:
    speed = np.full((2, 2, 2), fastest)
    assert speed_range(speed, np.zeros((2, 2, 2), np.uint8)) == pytest.approx(top)


@pytest.mark.parametrize("speed_max", [0.0, -1.0, float("inf"), float("nan")])
def test_a_colour_scale_that_does_not_end_above_0_is_refused(speed_max: float) -> None:
    with pytest.raises(InvalidArgumentError, match="end of the colour scale"):
        SceneOptions(speed_max=speed_max)


def color_bar(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The lower left corner, with the bar, its title and its numbers."""
    return picture[190:, :130]


def test_a_colour_scale_that_was_given_stays() -> None:
    slow, fast = fields_of(1), fields_of(40)
    free, fixed = Scene(OPTIONS), Scene(dataclasses.replace(OPTIONS, speed_max=0.02))
    assert not np.array_equal(color_bar(free.render(slow)), color_bar(free.render(fast)))
    assert np.array_equal(color_bar(fixed.render(slow)), color_bar(fixed.render(fast)))


def test_units_of_the_stream_are_shown(scene: Scene) -> None:
    step = swirling_step(4)
    units = {"velocity/units": "m/s", "spacing/units": "mm", "time/units": "s"}
    plain, named = (
        FlowFields.of_step(4, step.variables, attributes, float(step["time"]))
        for attributes in (step.attributes, {**step.attributes, **units})
    )
    assert (named.speed_units, named.length_units, named.time_units) == ("m/s", "mm", "s")
    without, shown = scene.render(plain), scene.render(named)
    assert not np.array_equal(color_bar(without), color_bar(shown)), "the speed's unit"
    assert not np.array_equal(without[:60], shown[:60]), "the time's unit"


@pytest.mark.parametrize("way", [1.0, -1.0])
def test_the_arrow_points_along_the_flow(scene: Scene, way: float) -> None:
    step = swirling_step(4, spheres=False)
    velocity = np.zeros_like(step["velocity"])
    velocity[..., 2] = 0.01 * way
    fields = FlowFields.of_step(4, {"velocity": velocity, "solid": step["solid"]}, step.attributes)
    upper = scene.render(fields)[30:80].astype(int)
    white = (upper.min(axis=2) > 150) & (upper.max(axis=2) - upper.min(axis=2) < 30)
    _, columns = np.nonzero(white)
    # It lies above the end where the fluid comes in: z = 0 is on the right of the picture.
    assert (columns.mean() > 160) == (way > 0)
