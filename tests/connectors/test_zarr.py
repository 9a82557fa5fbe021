# SPDX-License-Identifier: Apache-2.0
"""Zarr reads a real stream through the store: the same values as NumPy, edges padded, odd layouts refused by name."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import xarray as xr
import zarr

import forebay
from forebay.connectors.zarr import StreamStore
from tests.connectors.conftest import temperature


@pytest.fixture
def edges(reservation: str) -> str:
    """3 steps: ``field`` of 5 x 7 in blocks of 2 x 4 with short edges, ``brick`` without a grid, complex ``wave``."""
    address = f"{reservation}/edges"
    with forebay.open(address, mode="w") as stream:
        stream.attributes["field/scale"] = 2.5
        for number in range(3):
            whole = np.arange(35, dtype=np.float32).reshape(5, 7) + number
            with stream.step() as step:
                for row in (0, 2, 4):
                    for column in (0, 4):
                        block = whole[row : row + 2, column : column + 4]
                        step.write("field", block, shape=whole.shape, start=(row, column))
                step.write("brick", np.full((1, 3), 1.0), shape=(2, 3), start=(0, 0))
                step.write("brick", np.full((1, 2), 2.0), shape=(2, 3), start=(1, 0))
                step.write("brick", np.full((1, 1), 3.0), shape=(2, 3), start=(1, 2))
                step["wave"] = np.array([1 + 2j, 3 - 1j]) * (number + 1)
                step["field/mask"] = np.ones(3, np.int8)
    return address


def test_arrays_have_the_stream_s_values(flow: str) -> None:
    group = zarr.open_group(StreamStore(f"forebay://{flow}"), mode="r")
    array = group["T"]
    assert isinstance(array, zarr.Array)
    assert array.chunks == (1, 4, 6, 16)
    np.testing.assert_array_equal(array[:], np.stack([temperature(number) for number in range(6)]))
    np.testing.assert_array_equal(array[4, 2:7, ::5, -1], temperature(4)[2:7, ::5, -1])
    assert array.attrs.asdict() == {"units": "K"}
    assert np.asarray(group["time"]).tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert np.asarray(group["mesh/level"])[3].tolist() == [3, 4, 5, 6, 7]
    assert {"T", "mesh", "time", "step", "commit_time"} == set(group)
    assert any(text.startswith("grows: ") for text in group.attrs["forebay_left_out"])


def test_short_blocks_at_the_edges_are_padded(edges: str) -> None:
    array = zarr.open_array(StreamStore(edges), path="field", mode="r")
    assert array.chunks == (1, 2, 4)
    for number in range(3):
        np.testing.assert_array_equal(array[number], np.arange(35, dtype=np.float32).reshape(5, 7) + number)
    wave = zarr.open_array(StreamStore(edges), path="wave", mode="r")
    np.testing.assert_array_equal(wave[2], np.array([3 + 6j, 9 - 3j]))


def test_blocks_without_a_grid_are_refused_by_name_or_taken_as_whole_steps(edges: str) -> None:
    group = zarr.open_group(StreamStore(edges), mode="r")
    assert "brick" not in group
    left_out = list(group.attrs["forebay_left_out"])
    assert any(str(text).startswith("brick: its blocks form no regular grid") for text in left_out)
    assert "field/mask: field is an array, so that nothing can lie below it" in left_out
    whole = zarr.open_array(StreamStore(edges, whole_steps=True), path="brick", mode="r")
    assert whole[1].tolist() == [[1.0, 1.0, 1.0], [2.0, 2.0, 3.0]]


def test_xarray_opens_it_with_times_and_dimensions(flow: str) -> None:
    with xr.open_zarr(StreamStore(flow), consolidated=False, chunks={}) as dataset:
        assert dataset["T"].chunks == ((1,) * 6, (4, 4), (6, 6), (16,))
        assert dataset["commit_time"].dtype.kind == "M"
        assert float(dataset["T"].sel(step=3).mean()) == pytest.approx(temperature(3).mean())


def test_chunk_in_one_block_is_not_copied(flow: str) -> None:
    store = StreamStore(flow)
    chunk = store._read("T/c/2/0/1/0")
    assert chunk is not None
    assert not chunk.flags.writeable
    with forebay.Admin() as admin:
        assert admin.steps(flow)[2].pins == 1


def test_store_is_read_only(flow: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_group(StreamStore(flow), mode="w")
    with pytest.raises(ValueError, match="read-only"):
        zarr.open_array(StreamStore(flow), path="T", mode="r")[0] = 1
    with pytest.raises(forebay.UnsupportedError, match="mode='w'"):
        StreamStore(flow).with_read_only(False)


def test_pickle_is_of_the_same_steps(flow: str) -> None:
    store = StreamStore(flow)
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    np.testing.assert_array_equal(zarr.open_array(again, path="T", mode="r")[5], temperature(5))


def test_dropped_step_is_an_error_not_the_fill_value(flow: str) -> None:
    array = zarr.open_array(StreamStore(flow), path="T", mode="r")
    with forebay.Admin() as admin:
        admin.set_retention(flow, "last:1")
    with pytest.raises(forebay.StepGoneError, match="retention is 'last:1'"):
        _ = array[0]


def test_keys_outside_are_not_there(flow: str) -> None:
    store = StreamStore(flow)
    for key in ("T/c/6/0/0/0", "T/c/0/0/0", "T/c/0/0/0/0/0", "T/c/x/0/0/0", "T/c/-1/0/0/0", "U/zarr.json", "c/0", ""):
        assert store._read(key) is None


def test_names_that_begin_with_a_slash_are_paths_as_those_of_openpmd(reservation: str) -> None:
    address = f"{reservation}/plasma"
    with forebay.open(address, mode="w") as stream:
        for number in range(2):
            with stream.step() as step:
                step["/data/0/fields/rho"] = np.arange(3.0) + number
                step["/data/0/fields/E//x"] = np.arange(2.0)
                step["rho"] = 1.0
                step["/rho"] = 2.0
                step["/step"] = 3.0
                step["up/../down"] = 4.0
    group = zarr.open_group(StreamStore(address), mode="r")
    assert {name for name, _ in group.members(max_depth=None)} == {
        *("data", "data/0", "data/0/fields", "data/0/fields/rho", "data/0/fields/E", "data/0/fields/E/x"),
        *("rho", "step", "commit_time", "time"),
    }
    np.testing.assert_array_equal(group["data/0/fields/rho"][1], [1.0, 2.0, 3.0])
    assert np.asarray(group["rho"]).tolist() == [1.0, 1.0]
    assert np.asarray(group["step"]).tolist() == [0, 1]
    left_out = group.attrs["forebay_left_out"]
    assert "/rho: it has the same path as 'rho'" in left_out
    assert "up/../down: its name is no path in a Zarr hierarchy" in left_out
    assert any(str(text).startswith("/step: ") for text in left_out)
