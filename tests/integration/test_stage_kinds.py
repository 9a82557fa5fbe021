# SPDX-License-Identifier: Apache-2.0
"""All formats of stage-out take what a stream can hold: kinds of variables, written by two ranks, and their types."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import adios2
import numpy as np
import pytest

import forebay
from forebay.manager.jobs import StepsJob
from forebay.workflows.staging.merged import stage_into_one
from forebay.workflows.staging.reporting import JsonReporter
from forebay.workflows.staging.steps import stage_steps

h5py = pytest.importorskip("h5py")

Part = Callable[[forebay.StepBeingWritten, int], None]


def put(value: Callable[[int], Any], **options: Any) -> Part:
    """Each rank writes what ``value`` gives for its number."""
    return lambda step, rank: step.write("v", value(rank), **options)


def whole(step: forebay.StepBeingWritten, rank: int) -> None:
    step.write("v", np.arange(6.0).reshape(2, 3) + rank, shape=(4, 3), start=(2 * rank, 0))


def holes(step: forebay.StepBeingWritten, rank: int) -> None:
    step.write("v", np.full(2, 1.0 + rank), shape=(8,), start=(5 * rank,))


def overlap(step: forebay.StepBeingWritten, rank: int) -> None:
    step.write("v", np.full(4, 1.0 + rank), shape=(6,), start=(2 * rank,))


def one_rank(step: forebay.StepBeingWritten, rank: int) -> None:
    if rank == 1:
        step["v"] = np.arange(4.0)


#: What ranks write as "v", and what h5py reads of it; None: by blocks.
KINDS: dict[str, tuple[Part, Any]] = {
    "value": (put(lambda rank: 7.5), 7.5),
    "value that differs": (put(lambda rank: 7.5 + rank), 7.5),
    "character": (put(lambda rank: np.array(b"x")), b"x"),
    "long double": (put(lambda rank: np.longdouble(1) / 3), np.longdouble(1) / 3),
    "text": (put(lambda rank: "same"), b"same"),
    "text that differs": (put(lambda rank: f"rank {rank} \N{GREEK SMALL LETTER ALPHA}"), "rank 0 \u03b1".encode()),
    "text that is empty": (put(lambda rank: ""), b""),
    "local value": (put(lambda rank: 1 + rank, kind="local_value"), [1, 2]),
    "local text": (put(lambda rank: f"rank {rank}", kind="local_value"), [b"rank 0", b"rank 1"]),
    "local array": (put(lambda rank: np.arange(3.0 + 2 * rank), kind="local_array"), None),
    "local array that is empty": (put(lambda rank: np.zeros((0, 3)), kind="local_array"), None),
    "joined array": (put(lambda rank: np.full((1 + rank, 2), rank), kind="joined_array"), [[0, 0], [1, 1], [1, 1]]),
    "joined array that is empty": (put(lambda rank: np.zeros((0, 2)), kind="joined_array"), np.zeros((0, 2))),
    "global array": (whole, [[0, 1, 2], [3, 4, 5], [1, 2, 3], [4, 5, 6]]),
    "global array of one rank": (one_rank, [0, 1, 2, 3]),
    "global array with holes": (holes, [1, 1, 0, 0, 0, 2, 2, 0]),
    "global array that overlaps": (overlap, [1, 1, 2, 2, 2, 2]),
    "global array without elements": (put(lambda rank: np.zeros((0, 3)), shape=(0, 3)), np.zeros((0, 3))),
}
FORMATS = ("bp5", "hdf5", "all.bp", "all.h5")


def write(address: str, part: Part, steps: int = 2) -> None:
    """Steps of two ranks."""

    def produce(rank: int) -> None:
        with forebay.open(address, "w", rank=rank, ranks=2, group="ranks", timeout=60) as stream:
            stream.attributes["v/units"] = "K"
            stream.attributes["names"] = ("a", "")
            for _ in range(steps):
                with stream.step() as step:
                    part(step, rank)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(produce, range(2)))


def stage(address: str, out: Path, form: str) -> Path:
    """Stages all steps out, and returns the first output, or the only one."""
    reporter = JsonReporter(StringIO())
    if "." in form:
        stage_into_one(StepsJob(address, str(out), into=form), reporter)
        return out / form
    stage_steps(StepsJob(address, str(out), format=form), reporter)
    return out / f"flow.000000.{'h5' if form == 'hdf5' else 'bp'}"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_takes_every_kind(reservation: str, tmp_path: Path, kind: str, form: str) -> None:
    part, expected = KINDS[kind]
    write(f"{reservation}/flow", part)
    output = stage(f"{reservation}/flow", tmp_path, form)
    with forebay.open(f"{reservation}/flow") as stream, stream[0] as step:
        seen = None if expected is None else step["v"][...]
    if output.suffix == ".bp":
        with adios2.FileReader(str(output)) as reader:
            assert "v" in {**reader.available_variables(), **reader.available_attributes()}
        return
    with h5py.File(output) as file:
        node = file["v"]
        if expected is None:
            assert sorted(node) == ["block_000000", "block_000001"]
            return
        found = node[()] if form == "hdf5" else node[0]
        np.testing.assert_array_equal(found, expected)
        if np.asarray(seen).dtype.kind != "T":
            # What the file has is what readers of the stream have.
            np.testing.assert_array_equal(found, seen)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_takes_every_attribute(reservation: str, tmp_path: Path, form: str) -> None:
    attributes = {
        "text": "x",
        "text that is empty": "",
        "texts": ("a", "", "\u03b1"),
        "number": 1.5,
        "not a number": float("nan"),
        "complex": 1 + 2j,
        "long double": np.longdouble(1) / 3,
        "small": np.int8(-3),
        "numbers": np.arange(3, dtype=np.uint16),
        "one number": np.arange(1.0),
        "many numbers": np.arange(100000.0),
        "v/units": "K",
        "v/NAME": "as HDF5 calls the names of its scales",
        "w/units": "of no variable",
    }
    with forebay.open(f"{reservation}/flow", "w") as stream:
        for name, value in attributes.items():
            stream.attributes[name] = value
        for _ in range(2):
            with stream.step() as step:
                step.write("v", np.zeros(3), dims=("v",))
    output = stage(f"{reservation}/flow", tmp_path, form)
    if output.suffix == ".bp":
        with adios2.FileReader(str(output)) as reader:
            assert set(reader.available_attributes()) >= attributes.keys()
        return
    with h5py.File(output) as file:
        for name, value in attributes.items():
            holder, key = (file["v"], name[2:]) if name.startswith("v/") else (file, name)
            np.testing.assert_array_equal(holder.attrs[key], value)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a", "a/b"), "folder of the other's"),
        (("a", "/a"), "have one name in HDF5"),
        (("a/b", "a//b"), "have one name in HDF5"),
        (("./",), "no dataset that is called"),
        (("a/./b", "a/b"), "have one name in HDF5"),
    ],
)
def test_names_that_hdf5_cannot_hold_are_told(
    reservation: str, tmp_path: Path, names: tuple[str, ...], expected: str
) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream, stream.step() as step:
        for name in names:
            step[name] = np.zeros(2)
    with pytest.raises(forebay.UnsupportedError, match=expected):
        stage(f"{reservation}/flow", tmp_path, "hdf5")
    stage(f"{reservation}/flow", tmp_path, "bp5")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["/lead", "trail/", "a//b", "a/./b", "trail/.", "./lead", "..", "a/../b"])
def test_every_format_takes_a_name_of_which_hdf5_makes_another_path(
    reservation: str, tmp_path: Path, name: str, form: str
) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream:
        stream.attributes[f"{name}/units"] = "K"
        for _ in range(2):
            with stream.step() as step:
                step.write(name, np.arange(2.0), dims=("x",))
                step["text"] = "t"
    output = stage(f"{reservation}/flow", tmp_path, form)
    if output.suffix == ".bp":
        with adios2.FileReader(str(output)) as reader:
            np.testing.assert_array_equal(reader.read(name), np.arange(2.0))
        return
    with h5py.File(output) as file:
        np.testing.assert_array_equal(np.ravel(file[name][()])[:2], np.arange(2.0))
        assert file[name].attrs["units"] == "K"


@pytest.mark.parametrize("where", ["variable", "attribute", "attribute of texts"])
def test_texts_that_hdf5_cannot_hold_are_told(reservation: str, tmp_path: Path, where: str) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream:
        if where == "attribute":
            stream.attributes["a"] = "x\0y"
        elif where == "attribute of texts":
            stream.attributes["a"] = ("x", "x\0y")
        with stream.step() as step:
            step["v"] = "x\0y" if where == "variable" else "xy"
    with pytest.raises(forebay.UnsupportedError, match="text with a zero character"):
        stage(f"{reservation}/flow", tmp_path, "hdf5")


@pytest.fixture
def named(reservation: str) -> str:
    """Two steps with named dimensions; ``x`` has a coordinate, ``z`` two extents."""
    address = f"{reservation}/flow"
    with forebay.open(address, "w") as stream:
        stream.attributes["T/units"] = "K"
        for number in range(2):
            with stream.step() as step:
                step.write("T", np.arange(12.0).reshape(3, 4) + number, dims=("y", "x"))
                step.write("mesh/p", np.ones((2, 3)), dims=("z", "y"))
                step.write("x", np.linspace(0, 1, 4), dims=("x",))
                step.write("odd", np.zeros(5), dims=("z",))
                step["plain"] = np.zeros(3)
    return address


def test_hdf5_has_dimension_scales_and_the_number_of_the_step(named: str, tmp_path: Path) -> None:
    stage(named, tmp_path, "hdf5")
    with h5py.File(tmp_path / "flow.000001.h5") as file:
        assert file.attrs["forebay_step"] == 1
        assert [axis.label for axis in file["T"].dims] == ["y", "x"]
        assert file["T"].dims[1][0] == file["x"]
        assert file["T"].dims[0][0] == file["y"]
        # z has two extents, so it is no dimension of the file; and netCDF-4 has no dataset with some dimensions only.
        assert [len(axis) for axis in file["mesh/p"].dims] == [0, 0]


def test_a_coordinate_that_moves_has_the_dimension_of_the_steps(reservation: str, tmp_path: Path) -> None:
    with forebay.open(f"{reservation}/flow", "w") as stream:
        for number in (0, 10, 0):
            with stream.step() as step:
                step.write("x", np.arange(3) + number, dims=("x",))
    with h5py.File(stage(f"{reservation}/flow", tmp_path, "all.h5")) as file:
        assert file["x"][()].tolist() == [[0, 1, 2], [10, 11, 12], [0, 1, 2]]
