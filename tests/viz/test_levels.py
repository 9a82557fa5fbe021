# SPDX-License-Identifier: Apache-2.0
"""Levels of refinement: published files are to yt and VTK what the stream has, and pictures show the finest level."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yt
from numpy.typing import NDArray
from PIL import Image
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkIOAMR import vtkAMReXGridReader

import forebay
from forebay.connectors import amrex, chombo
from forebay.viz.levels import Levels
from forebay.viz.publishing.publication import Publication, Viewer
from forebay.viz.publishing.vti_view import VTI
from tests.support.chombo_files import write_chombo_file
from tests.support.plotfiles import BOXES, FIELDS, content, write_plotfile
from tests.support.time_limits import seconds
from tests.viz.test_publish import publish, told


@pytest.fixture
def plots(reservation: str, tmp_path: Path) -> str:
    """Steps 7 and 12 of two levels."""
    yt.set_log_level("error")
    for number in (7, 12):
        write_plotfile(tmp_path / "run" / f"plt{number:05d}", number)
    amrex.ingest(sorted((tmp_path / "run").iterdir()), f"{reservation}/plots")
    return f"{reservation}/plots"


def grids_of(dataset: Any, kind: str, level: int) -> dict[tuple[int, ...], dict[str, NDArray[Any]]]:
    """yt's grids of a level, (z, y, x), by where they begin."""
    return {
        tuple(int(place) for place in grid.get_global_startindex()[::-1]): {
            name: np.asarray(grid[kind, name]).transpose(2, 1, 0) for name in FIELDS
        }
        for grid in dataset.index.grids
        if grid.Level == level
    }


def expect_grids(dataset: Any, kind: str, step: int) -> None:
    for level, boxes in enumerate(BOXES):
        grids = grids_of(dataset, kind, level)
        assert sorted(grids) == sorted(low[::-1] for low, _ in boxes)
        for low, high in boxes:
            index = tuple(slice(first, last + 1) for first, last in zip(low, high, strict=True))[::-1]
            for field, name in enumerate(FIELDS):
                np.testing.assert_array_equal(grids[low[::-1]][name], content(step, level, field)[index])


def test_published_plotfiles_are_to_yt_what_the_code_wrote(plots: str, tmp_path: Path) -> None:
    answer = told(publish(plots, tmp_path / "out", "--for", "amrex", "--json"))
    assert answer == {"published": 2, "steps": [7, 12], "index": str(tmp_path / "out" / "plots.visit")}
    assert (tmp_path / "out" / "plots.visit").read_text().split() == ["plt00007/Header", "plt00012/Header"]
    for number in (7, 12):
        name = f"plt{number:05d}"
        ours, theirs = yt.load(tmp_path / "out" / name), yt.load(tmp_path / "run" / name)
        expect_grids(theirs, "boxlib", number)
        expect_grids(ours, "boxlib", number)
        assert float(ours.current_time) == float(theirs.current_time)
        assert ours.refine_by == 2
        for edge in ("domain_left_edge", "domain_right_edge"):
            np.testing.assert_array_equal(np.asarray(getattr(ours, edge)), np.asarray(getattr(theirs, edge)))
        np.testing.assert_array_equal(np.asarray(ours.index.grid_left_edge), np.asarray(theirs.index.grid_left_edge))
        found, expected = (np.asarray(dataset.all_data().quantities.extrema("density")) for dataset in (ours, theirs))
        np.testing.assert_array_equal(found, expected)
    assert amrex.ingest(sorted((tmp_path / "out").glob("plt*")), f"{plots}2") == 2
    expect_same_stream(plots, f"{plots}2")


@pytest.mark.parametrize("viewer", ["chombo", "yt", "visit"])
def test_published_chombo_files_have_all_levels(plots: str, tmp_path: Path, viewer: str) -> None:
    assert told(publish(plots, tmp_path / "out", "--for", viewer, "--json"))["steps"] == [7, 12]
    files = sorted((tmp_path / "out").glob("plt*.3d.hdf5"))
    for number, file in zip((7, 12), files, strict=True):
        dataset = yt.load(file)
        expect_grids(dataset, "chombo", number)
        assert float(dataset.current_time) == 0.5 * number
        np.testing.assert_array_equal(np.asarray(dataset.domain_right_edge), [1.0, 0.5, 0.5])
    assert chombo.ingest(files, f"{plots}2") == 2
    expect_same_stream(plots, f"{plots}2")


