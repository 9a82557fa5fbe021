# SPDX-License-Identifier: Apache-2.0
"""Scenes: what a file may say, and what the pictures and movies of a stream show."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import forebay
from forebay.viz.fragments import walk_file
from forebay.viz.scenes.description import Camera, CameraStop, SliceLayer, SurfaceLayer
from forebay.viz.scenes.scene_file import load_scene
from forebay.viz.scenes.step_fields import StepFields
from tests.support.time_limits import seconds
from tests.viz.conftest import write_flow

SCENE = """
title = "A bump"
size = [320, 240]

[camera]
direction = [0.0, 0.0, 1.0]
up = [0.0, 1.0, 0.0]

[[layer]]
kind = "slice"
variable = "T"
axis = "z"
position = 0.6
range = [0, 1]
"""


def view(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forebay", "view", *arguments, "--timeout", "60"]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds(110), check=False)


def scene_file(folder: Path, text: str = SCENE) -> str:
    path = folder / "scene.toml"
    path.write_text(text)
    return str(path)


def brightest_column(path: Path) -> float:
    """Where the middle of the picture's yellow (the upper end of viridis) is, from 0 to 1."""
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    pixels = pixels[: int(0.85 * len(pixels))]  # without the colour bar
    yellow = (pixels[..., 0] > 180) & (pixels[..., 1] > 180) & (pixels[..., 2] < 120)
    assert yellow.any()
    return float(np.nonzero(yellow)[1].mean() / pixels.shape[1])


def test_picture_shows_the_step_that_is_named(reservation: str, tmp_path: Path) -> None:
    write_flow(f"{reservation}/flow", 0, 9)
    places = []
    for number in (2, 8):
        out = tmp_path / f"{number}.png"
        done = view(f"{reservation}/flow@{number}", "--scene", scene_file(tmp_path), "--out", str(out), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"drawn": 1, "last": number, "out": str(out)}
        assert Image.open(out).size == (320, 240)
        places.append(brightest_column(out))
    # The bump moves to larger x.
    assert places[1] > places[0] + 0.2


