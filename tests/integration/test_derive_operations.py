# SPDX-License-Identifier: Apache-2.0
"""Smaller parts, fewer bits, statistics, histograms and functions of the user's, as operations of derived streams."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import forebay
from forebay.connectors.derive import derive
from forebay.errors import InvalidArgumentError, NotFoundError, RefusedError

SHAPE = (7, 10, 6)


@pytest.fixture
def flow(reservation: str) -> str:
    return f"{reservation}/flow"


@pytest.fixture
def out(reservation: str) -> str:
    return f"{reservation}/derived"


@pytest.fixture
def field(flow: str) -> NDArray[np.float64]:
    """One step with ``T`` in six blocks of different sizes, its coordinates, a plane and the time."""
    values = np.random.default_rng(3).normal(300, 40, SHAPE)
    with forebay.open(flow, "w") as stream, stream.step() as step:
        for z in (slice(0, 4), slice(4, 7)):
            for y in (slice(0, 3), slice(3, 4), slice(4, 10)):
                step.write("T", values[z, y], shape=SHAPE, start=(z.start, y.start, 0), dims=("z", "y", "x"))
        step.write("x", np.linspace(0, 1, 6), dims=("x",))
        step["plane"] = values[0]
        step["time"] = 1.5
        step.attributes["T/units"] = "K"
        step.attributes["spacing"] = np.array([0.1, 0.2, 0.3])
        step.attributes["origin"] = np.array([1.0, 2.0, 3.0])
    return values


def only_step(address: str) -> forebay.Step:
    with forebay.open(address, timeout=0) as stream:
        [step] = stream
        return step


def blocks(step: forebay.Step, name: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(block.start, block.count) for block in step[name].blocks]


def test_a_box_is_cut_out_of_the_blocks_that_it_meets(flow: str, out: str, field: NDArray[np.float64]) -> None:
    derive(flow, out, subset="3:6,:,2:5")
    step = only_step(out)
    np.testing.assert_array_equal(step["T"][...], field[3:6, :, 2:5])
    assert blocks(step, "T") == [
        ((z, y, 0), (depth, height, 3)) for z, depth in ((0, 1), (1, 2)) for y, height in ((0, 3), (3, 1), (4, 6))
    ]
    assert step["T"].fault == ""
    assert step["T"].attributes["units"] == "K"
    np.testing.assert_array_equal(step["x"][...], np.linspace(0, 1, 6)[2:5])
    assert step["plane"].shape == SHAPE[1:]
    assert step["time"].item() == 1.5
    np.testing.assert_allclose(step.attributes["origin"], [1 + 2 * 0.1, 2.0, 3 + 3 * 0.3])
    np.testing.assert_allclose(step.attributes["spacing"], [0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("options", "index"),
    [
        ({"subset": "y=9:10"}, np.s_[:, 9:10, :]),
        ({"subset": "x=5,z=:3"}, np.s_[:3, :, 5:6]),
        ({"stride": 3}, np.s_[::3, ::3, ::3]),
        ({"stride": "1,4,2"}, np.s_[:, ::4, ::2]),
        ({"stride": 100}, np.s_[:1, :1, :1]),
        ({"subset": "1:7,2:9,:", "stride": "2,3,1"}, np.s_[1:7:2, 2:9:3, :]),
    ],
)
def test_parts_are_those_of_numpys_index(
    flow: str, out: str, field: NDArray[np.float64], options: dict[str, Any], index: Any
) -> None:
    derive(flow, out, variables=["T"], **options)
    step = only_step(out)
    assert step["T"].fault == ""
    np.testing.assert_array_equal(step["T"][...], field[index])
    derive(flow, f"{out}2", expressions="double = 2 * T", **options)
    np.testing.assert_array_equal(only_step(f"{out}2")["double"][...], 2 * field[index])


def test_strides_of_local_arrays_are_those_of_each_block(flow: str, out: str) -> None:
    part = np.arange(24.0).reshape(4, 6)
    with forebay.open(flow, "w") as stream, stream.step() as step:
        step.write("l", part, kind="local_array")
        step.write("l", part[:3], kind="local_array")
    derive(flow, out, stride=2)
    found = only_step(out)["l"]
    np.testing.assert_array_equal(found.block(0), part[::2, ::2])
    np.testing.assert_array_equal(found.block(1), part[:3][::2, ::2])
    with pytest.raises(InvalidArgumentError, match="local array"):
        derive(flow, f"{out}2", subset="0:2,0:2")


def test_single_precision_rounds_as_numpy_does(flow: str, out: str, field: NDArray[np.float64]) -> None:
    derive(flow, out, precision="float32")
    step = only_step(out)
    assert step["T"].dtype == np.float32
    np.testing.assert_array_equal(step["T"][...], field.astype(np.float32))
    assert len(step["T"].blocks) == 6
    with forebay.open(flow, "w") as stream:
        stream.write("T", np.array([1e300]))
    with pytest.raises(InvalidArgumentError, match="too large for float32"):
        derive(flow, f"{out}2", precision="float32")


@pytest.mark.parametrize(("bits", "size"), [(2, 1), (8, 1), (12, 2), (16, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_packed_elements_are_half_a_scale_away_at_most(flow: str, out: str, bits: int, size: int, dtype: Any) -> None:
    values = np.random.default_rng(bits).normal(0, 1e6, (20, 30)).astype(dtype)
    values[3, 4] = np.nan
    with forebay.open(flow, "w") as stream:
        stream.write("T", values)
    derive(flow, out, precision=f"bits={bits}")
    packed = only_step(out)["T"]
    assert packed.dtype.itemsize == size
    scale, offset, fill = (packed.attributes[name] for name in ("scale_factor", "add_offset", "_FillValue"))
    assert fill == packed[3, 4] == 2**bits - 1
    unpacked = np.where(packed[...] == fill, np.nan, packed[...] * scale + offset)
    assert np.nanmax(np.abs(unpacked - values)) <= scale / 2 * (1 + 1e-9)
    assert np.isnan(unpacked).sum() == 1
    assert packed.attributes["add_offset"] == np.nanmin(values)


def test_a_range_keeps_the_scale_of_all_steps_and_refuses_what_lies_outside(flow: str, out: str) -> None:
    with forebay.open(flow, "w") as stream:
        for value in (0.0, 12.0, 100.0):
            stream.write("T", np.array([1.0, value]))
    with pytest.raises(InvalidArgumentError, match=r"100\.0, which lies outside 0 to 50"):
        derive(flow, out, precision="bits=8:0:50")
    with forebay.open(out, timeout=0) as stream_read:
        assert [step.number for step in stream_read] == [0, 1]
        assert {float(step["T"].attributes["scale_factor"]) for step in stream_read} == {50 / 254}


def test_statistics_and_histograms_are_numpys(flow: str, out: str, field: NDArray[np.float64]) -> None:
    derive(flow, out, statistics=True, histograms=["T:16", "plane:8:250:350"])
    step = only_step(out)
    assert "T" not in step
    assert step["T_min"].item() == field.min()
    assert step["T_max"].item() == field.max()
    np.testing.assert_allclose(step["T_mean"].item(), field.mean(), rtol=1e-14)
    np.testing.assert_allclose(step["T_std"].item(), field.std(), rtol=1e-12)
    assert step["T_count"].item() == field.size
    assert step["T_mean"].attributes["units"] == "K"
    counts, edges = np.histogram(field, 16)
    np.testing.assert_array_equal(step["T_histogram"][...], counts)
    np.testing.assert_array_equal(step["T_edges"][...], edges)
    counts, edges = np.histogram(field[0], 8, (250, 350))
    np.testing.assert_array_equal(step["plane_histogram"][...], counts)
    assert step["time"].item() == 1.5


def test_nan_and_infinities_count_as_the_page_says(flow: str, out: str) -> None:
    with forebay.open(flow, "w") as stream, stream.step() as step:
        step["a"] = np.array([np.nan, 1.0, 3.0])
        step["none"] = np.array([np.nan])
        step["empty"] = np.zeros((0,), np.int32)
        step["endless"] = np.array([np.inf, 1.0])
        step["both"] = np.array([np.inf, -np.inf])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        derive(flow, out, statistics=True, histograms=["a:2", "none:2", "endless:2"])
    with pytest.raises(InvalidArgumentError, match=r"inf, .*packed data have no infinities"):
        derive(flow, f"{out}-packed", variables=["endless"], precision="bits=12")
    step_read = only_step(out)
    assert [step_read[f"a_{name}"].item() for name in ("min", "max", "mean", "std", "count")] == [1, 3, 2, 1, 2]
    assert np.isnan(step_read["none_mean"].item())
    assert [step_read[f"{name}_count"].item() for name in ("none", "empty", "endless")] == [0, 0, 2]
    assert step_read["endless_max"].item() == np.inf
    assert np.isnan(step_read["both_std"].item())
    assert step_read["a_histogram"][...].tolist() == [1, 1]
    assert step_read["none_histogram"][...].tolist() == [0, 0]
    assert step_read["endless_histogram"][...].sum() == 1


MODULE = """
import numpy as np