def expect_same_stream(one: str, other: str) -> None:
    with forebay.open(one, timeout=0) as first, forebay.open(other, timeout=0) as second:
        for ours, theirs in zip(first, second, strict=True):
            assert ours.number == theirs.number
            assert sorted(ours) == sorted(theirs)
            assert ours["time"].item() == theirs["time"].item()
            for name in ("levels", "spacing", "origin", "level_1/spacing"):
                np.testing.assert_array_equal(ours.attributes[name], theirs.attributes[name])
            for name in ours:
                if ours[name].shape:
                    expect_same_blocks(ours[name], theirs[name])


def expect_same_blocks(one: forebay.Variable, other: forebay.Variable) -> None:
    ours, theirs = (
        {block.start: variable.block(place) for place, block in enumerate(variable.blocks)} for variable in (one, other)
    )
    assert (one.shape, one.dtype, one.dims, sorted(ours)) == (other.shape, other.dtype, other.dims, sorted(theirs))
    for start, values in ours.items():
        np.testing.assert_array_equal(values, theirs[start])


@pytest.mark.parametrize("size", [8, 4])
def test_vtk_reads_published_plotfiles_bit_by_bit(reservation: str, tmp_path: Path, size: int) -> None:
    write_plotfile(tmp_path / "plt00007", 7, size=size)
    amrex.ingest([tmp_path / "plt00007"], f"{reservation}/plots")
    told(publish(f"{reservation}/plots", tmp_path / "out", "--for", "amrex", "--json"))
    reader = vtkAMReXGridReader()
    reader.SetFileName(str(tmp_path / "out" / "plt00007"))
    reader.UpdateInformation()
    reader.SetMaxLevel(1)
    for name in FIELDS:
        reader.SetCellArrayStatus(name, 1)
    reader.Update()
    data = reader.GetOutput()
    assert data.GetNumberOfLevels() == 2
    compared = 0
    for level, boxes in enumerate(BOXES):
        for place in range(len(boxes)):
            image = data.GetDataSetAsImageData(level, place)
            spacing = 1 / 16 / 2**level
            assert image.GetSpacing() == (spacing,) * 3
            low = tuple(round(number / spacing) for number in image.GetOrigin())
            high = tuple(first + points - 2 for first, points in zip(low, image.GetDimensions(), strict=True))
            assert (low, high) in boxes
            index = tuple(slice(first, last + 1) for first, last in zip(low, high, strict=True))[::-1]
            for field, name in enumerate(FIELDS):
                values = vtk_to_numpy(image.GetCellData().GetArray(name))
                expected = content(7, level, field)[index].astype(f"f{size}")
                np.testing.assert_array_equal(values.astype(expected.dtype), expected.reshape(-1))
                compared += 1
    assert compared == 10


def test_chombo_files_go_through_a_stream_to_yt(reservation: str, tmp_path: Path) -> None:
    yt.set_log_level("error")
    (tmp_path / "run").mkdir()
    write_chombo_file(tmp_path / "run" / "plt000003.3d.hdf5", 3, ghosts=(1, 1, 1))
    address = f"{reservation}/plots"
    chombo.ingest([tmp_path / "run" / "plt000003.3d.hdf5"], address)
    theirs = yt.load(tmp_path / "run" / "plt000003.3d.hdf5")
    expect_grids(theirs, "chombo", 3)
    told(publish(address, tmp_path / "plotfiles", "--for", "amrex", "--json"))
    ours = yt.load(tmp_path / "plotfiles" / "plt00003")
    expect_grids(ours, "boxlib", 3)
    np.testing.assert_array_equal(np.asarray(ours.index.grid_left_edge), np.asarray(theirs.index.grid_left_edge))