def test_newest_step_is_drawn_without_a_scene(flow: str, tmp_path: Path) -> None:
    done = view(flow, "--out", str(tmp_path / "p.png"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["last"] == 3
    assert len(np.unique(np.asarray(Image.open(tmp_path / "p.png")).reshape(-1, 3), axis=0)) > 50


def test_surface_and_magnitude_are_drawn(flow: str, tmp_path: Path) -> None:
    text = """
    [[layer]]
    kind = "surface"
    variable = "velocity"
    value = 1.5
    color = [1.0, 0.0, 0.0]
    [[layer]]
    kind = "outline"
    """
    done = view(flow, "--scene", scene_file(tmp_path, text), "--out", str(tmp_path / "p.png"))
    assert done.returncode == 0, done.stderr
    pixels = np.asarray(Image.open(tmp_path / "p.png").convert("RGB")).astype(int)
    red = (pixels[..., 0] > 2 * pixels[..., 1]) & (pixels[..., 0] > 60)
    assert 0.001 < red.mean() < 0.5


def write_swirl(path: str) -> None:
    """A flow around the z axis that is faster outside, and particles on one side, of which the last is not a number."""
    z, y, x = np.meshgrid(*(np.arange(-7.5, 8.0),) * 3, indexing="ij")
    with forebay.open(path, mode="w") as stream, stream.step() as step:
        step["u"] = np.stack([-y, x, 0 * z], axis=-1)
        step["x"] = np.stack([x + 7.5, 0 * y, 0 * z], axis=-1).astype(np.float32)
        places = np.random.default_rng(1).random((200, 3)) * [4.0, 16.0, 16.0]
        places[-1] = np.nan
        step["places"] = places
        step["charge"] = np.linspace(0.0, 1.0, 200)


def drawn_pixels(path: str, folder: Path, layers: str, *, camera: str = "") -> np.ndarray:
    """What is drawn above the colour bar, without the caption: an array of bool of (height, width)."""
    looking = camera or "direction = [0.0, 0.0, 1.0]\nup = [0.0, 1.0, 0.0]"
    text = f"size = [320, 240]\nbackground = [0, 0, 0]\n[camera]\n{looking}\n{layers}"
    done = view(path, "--scene", scene_file(folder, text), "--out", str(folder / "p.png"))
    assert done.returncode == 0, done.stderr
    pixels = np.asarray(Image.open(folder / "p.png").convert("RGB")).astype(int)
    shown: np.ndarray = pixels[int(0.12 * len(pixels)) : int(0.85 * len(pixels))].max(axis=2) > 40
    return shown


def test_streamlines_follow_the_flow(reservation: str, tmp_path: Path) -> None:
    write_swirl(f"{reservation}/swirl")
    layer = '[[layer]]\nkind = "streamlines"\nvariable = "{}"\naxis = "x"\nposition = 0.5\nseeds = 16\n'
    around = drawn_pixels(f"{reservation}/swirl", tmp_path, layer.format("u"))
    along = drawn_pixels(f"{reservation}/swirl", tmp_path, layer.format("x"))
    assert along.any()
    # Circles that begin at the middle plane close themselves; straight lines fill only the rows of their seeds.
    assert around.any(axis=1).sum() > 1.5 * along.any(axis=1).sum()


def test_glyphs_are_longer_where_the_flow_is_faster(reservation: str, tmp_path: Path) -> None:
    write_swirl(f"{reservation}/swirl")
    layer = '[[layer]]\nkind = "glyphs"\nvariable = "x"\nevery = 4\n'
    shown = drawn_pixels(f"{reservation}/swirl", tmp_path, layer)
    columns = np.nonzero(shown)[1]
    middle = (columns.min() + columns.max()) / 2
    assert (columns > middle).sum() > 1.5 * (columns < middle).sum()


def test_volume_shows_more_where_values_are_larger(reservation: str, tmp_path: Path) -> None:
    write_swirl(f"{reservation}/swirl")
    layer = '[[layer]]\nkind = "volume"\nvariable = "x"\ncolors = "gray"\nopacity = [0.0, 1.0]\n'
    shown = drawn_pixels(f"{reservation}/swirl", tmp_path, layer)
    columns = np.nonzero(shown)[1]
    assert columns.size > 500
    assert columns.mean() > 0.52 * shown.shape[1]


def test_points_alone_need_no_grid(reservation: str, tmp_path: Path) -> None:
    places = np.zeros((50, 3))
    places[:, 0] = np.arange(50)
    with forebay.open(f"{reservation}/beads", mode="w") as stream, stream.step() as step:
        step["places"] = places
    shown = drawn_pixels(f"{reservation}/beads", tmp_path, '[[layer]]\nkind = "points"\npositions = "places"\n')
    rows, columns = np.nonzero(shown)
    assert np.ptp(rows) < 12  # one line
    assert np.ptp(columns) > 150


def test_points_lie_in_their_grid(reservation: str, tmp_path: Path) -> None:
    write_swirl(f"{reservation}/swirl")
    layers = '[[layer]]\nkind = "points"\npositions = "places"\nvariable = "charge"\n[[layer]]\nkind = "slice"\n'
    layers += 'variable = "u"\ncolors = "gray"\nrange = [1000, 2000]\n'  # black
    columns = np.nonzero(drawn_pixels(f"{reservation}/swirl", tmp_path, layers))[1]
    assert columns.size > 100
    assert columns.mean() < 0.45 * 320


def test_a_species_of_openpmd_is_drawn_at_its_positions(reservation: str, tmp_path: Path) -> None:
    """A row along x whose offsets put the second half above the first, and whose momentum grows."""
    base = "/data/100/particles/electrons"
    with forebay.open(f"{reservation}/plasma", mode="w") as stream, stream.step() as step:
        step[f"{base}/position/x"] = np.arange(40, dtype=np.float32)
        step[f"{base}/position/y"] = np.zeros(40, dtype=np.float32)
        step[f"{base}/positionOffset/y"] = np.repeat([0, 10], 20)
        step[f"{base}/momentum/x"] = np.full(40, 3.0)
        step[f"{base}/momentum/y"] = np.repeat([0.0, 4.0], 20)
        for name, unit in (("position/x", 0.5), ("position/y", 0.5), ("positionOffset/y", 1.0)):
            step.attributes[f"{base}/{name}/unitSI"] = unit
        step.attributes["/data/100/time"], step.attributes["/data/100/timeUnitSI"] = 3.0, 0.5
        step.attributes[f"{base}/charge/value"] = -1.0
        step.attributes[f"{base}/charge/shape"] = np.array([40], np.uint64)
    layer = '[[layer]]\nkind = "points"\npositions = "{}/position"\n'
    shown = drawn_pixels(f"{reservation}/plasma", tmp_path, layer.format("electrons"))
    left, right = (np.nonzero(half)[0] for half in (shown[:, :155], shown[:, 165:]))
    assert np.ptp(left) < 12
    assert np.ptp(right) < 12
    # 20 wide and 10 high: the camera shows as many pixels of each.
    width = np.ptp(np.nonzero(shown)[1])
    assert left.mean() - right.mean() == pytest.approx(width * 10 / 19.5, rel=0.1)
    same = drawn_pixels(f"{reservation}/plasma", tmp_path, layer.format(base))
    np.testing.assert_array_equal(same, shown)
    # Lengths are 3 and 5: with this range the first half is black, which is the background.
    colored = layer.format("electrons") + 'variable = "electrons/momentum"\ncolors = "gray"\nrange = [3, 5]\n'
    np.testing.assert_array_equal(drawn_pixels(f"{reservation}/plasma", tmp_path, colored)[:, 165:], shown[:, 165:])
    assert not drawn_pixels(f"{reservation}/plasma", tmp_path, colored)[:, :155].any()
    with forebay.open(f"{reservation}/plasma") as reader:
        scene = load_scene(Path(scene_file(tmp_path, layer.format("electrons") + 'variable = "electrons/charge"\n')))
        fields = StepFields(reader[0], scene)
        assert fields.time == 1.5
        np.testing.assert_array_equal(fields.particles("electrons/charge"), np.full(40, -1.0))
        np.testing.assert_array_equal(
            fields.particles("electrons/position")[[1, 21]], [[0.5, 0.0, 0.0], [10.5, 10.0, 0.0]]
        )
    for variable, told in (("momentum", "by a record of its species"), ("electrons/spin", "has no 'spin'")):
        done = view(
            f"{reservation}/plasma",
            "--scene",
            scene_file(tmp_path, layer.format("electrons") + f'variable = "{variable}"\n'),
            "--out",
            str(tmp_path / "p.png"),
        )
        assert done.returncode == 1
        assert told in done.stderr


@pytest.mark.parametrize(
    ("layer", "told"),
    [
        ('kind = "streamlines"\nvariable = "charge"', "charge cannot be published|no variable has the shape"),
        ('kind = "glyphs"\nvariable = "T"', "this layer needs vectors"),
        ('kind = "points"\npositions = "nowhere"', "the step has no variable nowhere"),
        ('kind = "points"\npositions = "charge"', r"positions of points are \(particles, 3\)"),
        ('kind = "points"\npositions = "places"\nvariable = "T"', "colours 200 points"),
    ],
)
def test_variable_of_another_shape_is_named(reservation: str, tmp_path: Path, layer: str, told: str) -> None:
    write_swirl(f"{reservation}/swirl")
    with forebay.open(f"{reservation}/swirl", mode="a") as stream, stream.step() as step:
        step["T"] = np.zeros((16, 16, 16))
        step["charge"] = np.zeros(200)
        step["places"] = np.zeros((200, 3))
    done = view(
        f"{reservation}/swirl",
        "--scene",
        scene_file(tmp_path, f"[[layer]]\n{layer}\n"),
        "--out",
        str(tmp_path / "p.png"),
    )
    assert done.returncode == 1
    assert re.search(told, done.stderr), done.stderr
    assert f"{reservation}/swirl@1" in done.stderr


def test_movie_has_all_steps(flow: str, tmp_path: Path) -> None:
    import imageio_ffmpeg

    movie = tmp_path / "flow.mp4"
    done = view(flow, "--scene", scene_file(tmp_path), "--movie", str(movie), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"drawn": 4, "last": 3, "out": str(movie)}
    frames = imageio_ffmpeg.read_frames(str(movie))
    facts = next(frames)
    assert facts["size"] == (320, 240)
    assert sum(1 for _ in frames) == 4


def test_field_without_numbers_is_drawn_as_empty(reservation: str, tmp_path: Path) -> None:
    with forebay.open(f"{reservation}/nan", mode="w") as stream, stream.step() as step:
        step["T"] = np.full((4, 4, 4), np.nan)
    text = '[[layer]]\nkind = "slice"\nvariable = "T"\n[[layer]]\nkind = "surface"\nvariable = "T"\nvalue = 1\n'
    done = view(f"{reservation}/nan", "--scene", scene_file(tmp_path, text), "--out", str(tmp_path / "p.png"))
    assert done.returncode == 0, done.stderr


def test_missing_variable_names_the_step(flow: str, tmp_path: Path) -> None:
    text = '[[layer]]\nkind = "slice"\nvariable = "pressure"\n'
    done = view(flow, "--scene", scene_file(tmp_path, text), "--out", str(tmp_path / "p.png"))
    assert done.returncode == 1
    assert "has no variable pressure" in done.stderr
    assert f"{flow}@3" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("title = 1\n[[layer]]\nkind = 'outline'", "title is a text"),
        ("", r"at least one table \[\[layer\]\]"),
        (
            "[[layer]]\nkind = 'cloud'",
            r"kind is one of slice, surface, volume, .*, ruler, not 'cloud'",
        ),
        ("[[layer]]\nkind = 'slice'", r"layer 1 \(slice\) needs variable"),
        ("[[layer]]\nkind = 'slice'\nvariable = 'T'\ncolour = 'red'", "has no 'colour'; known are variable, axis"),
        ("[[layer]]\nkind = 'slice'\nvariable = 'T'\naxis = 'w'", "axis is x, y or z"),
        ("[[layer]]\nkind = 'slice'\nvariable = 'T'\nposition = 1.5", "position is from 0 to 1"),
        ("[[layer]]\nkind = 'slice'\nvariable = 'T'\nrange = [1, 1]", "range is a smaller and a larger"),
        ("[[layer]]\nkind = 'surface'\nvariable = 'T'\nvalue = nan", "value is a number"),
        ("[[layer]]\nkind = 'volume'\nvariable = 'T'\nopacity = [0.0, 2.0]", "opacity is two numbers from 0 to 1"),
        ("[[layer]]\nkind = 'streamlines'\nvariable = 'u'\nseeds = 1.5", "seeds is a whole number"),
        ("[[layer]]\nkind = 'glyphs'\nvariable = 'u'\nevery = 0", "every is at least 1"),
        ("[[layer]]\nkind = 'points'\nvariable = 'q'", r"layer 1 \(points\) needs positions"),
        ("[[layer]]\nkind = 'points'\npositions = 'p'\nsize = 0", "size is above 0"),
        ("size = [321, 200]\n[[layer]]\nkind = 'outline'", "even width and height"),
        ("[camera]\ndirection = [0, 0]\n[[layer]]\nkind = 'outline'", "direction is 3 numbers"),
        ("[[camera.path]]\nstep = 0\n[[layer]]\nkind = 'outline'", r"\[\[camera.path\]\] 1 needs direction"),
        (
            "[[camera.path]]\nstep = 5\ndirection = [1, 0, 0]\n[[camera.path]]\nstep = 5\ndirection = [0, 1, 0]\n"
            "[[layer]]\nkind = 'outline'",
            "grow, but 5 comes after 5",
        ),
        (
            "[[camera.path]]\nstep = 0\ndirection = [1, 0, 0]\n[[camera.path]]\nstep = 5\ndirection = [-2, 0, 0]\n"
            "[[layer]]\nkind = 'outline'",
            "opposite to the one before",
        ),
        ("quality = 'best'\n[[layer]]\nkind = 'outline'", "quality is draft or full"),
        ("axes = 1\n[[layer]]\nkind = 'outline'", "axes is true or false"),
        ("[[layer]]\nkind = 'cutaway'\nvariable = 'u'", r"layer 1 \(cutaway\) needs solid"),
        ("camera = 1\n[[layer]]\nkind = 'outline'", r"\[camera\] is a table"),
        ("title = ", "cannot be read"),
    ],
)
def test_bad_scene_names_the_key_and_what_is_known(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match=told):
        load_scene(Path(scene_file(tmp_path, text)))