def smooth(fields):
    T = fields["T"]
    return {"smooth": (T + np.roll(T, 1, axis=0)) / 2, "total": T.sum(), "hot": T > 300}

def fails(fields):
    raise RuntimeError("no convergence")

def nothing(fields):
    return None
"""


def test_a_function_of_ones_own_gets_arrays_and_gives_arrays(
    flow: str, out: str, field: NDArray[np.float64], tmp_path: Path
) -> None:
    module = tmp_path / "filters.py"
    module.write_text(MODULE)
    derive(flow, out, function=f"{module}:smooth", precision="float32")
    step = only_step(out)
    np.testing.assert_array_equal(step["smooth"][...], ((field + np.roll(field, 1, axis=0)) / 2).astype(np.float32))
    assert len(step["smooth"].blocks) == 6
    assert step["smooth"].dims == ("z", "y", "x")
    assert step["total"].item() == field.sum()
    assert step["hot"].dtype == np.uint8
    assert "filters.py:smooth, sha256 " in step.attributes["derived_operations"][0]
    with pytest.raises(InvalidArgumentError, match="RuntimeError: no convergence"):
        derive(flow, f"{out}2", function=f"{module}:fails")
    with pytest.raises(InvalidArgumentError, match="returned NoneType"):
        derive(flow, f"{out}2", function=f"{module}:nothing")
    with pytest.raises(NotFoundError, match="no function 'missing'"):
        derive(flow, f"{out}2", function=f"{module}:missing")
    with pytest.raises(NotFoundError, match="no file"):
        derive(flow, f"{out}2", function="/none/such.py:missing")
    module.write_text(MODULE.replace("/ 2", "/ 3"))
    with pytest.raises(RefusedError, match="--replace"):
        derive(flow, out, function=f"{module}:smooth", precision="float32")


def test_mistaken_operations_say_what_is_meant(flow: str, out: str, field: NDArray[np.float64]) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"subset": "0:4,:,:,:"}, "fits no array"),
        ({"subset": "0:8,:,:"}, "lies outside 'T'"),
        ({"subset": "q=0:4"}, "fits no array"),
        ({"subset": "4:2"}, "no element"),
        ({"subset": "z=0:4,0:2"}, "by names or none"),
        ({"subset": "a:b"}, "FIRST:END"),
        ({"subset": "-1:2"}, "FIRST:END"),
        ({"stride": 0}, "from 1 on"),
        ({"stride": "2,x"}, "from 1 on"),
        ({"precision": "half"}, "float32, bits=N"),
        ({"precision": "bits=17"}, "2 to 16"),
        ({"precision": "bits=8:5:1"}, "begins below"),
        ({"precision": "bits=8:a:b"}, "float32, bits=N"),
        ({"histograms": "T"}, "NAME:BINS"),
        ({"histograms": "T:0"}, "1 to 65536"),
        ({"histograms": "T:8:nan:1"}, "begins below"),
        ({"histograms": "time:8"}, "array of real numbers"),
        ({"statistics": True, "precision": "bits=8"}, "packed numbers"),
        ({"function": "smooth"}, "MODULE.py:FUNCTION"),
        ({"statistics": 1}, "True or False"),
        ({"workers": 0, "stride": 2}, "from 1 on"),
    ]
    for options, advice in mistakes:
        with pytest.raises(InvalidArgumentError, match=advice) as refused:
            derive(flow, out, **options)
        assert len(str(refused.value)) < 300


@pytest.fixture
def levels(flow: str) -> str:
    """Two levels, of which the finer one covers a part, in two blocks."""
    with forebay.open(flow, "w") as stream, stream.step() as step:
        for level, spacing in ((0, 0.5), (1, 0.25)):
            step.attributes[f"level_{level}/spacing"] = np.full(3, spacing)
            step.attributes[f"level_{level}/origin"] = np.array([1.0, 2.0, 3.0])
        step.attributes["spacing"], step.attributes["origin"] = np.full(3, 0.5), np.array([1.0, 2.0, 3.0])
        step.write("level_0/u", np.ones((4, 4, 4)))
        for start in ((2, 2, 2), (4, 2, 2)):
            step.write("level_1/u", np.full((2, 4, 4), 2.0), shape=(8, 8, 8), start=start)
    return flow


def test_levels_of_refinement_keep_what_they_cover_and_where_they_lie(levels: str, out: str, tmp_path: Path) -> None:
    module = tmp_path / "double.py"
    module.write_text("def double(fields):\n    return {name: 2 * field for name, field in fields.items()}\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # each covered cell is read within its block
        derive(levels, out, subset="2:8,:,:", variables=["level_1/u"])
        derive(levels, f"{out}-x", expressions="level_1 = 3 * u", names={"u": "level_1/u"})
        derive(levels, f"{out}-s", stride=2)
    part, strided = only_step(out), only_step(f"{out}-s")
    assert [block.start for block in part["level_1/u"].blocks] == [(0, 2, 2), (2, 2, 2)]
    np.testing.assert_allclose(part.attributes["level_1/origin"], [1, 2, 3.5])
    np.testing.assert_allclose(part.attributes["origin"], [1, 2, 3])
    assert only_step(f"{out}-x")["level_1"].block(1).tolist() == np.full((2, 4, 4), 6.0).tolist()
    assert [block.count for block in strided["level_1/u"].blocks] == [(1, 2, 2), (1, 2, 2)]
    for name, spacing in (("", 1.0), ("level_0/", 1.0), ("level_1/", 0.5)):
        np.testing.assert_allclose(strided.attributes[f"{name}spacing"], np.full(3, spacing))
    derive(levels, f"{out}-f", function=f"{module}:double")
    made = only_step(f"{out}-f")["level_1/u"]
    assert [block.start for block in made.blocks] == [(2, 2, 2), (4, 2, 2)]
    assert made.block(0).tolist() == np.full((2, 4, 4), 4.0).tolist()