def test_planes_and_vectors_have_files_of_their_dimensions(reservation: str, tmp_path: Path) -> None:
    """A program of its own that writes levels, without attributes of each level."""
    yt.set_log_level("error")
    address = f"{reservation}/plane"
    coarse, fine = np.arange(24, dtype=np.float32).reshape(4, 6), np.arange(16, dtype=np.float32).reshape(4, 4) + 100
    with forebay.open(address, mode="w") as stream:
        stream.attributes["spacing"] = np.array([0.5, 0.5])
        with stream.step(3) as step:
            step["level_0/h"] = coarse
            step.write("level_1/h", fine, shape=(8, 12), start=(2, 4))
            step["loose"] = np.zeros((4, 6))
    done = publish(address, tmp_path, "--for", "chombo", "--json")
    assert told(done)["index"] == str(tmp_path / "plt*.2d.hdf5")
    assert "loose is not published: it lies on no level of refinement" in done.stderr
    told(publish(address, tmp_path, "--for", "amrex", "--json", "--consumer", "other"))
    for path, kind in ((tmp_path / "plt000003.2d.hdf5", "chombo"), (tmp_path / "plt00003", "boxlib")):
        dataset = yt.load(path)
        assert dataset.dimensionality == 2
        grids = {grid.Level: np.asarray(grid[kind, "h"])[..., 0].T for grid in dataset.index.grids}
        np.testing.assert_array_equal(grids[0], coarse)
        np.testing.assert_array_equal(grids[1], fine)
        np.testing.assert_array_equal(np.asarray(dataset.domain_right_edge)[:2], [3.0, 2.0])
        assert float(dataset.index.grids[1].dds[0]) == 0.25
    # A level of vectors is one of scalars to these files.
    address = f"{reservation}/vectors"
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step["level_0/u"] = np.arange(24.0).reshape(2, 2, 2, 3)
    told(publish(address, tmp_path / "vectors", "--for", "amrex", "--json"))
    grid = yt.load(tmp_path / "vectors" / "plt00000").index.grids[0]
    np.testing.assert_array_equal(np.asarray(grid["boxlib", "u_y"]).transpose(2, 1, 0).reshape(-1), np.arange(1, 24, 3))


def test_a_regular_grid_is_a_plotfile_of_one_level(flow: str, tmp_path: Path) -> None:
    yt.set_log_level("error")
    told(publish(flow, tmp_path, "--for", "amrex", "--json"))
    with forebay.open(flow) as stream:
        dataset = yt.load(tmp_path / "plt00002")
        np.testing.assert_array_equal(np.asarray(dataset.domain_left_edge), [1.0, 2.0, 3.0])
        values = np.asarray(dataset.index.grids[0]["boxlib", "velocity_z"]).transpose(2, 1, 0)
        np.testing.assert_array_equal(values, stream[2]["velocity"][..., 2])