def test_scene_is_what_the_file_says(tmp_path: Path) -> None:
    scene = load_scene(Path(scene_file(tmp_path, SCENE + '[[layer]]\nkind = "surface"\nvariable = "p"\nvalue = 2\n')))
    assert scene.layers == (SliceLayer("T", position=0.6, range=(0.0, 1.0)), SurfaceLayer("p", 2.0))
    assert scene.variables == ["T", "p"]
    assert scene.size == (320, 240)
    with pytest.raises(forebay.InvalidArgumentError, match=r"none\.toml"):
        load_scene(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--size", "321x240"), "even width and height"),
        (("--size", "wide"), "--size is WIDTHxHEIGHT"),
        (("--range", "1:1"), "--range is a smaller and a larger number"),
        (("--range", "low"), "--range is a smaller and a larger number"),
    ],
)
def test_options_that_no_picture_has_are_refused(
    flow: str, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    done = view(flow, "--out", str(tmp_path / "p.png"), *options)
    assert done.returncode == 1
    assert told in done.stderr


def test_options_replace_what_the_scene_says(flow: str, tmp_path: Path) -> None:
    out = tmp_path / "p.jpg"
    done = view(flow, "--scene", scene_file(tmp_path), "--out", str(out), "--size", "200x100", "--range", "0:100")
    assert done.returncode == 0, done.stderr
    with Image.open(out) as image:
        assert image.format == "JPEG"
        assert image.size == (200, 100)
        pixels = np.asarray(image.convert("RGB")).astype(int)[:85]
    # All values are at the lower end of viridis now.
    assert not ((pixels[..., 0] > 180) & (pixels[..., 2] < 120)).any()


@pytest.mark.parametrize("follow", [True, False])
def test_live_picture_is_a_draft_of_the_newest_step(flow: str, tmp_path: Path, follow: bool) -> None:
    out = tmp_path / "now.png"
    done = view(flow, "--scene", scene_file(tmp_path), "--out", str(out), "--json", *(["--follow"] if follow else []))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"drawn": 1, "last": 3, "out": str(out)}
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".toml"] == ["now.png"]


