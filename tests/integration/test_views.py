# SPDX-License-Identifier: Apache-2.0
"""Sealed views: what the files hold, and what making them reads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest

import forebay
from forebay.datatypes import ShapeKind
from forebay.errors import InvalidArgumentError, NoSpaceError, UnsupportedError, VariableNotFoundError
from forebay.step import Step
from forebay.variable import Variable
from forebay.views.address import ViewAddress
from forebay.views.copying import copy_to
from forebay.views.formats import format_named
from forebay.views.sealed_file import SealedFile, array_runs, read_part
from tests.support.views import file_of, write_every_kind


@pytest.fixture
def step(reservation: str) -> Step:
    write_every_kind(f"{reservation}/flow")
    return forebay.open(f"{reservation}/flow", verify="first")[0]


@pytest.mark.filterwarnings("ignore::forebay.errors.FaultyVariableWarning")
@pytest.mark.parametrize("ending", ["h5", "nc"])
def test_an_hdf5_view_has_what_the_step_has(step: Step, tmp_path: Path, ending: str) -> None:
    with h5py.File(file_of(step, ending, tmp_path / f"view.{ending}"), "r") as file:
        for name, variable in step.items():
            if variable.kind is ShapeKind.LOCAL_ARRAY:
                assert sorted(file[name]) == ["block_000000", "block_000001"]
                for number in range(2):
                    np.testing.assert_array_equal(file[name][f"block_{number:06d}"], variable.block(number))
            elif name == "text":
                assert file[name].asstr()[()] == "hölzern"
            else:
                np.testing.assert_array_equal(file[name], variable[...])
                assert file[name].dtype == variable.dtype
        assert file["slabs"].attrs["units"] == "K"
        assert file.attrs["title"] == "every kind"
        assert file.attrs["forebay_step"] == 0
        assert [dimension.label for dimension in file["slabs"].dims] == ["z", "y", "x"]


@pytest.mark.parametrize("ending", ["h5", "nc"])
def test_an_hdf5_view_takes_names_of_which_hdf5_makes_another_path(
    reservation: str, tmp_path: Path, ending: str
) -> None:
    names = ["/lead", "trail/", "a//b", "a/./c", "dot/.", "../up"]
    with forebay.open(f"{reservation}/flow", "w") as stream, stream.step() as step:
        for name in names:
            step[name] = np.arange(2000.0)  # has a place beside the header
            step[f"small{name}"] = 1.0
    with h5py.File(file_of(forebay.open(f"{reservation}/flow")[0], ending, tmp_path / f"view.{ending}"), "r") as file:
        for name in names:
            np.testing.assert_array_equal(file[name][()], np.arange(2000.0))
            assert file[f"small{name}"][()] == 1.0


def test_a_name_that_netcdf_would_cut_off_is_refused(reservation: str, tmp_path: Path) -> None:
    names = ["n" * 255, "folder/" + "n" * 255, "\u03bb" * 128]
    with forebay.open(f"{reservation}/flow", "w") as stream:
        for name in names:
            with stream.step() as step:
                step[name] = np.arange(2.0)
    with forebay.open(f"{reservation}/flow") as stream:
        for number in range(2):
            file_of(stream[number], "nc", tmp_path / f"{number}.nc")
        with pytest.raises(UnsupportedError, match="no names of more than 255 bytes"):
            file_of(stream[2], "nc", tmp_path / "2.nc")
        file_of(stream[2], "h5", tmp_path / "2.h5")


def test_a_netcdf_view_gives_each_dimension_a_scale(step: Step, tmp_path: Path) -> None:
    with h5py.File(file_of(step, "nc", tmp_path / "view.nc"), "r") as file:
        # The variable x is the coordinate of the dimension x, although nobody has named its own dimension.
        assert [scales[0].name for scales in file["slabs"].dims] == ["/z", "/y", "/x"]
        assert file["x"].is_scale
        assert [scales[0].name for scales in file["columns"].dims] == ["/dim_0_64", "/dim_1_64"]
        assert [scales[0].name for scales in file["local/block_000001"].dims] == ["/dim_0_10"]


def test_numpy_loads_each_variable(step: Step, tmp_path: Path) -> None:
    for number, name in enumerate(
        ["slabs", "columns", "large/complex", "joined", "letters", "small", "time", "nothing"]
    ):
        found = np.load(file_of(step, "npy", tmp_path / f"{number}.npy", name))
        np.testing.assert_array_equal(found, step[name][...])
        assert found.dtype == step[name].dtype
    # The elements begin at a page, so that they can be mapped.
    mapped = np.load(tmp_path / "0.npy", mmap_mode="r")
    assert mapped.offset == 4096
    np.testing.assert_array_equal(
        np.load(file_of(step, "npy", tmp_path / "block.npy", "local/block_000001")), np.arange(10)
    )


def test_one_variable_with_its_attributes_is_a_view_of_its_own(step: Step, tmp_path: Path) -> None:
    with h5py.File(file_of(step, "h5", tmp_path / "view.h5", "slabs"), "r") as file:
        assert {name for name, node in file.items() if not node.is_scale} == {"slabs"}
        assert file["slabs"].attrs["units"] == "K"


@pytest.mark.parametrize(
    ("ending", "variable", "error", "text"),
    [
        ("npy", None, UnsupportedError, "holds one variable"),
        ("npy", "text", UnsupportedError, "has no file for the text"),
        ("npy", "local", UnsupportedError, "local array of 2 blocks"),
        ("npy", "local/block_000002", VariableNotFoundError, "no block 2"),
        ("h5", "temperature", VariableNotFoundError, "no variable 'temperature'"),
    ],
)
def test_what_a_format_cannot_hold_is_an_error(
    step: Step, ending: str, variable: str | None, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        format_named(ending).lay_out(step, variable)
    assert len(str(caught.value)) < 300


def test_laying_out_reads_no_array(reservation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream, stream.step() as begun:
        begun.write("T", np.ones((512, 1024)), shape=(1024, 1024), start=(0, 0))
        begun.write("T", np.ones((512, 1024)), shape=(1024, 1024), start=(512, 0))
    step = forebay.open(f"{reservation}/flow")[0]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an array was read")

    for name in ("block", "read", "view", "__getitem__"):
        monkeypatch.setattr(Variable, name, refuse)
    sealed = format_named("h5").lay_out(step, None)
    assert sealed.size_bytes >= 8 << 20
    assert sum(len(run.data) for run in sealed.header) < 16 << 10
    assert [(run.block, run.size_bytes) for run in sealed.arrays] == [(0, 4 << 20), (1, 4 << 20)]
    assert all(run.offset % 4096 == 0 for run in sealed.arrays)


def test_runs_do_not_overlap_and_cover_what_is_written(step: Step) -> None:
    for ending, variable in [("h5", None), ("nc", None), ("npy", "slabs")]:
        sealed = format_named(ending).lay_out(step, variable)
        places = sorted(
            [(run.offset, run.offset + len(run.data)) for run in sealed.header]
            + [(run.offset, run.offset + run.size_bytes) for run in sealed.arrays]
        )
        assert all(stop <= start for (_, stop), (start, _) in pairwise(places))
        assert places[-1][1] <= sealed.size_bytes


@pytest.mark.filterwarnings("ignore::forebay.errors.FaultyVariableWarning")
def test_blocks_are_runs_only_where_they_are_contiguous_and_apart(step: Step) -> None:
    assert [run.block for run in array_runs(step["slabs"], 0)] == [1, 0]
    assert [run.block for run in array_runs(step["columns"], 0)] == [None]
    assert [run.block for run in array_runs(step["holes"], 0)] == [0]
    (run,) = array_runs(step["columns"], 0)
    whole = step["columns"][...].tobytes()
    for start, stop in [(0, 1), (100, 5000), (255, 257), (len(whole) - 1, len(whole))]:
        assert read_part(step, run, start, stop).tobytes() == whole[start:stop]


@pytest.mark.filterwarnings("ignore::forebay.errors.FaultyVariableWarning")
def test_blocks_that_overlap_are_put_together_as_readers_see_them(reservation: str, tmp_path: Path) -> None:
    def write(rank: int) -> None:
        with (
            forebay.open(f"{reservation}/over", "w", rank=rank, ranks=2) as stream,
            stream.step() as begun,
        ):
            begun.write("over", np.full((40, 64), rank + 1, "f4"), shape=(64, 64), start=(24 * rank, 0))

    with ThreadPoolExecutor(2) as ranks:
        list(ranks.map(write, range(2)))
    step = forebay.open(f"{reservation}/over")[0]
    assert [run.block for run in array_runs(step["over"], 0)] == [None]
    found = np.load(file_of(step, "npy", tmp_path / "over.npy", "over"))
    np.testing.assert_array_equal(found, step["over"][...])
    assert set(np.unique(found)) == {1, 2}


def test_a_full_file_system_is_an_error_before_anything_is_written(step: Step, tmp_path: Path) -> None:
    with open(tmp_path / "view", "wb") as file, pytest.raises(NoSpaceError, match="FOREBAY_VIEWS"):
        copy_to(file.fileno(), SealedFile(1 << 60, (), ()), step)


def test_addresses_of_views() -> None:
    assert ViewAddress.parse("run1/flow@17.h5") == ViewAddress("run1/flow", 17, None, "h5")
    assert ViewAddress.parse("run1/flow.v2@latest/a/b.c.npy") == ViewAddress("run1/flow.v2", None, "a/b.c", "npy")
    assert ViewAddress.parse("forebay://host:7460/run1/flow@0.nc").stream == "forebay://host:7460/run1/flow"
    for wrong in (
        "run1/flow.h5",
        "run1/flow@17",
        "run1/flow@-1.h5",
        "flow@17.h5",
        "run1/flow@17/.h5",
        "run1@2/flow@3.h5",
    ):
        with pytest.raises(InvalidArgumentError):
            ViewAddress.parse(wrong)
    with pytest.raises(InvalidArgumentError, match=r"there are: .*h5, nc, npy"):
        format_named("doc")