# crash-matrix: forebay publish | it dies while it writes a plotfile | the folder has another name until it is whole
def test_folders_appear_whole_and_withdrawn_ones_go(plots: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with forebay.open(plots, timeout=0) as stream:
        publication = Publication(out, Viewer.AMREX, "plots")
        publication.publish(stream[7])
        left = ".plt00012.0123abcd.part"
        (out / left / left / "plt00012" / "Level_0").mkdir(parents=True)  # as if it had died there
        again = Publication(out, Viewer.AMREX, "plots")
        assert again.steps == [7]
        assert not list(out.glob(".*.part"))
        again.publish(stream[12])
        again.publish(stream[7])  # a restart of the producer withdrew both
        assert sorted(path.name for path in out.glob("plt*")) == ["plt00007"]
        assert again.index.read_text() == "plt00007/Header\n"


def test_what_these_files_cannot_hold_says_what_to_do(plots: str, reservation: str, tmp_path: Path) -> None:
    done = publish(plots, tmp_path / "a", "--for", "paraview")
    assert done.returncode == 1
    assert "publish --for amrex" in done.stderr
    assert told(publish(plots, tmp_path / "a", "--for", "paraview", "--variables", "level_0/density", "--json"))
    done = publish(plots, tmp_path / "b", "--for", "amrex", "--variables", "pressure", "--consumer", "b")
    assert done.returncode == 1
    assert "no level has the field pressure; fields are density, x-velocity" in done.stderr
    address = f"{reservation}/odd"
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step["level_0/a"], step["level_1/a"] = np.zeros((2, 2, 2)), np.zeros((4, 4, 2))
    done = publish(address, tmp_path / "c", "--for", "amrex", "--consumer", "c")
    assert done.returncode == 1
    assert "one whole ratio in all directions" in done.stderr
    with forebay.open(address, mode="w") as stream, stream.step() as step:
        step["level_0/a"], step["level_2/a"] = np.zeros((2, 2, 2)), np.zeros((4, 4, 4))
    done = publish(address, tmp_path / "d", "--for", "chombo")
    assert done.returncode == 1
    assert "not on all from 0 on" in done.stderr


def test_fields_on_other_boxes_are_left_out_with_the_reason(reservation: str) -> None:
    with forebay.open(f"{reservation}/mixed", mode="w") as stream, stream.step() as step:
        step["level_0/a"] = np.ones((2, 2, 2))
        for z in (0, 1):
            step.write("level_0/halves", np.ones((1, 2, 2)), shape=(2, 2, 2), start=(z, 0, 0))
        step["level_0/wave"] = np.ones((2, 2, 2), np.complex64)
        step["level_0/line"] = np.ones(2)
        step["level_1/fine"] = np.ones((4, 4, 4))
    with forebay.open(f"{reservation}/mixed") as reader:
        levels = Levels.of_step(reader[0])
        assert list(levels.fields) == ["a"]
        assert {name: reason.split()[0] for name, reason in levels.left_out.items()} == {
            "halves": "its",
            "wave": "complex64",
            "line": "its",
            "fine": "it",
        }
        with pytest.raises(forebay.InvalidArgumentError, match="halves cannot be taken: its boxes are not those"):
            Levels.of_step(reader[0], ["a", "halves"])
        with pytest.raises(forebay.UnsupportedError, match=r"levels of refinement, and \.vti has one grid"):
            VTI.lay_out(reader[0], None)
        assert VTI.lay_out(reader[0], "level_0/halves").size_bytes > 64


def test_a_grid_of_all_levels_is_yts_covering_grid(plots: str, tmp_path: Path) -> None:
    dataset = yt.load(tmp_path / "run" / "plt00007")
    covering = dataset.covering_grid(1, dataset.domain_left_edge, dataset.domain_dimensions * 2)
    with forebay.open(plots, timeout=0) as stream:
        levels = Levels.of_step(stream[7])
        grid = levels.on_one_grid()
        assert (grid.shape, grid.spacing, grid.origin) == ((16, 16, 32), (1 / 32,) * 3, (0.0,) * 3)
        assert grid.time == 3.5
        for name in FIELDS:
            theirs = np.asarray(covering["boxlib", name]).transpose(2, 1, 0)
            np.testing.assert_array_equal(grid.fields[name], theirs)
        # Fewer cells than the finest level has: each has the value of the cell that its middle lies in.
        coarser = levels.on_one_grid(cells_max=20)
        assert coarser.shape == (16, 16, 20)
        middles = (2 * np.arange(20) + 1) * 32 // 40
        np.testing.assert_array_equal(coarser.fields["density"], grid.fields["density"][:, :, middles])


SCENE = """
size = [320, 240]
[camera]
direction = [0.0, 0.0, 1.0]
up = [0.0, 1.0, 0.0]
[[layer]]
kind = "slice"
variable = "a"
position = 0.3
range = [0, 2]
colors = "gray"
"""


def test_pictures_show_the_finer_level_in_place_of_the_coarser(reservation: str, tmp_path: Path) -> None:
    """Level 0 is 1, level 1 is 2 in the left half: grey and white halves."""
    address = f"{reservation}/halves"
    with forebay.open(address, mode="w") as stream:
        for number in range(2):
            with stream.step() as step:
                step["level_0/a"] = np.ones((4, 8, 16))
                step.write("level_1/a", np.full((8, 16, 16), 2.0), shape=(8, 16, 32), start=(0, 0, 16 * number))
    (tmp_path / "scene.toml").write_text(SCENE)
    command = [sys.executable, "-m", "forebay", "render", address, "--out", str(tmp_path / "out"), "--json"]
    command += ["--scene", str(tmp_path / "scene.toml"), "--timeout", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(110), check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["frames"] == 2
    for number in range(2):
        picture = np.asarray(Image.open(tmp_path / "out" / "frames" / f"{number:06d}.png").convert("L"))
        row = picture[120]
        white, grey = np.nonzero(row > 230)[0], np.nonzero((row > 100) & (row < 150))[0]
        assert len(white) == pytest.approx(len(grey), rel=0.1)
        assert len(white) > 40
        assert (white.mean() < grey.mean()) == (number == 0)


def test_view_draws_levels_without_a_scene(plots: str, tmp_path: Path) -> None:
    out = tmp_path / "p.png"
    command = [sys.executable, "-m", "forebay", "view", f"{plots}@7", "--out", str(out), "--json", "--timeout", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds(110), check=False)
    assert done.returncode == 0, done.stderr
    assert len(np.unique(np.asarray(Image.open(out)).reshape(-1, 3), axis=0)) > 50