def test_options_that_do_not_go_together_are_refused(flow: str, tmp_path: Path) -> None:
    assert "give one of" in view(flow).stderr
    assert "is one step" in view(f"{flow}@1", "--movie", str(tmp_path / "m.mp4")).stderr
    assert "--follow goes with --out and --movie" in view(flow, "--web", "--follow").stderr
    assert "go with --movie" in view(flow, "--out", str(tmp_path / "p.png"), "--sheet", str(tmp_path / "s.png")).stderr
    assert "go with --frames" in view(flow, "--movie", str(tmp_path / "m.mp4"), "--latest").stderr


@pytest.mark.timeout(240)
@pytest.mark.parametrize("order", ["--latest", "--in-order"])
def test_movie_with_frames_has_all_steps_and_a_contact_sheet(reservation: str, tmp_path: Path, order: str) -> None:
    address, movie, frames, sheet = (
        f"{reservation}/flow",
        tmp_path / "flow.mp4",
        tmp_path / "frames",
        tmp_path / "sheet.png",
    )
    command = [sys.executable, "-m", "forebay", "view", address, "--scene", scene_file(tmp_path), "--timeout", "60"]
    command += ["--movie", str(movie), "--frames", str(frames), "--sheet", str(sheet), "--follow", order, "--progress"]
    frames.mkdir()
    (frames / "000099.png").write_bytes(b"of an earlier stream")
    drawing = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    write_flow(address, 0, 9, rendezvous_readers=1)
    assert drawing.stderr is not None
    told = drawing.stderr.read()
    assert drawing.wait(60) == 0, told
    assert re.search(r"^1 drawn, the last one is step \d", told, re.MULTILINE), told
    assert sorted(path.name for path in frames.glob("0*")) == [f"{number:06d}.png" for number in range(9)]
    assert (frames / "latest.png").resolve() == frames / "000008.png"
    with movie.open("rb") as file:
        assert [fragment.number - 1 for fragment in walk_file(file)[1]] == list(range(9))
    with Image.open(sheet) as image:
        assert image.size == (5 * 240, 2 * (180 + 14))


def test_nothing_to_see_is_drawn_as_nothing(reservation: str, tmp_path: Path) -> None:
    with forebay.open(f"{reservation}/empty", mode="w") as stream, stream.step() as step:
        step["T"] = np.zeros((4, 4, 4))
        step["u"] = np.zeros((4, 4, 4, 3))
        step["q"] = np.zeros((0, 3))
        step["none"] = np.zeros((0, 4, 4))
    layers = (
        "kind = 'surface'\nvariable = 'T'\nvalue = 1",
        "kind = 'streamlines'\nvariable = 'u'",
        "kind = 'glyphs'\nvariable = 'u'",
        "kind = 'volume'\nvariable = 'T'",
        "kind = 'points'\npositions = 'q'",
    )
    text = "\n".join(f"[[layer]]\n{layer}" for layer in layers)
    done = view(f"{reservation}/empty", "--scene", scene_file(tmp_path, text), "--out", str(tmp_path / "p.png"))
    assert done.returncode == 0, done.stderr
    text = "[[layer]]\nkind = 'points'\npositions = 'q'"
    done = view(f"{reservation}/empty", "--scene", scene_file(tmp_path, text), "--out", str(tmp_path / "p.png"))
    assert done.returncode == 0, done.stderr
    # A grid without cells is no grid.
    text = "[[layer]]\nkind = 'slice'\nvariable = 'none'"
    done = view(f"{reservation}/empty", "--scene", scene_file(tmp_path, text), "--out", str(tmp_path / "p.png"))
    assert done.returncode == 1
    assert "none (0, 4, 4)" in done.stderr


def test_camera_goes_along_its_path(reservation: str, tmp_path: Path) -> None:
    path = (CameraStop(0, (0.0, 0.0, 2.0)), CameraStop(4, (1.0, 0.0, 0.0), zoom=2.0))
    camera = Camera(path=path)
    half = 0.5**0.5
    for step, direction, zoom in ((0, (0, 0, 1), 1), (2, (half, 0, half), 1.5), (4, (1, 0, 0), 2), (9, (1, 0, 0), 2)):
        found = camera.at(step)
        assert found[0] == pytest.approx(direction)
        assert found[1] == zoom
    # Of a cut perpendicular to z one sees all from above, and its edge from the side.
    write_flow(f"{reservation}/flow", 0, 5)
    text = SCENE.replace("direction = [0.0, 0.0, 1.0]\n", "").replace(
        "[[layer]]",
        "[[camera.path]]\nstep = 0\ndirection = [0, 0, 1]\n[[camera.path]]\nstep = 4\ndirection = [1, 0, 0]\n[[layer]]",
    )
    seen = []
    for step in (0, 2, 4):
        out = tmp_path / f"{step}.png"
        done = view(f"{reservation}/flow@{step}", "--scene", scene_file(tmp_path, text), "--out", str(out))
        assert done.returncode == 0, done.stderr
        with Image.open(out) as image:
            pixels = np.asarray(image.convert("RGB")).astype(int)[60:190]
        seen.append(int((pixels.max(2) > 60).sum()))
    assert seen[0] > seen[1] > 10 * seen[2]


@pytest.mark.parametrize("command", ["view --out", "view --movie", "render --out"])
def test_a_field_of_two_dimensions_is_drawn_as_an_image(reservation: str, tmp_path: Path, command: str) -> None:
    """As in the README: bright where the field is, in the corner of large y and x."""
    address = f"{reservation}/flat"
    with forebay.open(address, mode="w") as stream:
        for number in range(2):
            field = np.zeros((64, 64))
            field[40:, 40:] = 1.0 + number
            with stream.step() as step:
                step["T"] = field
    name, option = command.split()
    target = tmp_path / {"view --out": "picture.png", "view --movie": "movie.mp4", "render --out": "pictures"}[command]
    done = subprocess.run(
        [sys.executable, "-m", "forebay", name, address, option, str(target), "--size", "320x240", "--timeout", "60"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if option == "--movie":
        with target.open("rb") as file:
            assert len(walk_file(file)[1]) == 2
        return
    picture = target if name == "view" else target / "frames/000001.png"
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("RGB"), np.int64)
    # viridis goes from dark blue to yellow.
    yellow = pixels[..., 0] + pixels[..., 1] - pixels[..., 2] > 250
    rows, columns = np.nonzero(yellow[40:200, 60:260])
    assert len(rows) > 500
    assert rows.mean() < 80
    assert columns.mean() > 100


def test_what_cannot_be_drawn_leaves_nothing_behind(reservation: str, tmp_path: Path) -> None:
    with forebay.open(f"{reservation}/lines", mode="w") as stream, stream.step() as step:
        step["profile"] = np.zeros(5)
    for name, option, target in (("view", "--movie", "new/movie.mp4"), ("render", "--out", "new/pictures")):
        done = subprocess.run(
            [sys.executable, "-m", "forebay", name, f"{reservation}/lines", option, target, "--timeout", "60"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 1
        assert "no grid" in done.stderr
        assert list(tmp_path.iterdir()) == []
